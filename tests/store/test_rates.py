"""Rates: at most so many messages with the same rate key handed out in a period, the others scheduled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.store.records import rows
from pollconsumer.store.records.steps import Limits, Settlement
from tests.store.acting import (
    HOUR,
    QUEUE,
    Launch,
    Looking,
    age_rates,
    die,
    expire,
    message,
    names,
    park,
    release,
    retry,
)
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector
    from pollconsumer.store.records.reservations import Reservation

TWO_AN_HOUR = "2/1h"


def rated(*ids: str, key: str = "k", rate: str = TWO_AN_HOUR, concurrency: str = "") -> list[NewMessage]:
    return [message(name, rate_key=key, rate=rate, concurrency=concurrency) for name in ids]


def age(store: RedisStore, ms: int) -> None:
    """Have what was handed out and booked have been so much earlier, and what waits be due as much sooner."""
    age_rates(store, QUEUE, ms)
    schedule = store.keys.queue(QUEUE, "schedule")
    for name in store.wire.command("ZRANGE", schedule, 0, -1):
        store.wire.command("ZINCRBY", schedule, -ms * 1000, name)


def promoted(store: RedisStore, launch: Launch) -> int:
    return store.promote(launch.claim, QUEUE, 99).moved


def handed(look: Looking, store: RedisStore) -> list[int]:
    """How many messages each key has been charged."""
    return [int.from_bytes(value[6:8], "big") for value in store.wire.command("HVALS", look.key("rates"))]


def test_so_many_are_handed_out_and_the_others_go_into_the_schedule_a_period_after_them(
    store: RedisStore, look: Looking, inspector: Inspector
) -> None:
    store.enqueue([*rated("a", "b", "c", "d", "e"), message("x")])
    stepped = Launch(store).step(wanted=9)
    assert names(stepped.reserved) == ["a", "b", "x"]
    assert not stepped.held_back
    assert look.ranked("schedule") == ["c", "d", "e"]
    at = stepped.reserved[0].reserved_at
    assert [look.due(name) for name in "cde"] == [at + HOUR, at + HOUR, at + 2 * HOUR]
    assert [inspector.message(name).row.booked for name in "ac"] == [False, True]
    assert [inspector.message(name).state for name in "ac"] == ["reserved", "scheduled"]
    assert look.marker("schedule_marker") == 1


def test_one_that_waited_is_handed_out_at_its_instant_without_waiting_again(store: RedisStore, look: Looking) -> None:
    store.enqueue(rated("a", "b", "c", "d", "e"))
    launch = Launch(store)
    launch.complete(*launch.reserve(9))
    for expected in (["c", "d"], ["e"]):
        age(store, HOUR)
        assert promoted(store, launch) == len(expected)
        reserved = launch.reserve(9)
        assert names(reserved) == expected
        assert not any(r.row[rows.FLAGS] & rows.BOOKED for r in reserved)
        launch.complete(*reserved)
    assert look.listed("completed") == ["a", "b", "c", "d", "e"]


def test_a_message_takes_no_place_that_is_booked_for_another(store: RedisStore, look: Looking) -> None:
    store.enqueue(rated("a", "b", "c"))
    launch = Launch(store)
    launch.reserve(9)
    age(store, HOUR)
    store.enqueue(rated("d", "e"))
    assert names(launch.reserve(9)) == ["d"]
    assert look.ranked("schedule") == ["c", "e"]


def test_after_a_downtime_no_more_are_handed_out_at_once_than_the_rate_allows(store: RedisStore) -> None:
    store.enqueue(rated(*"abcdefgh"))
    launch, order = Launch(store), list[str]()
    launch.complete(*launch.reserve(9))
    age(store, 9 * HOUR)
    while promoted(store, launch):
        reserved = launch.reserve(9)
        assert len(reserved) <= 2
        launch.complete(*reserved)
        order += names(reserved)
        age(store, HOUR)
    assert order == [*"cdefgh"]


def test_one_that_waited_counts_once(store: RedisStore) -> None:
    store.enqueue(rated("a", "b", "c"))
    launch = Launch(store)
    launch.reserve(9)
    age(store, HOUR)
    promoted(store, launch)
    assert names(launch.reserve(9)) == ["c"]
    store.enqueue(rated("d", "e"))
    assert names(launch.reserve(9)) == ["d"]


def test_those_after_one_that_was_handed_out_late_are_as_late_and_in_order(store: RedisStore, look: Looking) -> None:
    """Late by ten minutes each, and by five."""
    store.enqueue(rated(*"abcdef", rate="1/1h"))
    launch, minute = Launch(store), HOUR // 60
    order = names(launch.reserve(9))
    for passed in (HOUR + 10 * minute, HOUR - 5 * minute, 5 * minute, HOUR, HOUR - 1 * minute, 2 * minute):
        age(store, passed)
        promoted(store, launch)
        order += names(launch.reserve(9))
    assert order == [*"abcde"]
    assert look.ranked("schedule") == ["f"]


def test_a_place_that_was_booked_anew_is_booked_once(store: RedisStore, look: Looking) -> None:
    store.enqueue(rated("a", "b", "c", rate="1/1h"))
    launch, minute = Launch(store), HOUR // 60
    launch.reserve(9)
    for passed in (HOUR + 10 * minute, HOUR - 10 * minute, 10 * minute):
        age(store, passed)
        promoted(store, launch)
        reserved = launch.reserve(9)
    assert names(reserved) == ["c"]
    age(store, 5 * minute)
    store.enqueue(rated("d", rate="1/1h"))
    launch.reserve(9)
    assert look.due("d") == reserved[0].reserved_at + HOUR - 5 * minute


def test_the_place_of_one_that_was_cancelled_is_free_once_it_is_past(store: RedisStore, person: MessageActions) -> None:
    store.enqueue(rated("a", "b", "c"))
    launch = Launch(store)
    launch.reserve(9)
    person.cancel(QUEUE, "c")
    age(store, 2 * HOUR)
    store.enqueue(rated("d", "e"))
    assert names(launch.reserve(9)) == ["d", "e"]


@pytest.mark.parametrize("way", ["cancel", "reschedule", "expire"])
def test_no_later_message_waits_behind_those_that_gave_their_places_back(
    store: RedisStore, look: Looking, person: MessageActions, way: str
) -> None:
    """Also those of which the full ledger had forgotten the places."""
    launch = Launch(store)
    store.enqueue(rated("a", rate="1/1h"))
    (first,) = launch.reserve()
    waiting = [f"m{n}" for n in range(6)]
    store.enqueue([each._replace(lifetime=int(way == "expire")) for each in rated(*waiting, rate="1/1h")])
    launch.reserve(9)
    if way == "expire":
        store.wire.command("DEL", look.key("served"))
        while len(look.listed("expired")) < len(waiting):
            store.maintenance.expire(QUEUE)
    elif way == "reschedule":
        for name in waiting:
            person.change(QUEUE, name, due=server_ms(store.wire) + 90 * HOUR)
    else:
        for name in waiting:
            person.cancel(QUEUE, name)
    store.enqueue(rated("b", rate="1/1h"))
    launch.reserve(9)
    assert look.due("b") == first.reserved_at + HOUR


def test_one_that_is_due_and_is_cancelled_gives_its_place_back(store: RedisStore, person: MessageActions) -> None:
    launch = Launch(store)
    store.enqueue(rated("a", "b", rate="1/1h"))
    launch.reserve(9)
    age(store, HOUR)
    assert promoted(store, launch) == 1
    person.cancel(QUEUE, "b")
    store.enqueue(rated("c", rate="1/1h"))
    assert names(launch.reserve(9)) == ["c"]


def test_after_the_last_ones_in_the_ledger_are_cancelled_a_new_one_still_goes_behind_all_others(
    store: RedisStore, look: Looking, person: MessageActions
) -> None:
    launch = Launch(store)
    store.enqueue(rated("a", *"bcdefg", rate="1/1h"))
    (first,) = launch.reserve(9)
    for name in "gfd":
        person.cancel(QUEUE, name)
    store.enqueue(rated("h", rate="1/1h"))
    launch.reserve(9)
    assert look.due("h") == first.reserved_at + 5 * HOUR
    person.cancel(QUEUE, "h")
    person.cancel(QUEUE, "e")
    store.enqueue(rated("i", rate="1/1h"))
    launch.reserve(9)
    assert look.due("i") == first.reserved_at + 3 * HOUR


def test_a_place_is_kept_where_too_many_others_are_scheduled_to_find_those_before_it(
    store: RedisStore, look: Looking, person: MessageActions
) -> None:
    launch = Launch(store)
    store.enqueue(rated("a", *"bcd", rate="1/1h"))
    (first,) = launch.reserve(9)
    store.enqueue([message(f"x{n}", delay=HOUR // 2) for n in range(100)])
    for name in "bcd":
        person.cancel(QUEUE, name)
    store.enqueue(rated("e", rate="1/1h"))
    launch.reserve(9)
    assert look.due("e") == first.reserved_at + 4 * HOUR


def test_what_replaces_one_that_waits_for_its_rate_has_its_place(store: RedisStore, look: Looking) -> None:
    launch = Launch(store)
    store.enqueue(rated("a", "b", rate="1/1h"))
    (first,) = launch.reserve(9)
    for n in range(5):
        for key in ("k", "l"):
            new = message(f"{key}{n}", key=key, rate_key="k", rate="1/1h")
            store.enqueue([new._replace(key_rule="r0")])
            launch.reserve(9)
    assert [look.due(name) for name in ("b", "k0", "l0")] == [first.reserved_at + n * HOUR for n in (1, 2, 3)]


def test_no_span_as_long_as_the_period_has_more_than_the_rate(store: RedisStore) -> None:
    store.enqueue(rated(*(f"m{n:02}" for n in range(12)), rate="3/100ms"))
    launch, at = Launch(store), list[int]()
    while len(at) < 12:
        promoted(store, launch)
        at += [r.reserved_at for r in launch.reserve(9)]
    assert all(later - earlier >= 100 for earlier, later in zip(at, at[3:], strict=False))


def test_each_key_and_each_rate_counts_by_itself(store: RedisStore) -> None:
    store.enqueue(rated("a", "b", rate="1/1h") + rated("c", "d", key="l", rate="1/1h") + rated("e", rate="1/2h"))
    assert names(Launch(store).reserve(9)) == ["a", "c", "e"]


def test_a_key_without_a_rate_has_that_of_the_queue_or_none(store: RedisStore) -> None:
    store.enqueue([*rated("a", "b", "c", rate=""), message("x")])
    launch = Launch(store)
    assert names(launch.step(wanted=2).reserved) == ["a", "b"]
    assert names(launch.step(wanted=9, limits=Limits(rate=1, rate_period_ms=HOUR)).reserved) == ["c", "x"]
    store.enqueue([*rated("d", rate=""), *rated("e", rate="1/1h")])
    limits = Limits(max_in_flight=99, rate=1, rate_period_ms=HOUR)
    assert names(launch.step(wanted=9, limits=limits).reserved) == ["e"]


@pytest.mark.parametrize("settle", [release, park, expire])
def test_one_that_was_not_begun_is_not_charged(
    store: RedisStore, look: Looking, settle: Callable[[Reservation], Settlement]
) -> None:
    store.enqueue(rated("a", "b"))
    launch = Launch(store)
    launch.settle(*map(settle, launch.reserve(9)))
    assert handed(look, store) == [0]
    store.enqueue(rated("c", "d"))
    assert len(launch.reserve(9)) == 2


def test_one_that_is_released_after_it_had_begun_is_charged(store: RedisStore, look: Looking) -> None:
    store.enqueue(rated("a", rate="1/1h"))
    launch = Launch(store)
    (reservation,) = launch.reserve()
    launch.settle(Settlement.released(reservation, begun=True))
    assert launch.reserve() == []
    assert look.due("a") == reservation.reserved_at + HOUR


def test_what_a_launch_gives_back_is_not_charged_but_what_it_had_begun_is(store: RedisStore, look: Looking) -> None:
    store.enqueue(rated("a", "b"))
    launch = Launch(store)
    assert len(launch.reserve(9)) == 2
    assert store.unreserve(launch.claim, QUEUE, keep=[], ended=[b"a"]) == 2
    assert handed(look, store) == [1]


@pytest.mark.parametrize("way", ["expired", "stopped, and given back"])
def test_one_that_was_not_begun_is_not_charged_if_its_end_drops_its_record(
    store: RedisStore, look: Looking, person: MessageActions, way: str
) -> None:
    store.enqueue([message("large", payload=b'{"x":"%b"}' % (b"x" * 2000), rate_key="k", rate=TWO_AN_HOUR)])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    assert handed(look, store) == [1]
    if way == "expired":
        launch.settle(expire(reservation))
    else:
        person.stop(QUEUE, "large")
        store.unreserve(launch.claim, QUEUE, keep=[])
    assert look.hash("records") == {}
    assert handed(look, store) == [0]


@pytest.mark.parametrize("settle", [retry, die])
def test_each_attempt_is_charged(
    store: RedisStore, look: Looking, person: MessageActions, settle: Callable[[Reservation], Settlement]
) -> None:
    store.enqueue(rated("a"))
    launch = Launch(store)
    for _ in range(2):
        (reservation,) = launch.reserve(9)
        launch.settle(settle(reservation))
        promoted(store, launch)
        person.redrive(QUEUE, look.ranked("dead_letters"))
    assert launch.reserve(9) == []
    assert look.ranked("schedule") == ["a"]


def test_the_orphans_of_a_launch_that_died_stay_charged(store: RedisStore, look: Looking) -> None:
    store.enqueue(rated("a", "b"))
    Launch(store, fence=1).reserve(9)
    successor = Launch(store, fence=2)
    assert successor.recovered == 2
    assert successor.reserve(9) == []
    assert look.ranked("schedule") == ["a", "b"]


def test_the_place_of_one_that_waits_for_its_rate_goes_to_the_next_in_line(store: RedisStore, look: Looking) -> None:
    store.enqueue([*rated("a", "b", rate="1/1h", concurrency="c"), message("x", concurrency="c")])
    launch = Launch(store)
    (first,) = launch.reserve(9)
    assert look.lined() == ["x"]
    assert names(launch.step(completed=[first], wanted=9).reserved) == ["x"]
    assert look.lined() == []
    assert look.ranked("schedule") == ["b"]


def test_one_in_line_that_has_a_place_but_no_rate_leaves_the_line_to_the_next(store: RedisStore, look: Looking) -> None:
    holding = message("h", concurrency="c")
    store.enqueue([holding, *rated("a", rate="1/1h", concurrency="c"), message("x", concurrency="c")])
    launch = Launch(store)
    (first,) = launch.reserve(9)
    assert look.lined() == ["a", "x"]
    store.enqueue(rated("b", rate="1/1h"))
    launch.reserve(1)
    launch.complete(first)
    assert launch.reserve(1) == []
    assert names(launch.reserve(1)) == ["x"]
    assert (look.lined(), look.ranked("schedule")) == ([], ["a"])
    assert look.hash("counters").get("left over", b"0") == b"0"


@pytest.mark.parametrize("act", ["cancel", "reschedule"])
def test_what_a_person_cancels_or_reschedules_waits_for_its_rate_no_more(
    store: RedisStore, inspector: Inspector, person: MessageActions, act: str
) -> None:
    store.enqueue(rated("a", "b", "c"))
    Launch(store).reserve(9)
    if act == "cancel":
        person.cancel(QUEUE, "c")
    else:
        person.change(QUEUE, "c", due=server_ms(store.wire) + HOUR)
    assert not inspector.message("c").row.booked


def test_ledgers_that_do_not_count_any_more_are_forgotten(store: RedisStore, look: Looking) -> None:
    launch = Launch(store)
    for n in range(150):
        store.enqueue(rated(f"m{n}", key=f"k{n}", rate="1/1h"))
        launch.complete(*launch.reserve())
        age(store, HOUR // 10)
    assert store.wire.command("HLEN", look.key("rates")) <= 40


def corrupt(store: RedisStore, look: Looking) -> None:
    for field in store.wire.command("HKEYS", look.key("rates")):
        store.wire.command("HSET", look.key("rates"), field, "?")


@pytest.mark.parametrize("spoil", [lambda store, _: age(store, -9 * HOUR), corrupt])
def test_with_a_clock_set_back_or_a_corrupt_ledger_a_rate_begins_anew(
    store: RedisStore, look: Looking, spoil: Callable[[RedisStore, Looking], None]
) -> None:
    launch = Launch(store)
    store.enqueue(rated("a", "b"))
    assert len(launch.reserve(9)) == 2
    spoil(store, look)
    store.enqueue(rated("c"))
    assert names(launch.reserve(9)) == ["c"]


def test_messages_that_wait_for_a_rate_are_offered_again_in_their_order_once_the_clock_was_set_back(
    store: RedisStore, look: Looking
) -> None:
    launch, waiting = Launch(store), ["y", "z", "c", "d"]
    store.enqueue(rated("a", "b", *waiting))
    store.enqueue([message("later", delay=90 * HOUR)])
    assert len(launch.reserve(9)) == 2
    reached = server_ms(store.wire) + 50 * HOUR
    age(store, -60 * HOUR)
    store.maintenance.book_anew(QUEUE, reached)
    assert names(launch.reserve(9)) == waiting[:2]
    assert look.ranked("schedule") == [*waiting[2:], "later"]
    left = (look.score("schedule", "d") or 0) / 1000 - server_ms(store.wire)
    assert 0 < left < 9 * HOUR


def test_messages_without_a_rate_read_and_write_nothing_of_rates(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a"), message("b", priority=1), message("c", concurrency="c")])
    launch = Launch(store)
    store.wire.command("SET", look.key("rates"), "of another type: reading it fails")
    launch.complete(*launch.reserve(9))
    assert sorted(look.listed("completed")) == ["a", "b", "c"]
