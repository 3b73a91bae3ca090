"""What a person asks for when the message is no longer where it would have to be: refused, with nothing changed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import BadData, NotFound
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, finish, message, names, retry
from tests.store.servers import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.records.reservations import Reservation

    Become = Callable[[Launch, Reservation], object]


def _stays(_: Launch, __: Reservation) -> None:
    """It stays reserved."""


BECOMES: dict[str, Become] = {
    "reserved": _stays,
    "completed": lambda launch, reservation: launch.complete(reservation),
    "completed with a result": lambda launch, reservation: launch.settle(finish(reservation, "1")),
    "dead": lambda launch, reservation: launch.settle(die(reservation)),
}


def brought_to(store: RedisStore, become: Become) -> Reservation:
    store.enqueue([message("a")])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    become(launch, reservation)
    return reservation


@pytest.mark.parametrize("become", BECOMES.values(), ids=BECOMES)
def test_what_was_reserved_is_neither_cancelled_nor_rescheduled(
    store: RedisStore, person: MessageActions, become: Become
) -> None:
    brought_to(store, become)
    before = snapshot(store.wire)
    with pytest.raises(BadData):
        person.cancel(QUEUE, "a")
    for delay in (0, HOUR):
        with pytest.raises(BadData):
            person.change(QUEUE, "a", delay=delay)
    assert snapshot(store.wire) == before


@pytest.mark.parametrize("become", list(BECOMES.values())[:3], ids=list(BECOMES)[:3])
def test_what_is_no_dead_letter_is_neither_redriven_nor_purged(
    store: RedisStore, look: Looking, person: MessageActions, become: Become
) -> None:
    brought_to(store, become)
    before = snapshot(store.wire)
    assert person.redrive(QUEUE, ["a"]) == []
    assert snapshot(store.wire) == before
    assert person.purge(QUEUE, ["a"]) == []
    assert snapshot(store.wire) | {look.key("counters"): None} == before | {look.key("counters"): None}


def test_what_was_redriven_is_not_redriven_again(store: RedisStore, person: MessageActions) -> None:
    brought_to(store, BECOMES["dead"])
    assert [person.redrive(QUEUE, ["a", "a"]), person.redrive(QUEUE, ["a"])] == [["a"], []]
    assert names(Launch(store).reserve(9)) == ["a"]


def test_what_died_again_is_not_redriven_by_a_repeated_call(store: RedisStore, look: Looking) -> None:
    brought_to(store, BECOMES["dead"])
    repeated = partial(store.wire.run, "redrive", store.keys, QUEUE, [0, "a", 0])
    assert repeated() == [b"a"]
    launch = Launch(store)
    (again,) = launch.reserve()
    launch.settle(die(again))
    assert repeated() == []
    assert look.ranked("dead_letters") == ["a"]


def test_what_waits_for_its_next_attempt_is_no_dead_letter(store: RedisStore, person: MessageActions) -> None:
    brought_to(store, lambda launch, reservation: launch.settle(retry(reservation, HOUR)))
    assert person.redrive(QUEUE, ["a"]) == []


def test_what_was_cancelled_stands_in_the_schedule_no_more(
    store: RedisStore, look: Looking, person: MessageActions
) -> None:
    store.enqueue([message("a", delay=HOUR)])
    person.cancel(QUEUE, "a")
    assert look.ranked("schedule") == []


@pytest.mark.parametrize("become", BECOMES.values(), ids=BECOMES)
def test_an_id_that_somebody_else_scheduled_is_promoted_only_while_its_message_waits(
    store: RedisStore, look: Looking, become: Become
) -> None:
    brought_to(store, become)
    row = look.hash("rows")["a"]
    store.wire.command("ZADD", look.key("schedule"), 1, "a")
    assert store.promote(Launch(store).claim, QUEUE, 9).moved == 1
    assert (look.hash("rows")["a"], look.listed("ready"), look.ranked("schedule")) == (row, [], [])


def test_a_message_that_cannot_be_read_and_waits_for_its_due_time_is_removed(
    store: RedisStore, person: MessageActions, look: Looking
) -> None:
    store.enqueue([message("junk", delay=HOUR), message("sound", delay=HOUR)])
    store.wire.all([("HSET", look.key("records"), "junk", b"\x01"), ("HDEL", look.key("rows"), "junk")])
    person.cancel(QUEUE, "junk")
    assert store.wire.command("ZRANGE", look.key("schedule"), 0, -1) == [b"sound"]
    assert not store.wire.command("HEXISTS", look.key("records"), "junk")
    with pytest.raises(NotFound):
        person.cancel(QUEUE, "junk")
