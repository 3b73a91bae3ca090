"""Ids that somebody else pushed: twice, as bytes that are no text, or with nothing behind them. Counts come right with
the next launch, and everything counted can be listed and purged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.lifecycle import State
from pollconsumer.store.records.rows import id_bytes, id_text
from pollconsumer.store.server import service_of
from tests.store.acting import QUEUE, Launch, Looking, message, names

if TYPE_CHECKING:
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.leases import Leases
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector

STRANGE = [b"\xff\xfe", b"a\xffb", b"\\xff", b"\\x5cxff", b"a\\b", "ä".encode(), b"\x1b[31m", b"two\nlines", b""]


def ready(inspector: Inspector) -> int:
    return inspector.overview().queues[0].ready


@pytest.mark.parametrize("priority", [0, 3])
def test_an_id_pushed_twice_is_handled_once_and_counted_right_after_that(
    store: RedisStore, look: Looking, inspector: Inspector, priority: int
) -> None:
    store.enqueue([message("a", priority=priority), message("b", priority=priority)])
    store.wire.command("RPUSH", look.key("ready"), "a", "a", "b")
    launch = Launch(store)
    reserved = launch.reserve(9)
    assert sorted(names(reserved)) == ["a", "b"]
    launch.complete(*reserved)
    assert ready(inspector) == 0
    store.enqueue([message("c")])
    assert ready(inspector) == 1


def test_an_id_pushed_twice_beside_a_cancelled_one_leaves_no_wrong_count(
    store: RedisStore, look: Looking, inspector: Inspector, person: MessageActions
) -> None:
    store.enqueue([message("a"), message("gone"), message("b")])
    person.cancel(QUEUE, "gone")
    store.wire.command("RPUSH", look.key("ready"), "a")
    launch = Launch(store)
    launch.complete(*launch.reserve(9))
    assert launch.reserve(1) == []
    assert ready(inspector) == 0
    assert look.hash("counters").get("left over", b"0") == b"0"


def test_a_count_that_is_no_number_begins_anew(store: RedisStore, look: Looking, person: MessageActions) -> None:
    store.enqueue([message("gone"), message("a")])
    store.wire.command("HSET", look.key("counters"), "left over", "garbage")
    person.cancel(QUEUE, "gone")
    assert look.hash("counters")["left over"] == b"1"


def test_a_count_of_what_is_left_over_ends_with_the_ready_messages(
    store: RedisStore, look: Looking, inspector: Inspector
) -> None:
    launch = Launch(store)
    store.wire.command("HSET", look.key("counters"), "left over", 7)
    assert launch.reserve(1) == []
    store.enqueue([message("a")])
    assert ready(inspector) == 1


def test_every_id_that_was_set_aside_is_listed_and_purged_by_the_name_that_is_shown(
    store: RedisStore, look: Looking, inspector: Inspector, person: MessageActions
) -> None:
    launch = Launch(store)
    store.wire.command("RPUSH", look.key("ready"), *STRANGE)
    assert launch.reserve(99) == []
    assert inspector.overview().queues[0].dead == len(STRANGE)
    listed = [letter.id for letter in inspector.messages(State.DEAD, QUEUE, 99)]
    assert sorted(map(id_bytes, listed)) == sorted(STRANGE)
    assert [inspector.message(name).id for name in listed] == listed
    assert sorted(person.purge(QUEUE, listed)) == sorted(listed)
    assert inspector.overview().queues[0].dead == 0


def test_a_dead_letter_of_which_nothing_is_stored_is_listed_and_purged(
    store: RedisStore, look: Looking, inspector: Inspector, person: MessageActions
) -> None:
    Launch(store)
    store.wire.command("ZADD", look.key("dead_letters"), 5, b"ghost\xff")
    (letter,) = inspector.messages(State.DEAD, QUEUE, 99)
    assert (letter.state, letter.last_error) == (State.DEAD, "nothing is stored of it")
    assert person.purge(QUEUE, [letter.id]) == [letter.id]
    assert inspector.overview().queues[0].dead == 0


def test_no_two_ids_are_shown_alike() -> None:
    strange = [*STRANGE, b"\\x5c", b"\\x5c\xff", b"\\\\xff", b"\xff\\xff", b"\\xf", b"\\x7f", b"\\xFF"]
    shown = [id_text(name) for name in strange]
    assert len(set(shown)) == len(strange)
    assert [id_bytes(name) for name in shown] == strange


def test_an_id_from_a_command_line_may_be_bytes_that_are_no_text() -> None:
    assert id_bytes(b"a\xff".decode("utf-8", "surrogateescape")) == b"a\xff"


@pytest.mark.parametrize("settle", [False, True])
def test_what_somebody_else_scheduled_leaves_a_reservation_as_it_is(
    store: RedisStore, look: Looking, *, settle: bool
) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    if settle:
        launch.complete(reservation)
    store.wire.command("ZADD", look.key("schedule"), 5, "a")
    row = store.wire.command("HGET", look.key("rows"), "a")
    store.promote(launch.claim, QUEUE, 9)
    assert look.ranked("schedule") == []
    assert look.listed("ready") == []
    assert store.wire.command("HGET", look.key("rows"), "a") == row


def test_names_of_queues_and_leases_that_somebody_else_wrote_are_passed_over(
    store: RedisStore, inspector: Inspector, leases: Leases
) -> None:
    store.enqueue([message("a")])
    store.wire.command("SADD", store.keys.control("queues"), b"\xff", "no such name", "")
    store.wire.command("SADD", store.keys.control("leases"), b"\xff:0")
    assert store.queues() == inspector.queues() == [QUEUE]
    assert [found.id for found in inspector.messages(None, None, 9)] == ["a"]
    assert [counts.name for counts in inspector.overview().queues] == [QUEUE]
    assert leases.live_fences() == []


@pytest.mark.parametrize("text", ["garbage", "1e3", "9" * 400, "", "0x10", b"\xff"])
@pytest.mark.parametrize(
    "count", ["audited to", "id memory began", "left over", "sent on", "skipped", "stood in line", "tick"]
)
def test_a_count_that_is_no_number_is_shown_as_none_and_gone_with_the_next_launch(
    store: RedisStore, look: Looking, inspector: Inspector, count: str, text: str | bytes
) -> None:
    launch = Launch(store)
    store.enqueue([message("a"), message("b", concurrency="one at a time"), message("c", priority=3)])
    store.wire.command("HSET", look.key("counters"), count, text)
    assert ready(inspector) == 3
    assert service_of(store.wire, store.keys, [QUEUE])[QUEUE].ready == 3
    assert store.maintenance.repair(QUEUE) == 0
    launch.complete(*launch.reserve(9))
    assert launch.reserve(1) == []
    assert ready(inspector) == 0
