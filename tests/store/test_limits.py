"""Limits of a queue: most messages in flight, and most handed out in a period."""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING

import pytest

from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.records.steps import Limits
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, message, names, release, retry
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from tests.store.servers import Server

TWO = Limits(max_in_flight=2)
THREE_AN_HOUR = Limits(quota=3, period_ms=HOUR)


def fill(store: RedisStore, count: int) -> None:
    store.enqueue([message(f"m{n:02}") for n in range(count)])


def age(store: RedisStore, look: Looking, ms: int) -> None:
    """Have what was handed out of an hourly quota have been handed out that much earlier."""
    slices = ms // (HOUR // 60)
    for field, count in look.hash("handed_out").items():
        store.wire.command("HDEL", look.key("handed_out"), field)
        store.wire.command("HINCRBY", look.key("handed_out"), int(field) - slices, int(count))


def test_no_more_are_in_flight_than_the_limit(store: RedisStore, look: Looking) -> None:
    fill(store, 5)
    launch = Launch(store)
    first = launch.step(wanted=9, limits=TWO)
    assert names(first.reserved) == ["m00", "m01"]
    assert launch.step(wanted=9, limits=TWO).reserved == []
    second = launch.step(completed=first.reserved[:1], wanted=9, limits=TWO)
    assert names(second.reserved) == ["m02"]
    assert len(look.ranked("in_flight")) == 2


def test_what_another_launch_has_in_flight_counts(store: RedisStore) -> None:
    fill(store, 5)
    one, other = Launch(store, fence=1, slot=0), Launch(store, fence=2, slot=1)
    assert len(one.step(wanted=1, limits=TWO).reserved) == 1
    assert len(other.step(wanted=9, limits=TWO).reserved) == 1


def test_only_an_end_tells_when_there_is_room_in_flight(store: RedisStore) -> None:
    fill(store, 5)
    launch = Launch(store)
    assert launch.step(wanted=9, limits=TWO).more_in == inf
    assert launch.step(wanted=9, limits=TWO).more_in == inf


@pytest.mark.parametrize("settle", [retry, release])
def test_every_end_of_an_attempt_makes_room_and_wakes(store: RedisStore, look: Looking, settle: object) -> None:
    assert callable(settle)
    fill(store, 5)
    launch = Launch(store)
    reserved = launch.step(wanted=9, limits=TWO).reserved
    look.take_marker()
    launch.step(settled=[settle(reserved[0])], limits=TWO)
    assert look.marker() == 1


def test_the_marker_stays_down_while_the_limit_keeps_everything_back(store: RedisStore, look: Looking) -> None:
    fill(store, 5)
    launch = Launch(store)
    launch.step(wanted=9, limits=TWO, wait=5.0)
    assert look.marker() == 0
    launch.step(wanted=9, limits=TWO)
    assert look.marker() == 0


def test_a_quota_hands_out_so_many_in_a_period(store: RedisStore) -> None:
    fill(store, 9)
    launch = Launch(store)
    assert len(launch.step(wanted=2, limits=THREE_AN_HOUR).reserved) == 2
    assert len(launch.step(wanted=9, limits=THREE_AN_HOUR).reserved) == 1
    assert launch.step(wanted=9, limits=THREE_AN_HOUR).reserved == []


def test_what_was_released_has_been_handed_out(store: RedisStore) -> None:
    fill(store, 9)
    launch = Launch(store)
    reserved = launch.step(wanted=3, limits=THREE_AN_HOUR).reserved
    assert launch.step(settled=map(release, reserved), wanted=3, limits=THREE_AN_HOUR).reserved == []


def test_who_uses_up_a_quota_is_told_when_there_is_more(store: RedisStore, look: Looking) -> None:
    fill(store, 9)
    launch = Launch(store)
    assert launch.step(wanted=2, limits=THREE_AN_HOUR).more_in == inf
    for _ in range(2):
        told = launch.step(wanted=1, limits=THREE_AN_HOUR).more_in
        assert told is not None
        assert 0 < told <= 3600 + 60
    age(store, look, HOUR // 2)
    told = launch.step(wanted=1, limits=THREE_AN_HOUR).more_in
    assert told is not None
    assert 1000 < told <= 1860


def test_a_quota_lasts_the_whole_of_its_period_and_no_longer_than_a_sixtieth_more(
    store: RedisStore, look: Looking
) -> None:
    fill(store, 9)
    launch = Launch(store)
    launch.step(wanted=3, limits=THREE_AN_HOUR)
    age(store, look, HOUR - 60_000)
    assert launch.step(wanted=9, limits=THREE_AN_HOUR).reserved == []
    age(store, look, 2 * 60_000)
    assert len(launch.step(wanted=9, limits=THREE_AN_HOUR).reserved) == 3


def test_no_span_as_long_as_the_period_sees_more_than_the_quota(store: RedisStore, server: Server) -> None:
    fill(store, 60)
    launch, limits, taken = Launch(store), Limits(quota=4, period_ms=60), list[int]()
    while len(taken) < 20:
        stepped = launch.step(wanted=3, limits=limits)
        taken += [r.reserved_at for r in stepped.reserved]
        if not stepped.reserved:
            assert stepped.more_in < inf
            server.pass_time(stepped.more_in / 3)
    assert all(later - earlier >= 60 for earlier, later in zip(taken, taken[4:], strict=False))


def test_another_period_or_a_clock_set_back_begins_anew(store: RedisStore, look: Looking) -> None:
    fill(store, 9)
    launch = Launch(store)
    launch.step(wanted=3, limits=THREE_AN_HOUR)
    assert len(launch.step(wanted=2, limits=Limits(quota=2, period_ms=1000)).reserved) == 2
    ahead = (server_ms(store.wire) + 100 * HOUR) // 60_000
    store.wire.command("HSET", look.key("handed_out"), ahead, 1000)
    assert len(launch.step(wanted=9, limits=THREE_AN_HOUR).reserved) == 3


def test_the_tally_of_a_quota_does_not_grow(store: RedisStore, look: Looking) -> None:
    launch = Launch(store)
    for n in range(150):
        store.enqueue([message(f"m{n}")])
        launch.complete(*launch.step(wanted=1, limits=Limits(quota=9, period_ms=HOUR)).reserved)
        age(store, look, 2 * 60_000)
    assert len(look.hash("handed_out")) <= 62


def test_the_marker_stays_down_while_a_quota_keeps_everything_back(store: RedisStore, look: Looking) -> None:
    fill(store, 9)
    launch = Launch(store)
    reserved = launch.step(wanted=3, limits=THREE_AN_HOUR, wait=5.0).reserved
    assert look.marker() == 0
    launch.step(completed=reserved, wanted=3, limits=THREE_AN_HOUR)
    assert look.marker() == 0


def test_both_limits_hold_at_once(store: RedisStore) -> None:
    fill(store, 9)
    launch, limits = Launch(store), Limits(2, 3, HOUR)
    first = launch.step(wanted=9, limits=limits)
    assert (len(first.reserved), first.more_in) == (2, inf)
    second = launch.step(completed=first.reserved, wanted=9, limits=limits)
    assert len(second.reserved) == 1
    assert second.more_in < inf


def test_a_paused_queue_hands_out_nothing_and_wakes_nobody(
    store: RedisStore, look: Looking, person: MessageActions
) -> None:
    fill(store, 3)
    launch = Launch(store)
    (first,) = launch.reserve()
    person.pause(QUEUE, paused=True)
    look.take_marker()
    assert launch.step(completed=[first], wanted=3).reserved == []
    assert look.marker() == 0
    person.pause(QUEUE, paused=False)
    assert look.marker() == 1
    assert len(launch.reserve(3)) == 2


def test_a_pause_ends_by_itself(store: RedisStore, person: MessageActions, server: Server) -> None:
    fill(store, 1)
    launch = Launch(store)
    person.pause(QUEUE, paused=True, lasts_ms=HOUR)
    assert launch.reserve() == []
    person.pause(QUEUE, paused=True, lasts_ms=50)
    until = time.monotonic() + 10
    while not (reserved := launch.reserve()) and time.monotonic() < until:
        server.pass_time(0.005)
    assert len(reserved) == 1


def test_the_last_pause_says_when_it_ends(store: RedisStore, person: MessageActions) -> None:
    inspector = Inspector(store.wire, NAMESPACE)

    def left() -> float | None:
        counts = inspector.counts(QUEUE)
        assert counts.paused
        return counts.resumes_in_seconds

    fill(store, 1)
    assert not inspector.counts(QUEUE).paused
    person.pause(QUEUE, paused=True)
    assert left() is None
    since = store.wire.command("GET", store.keys.queue(QUEUE, "paused"))
    for lasts_ms in (2 * HOUR, HOUR):
        person.pause(QUEUE, paused=True, lasts_ms=lasts_ms)
        assert lasts_ms - HOUR / 2 < (left() or 0) * 1000 <= lasts_ms
    person.pause(QUEUE, paused=True)
    assert left() is None
    assert store.wire.command("GET", store.keys.queue(QUEUE, "paused")) == since
    assert store.wire.command("PTTL", store.keys.queue(QUEUE, "paused")) == -1
    person.pause(QUEUE, paused=False)
    assert inspector.counts(QUEUE).resumes_in_seconds is None


@pytest.mark.parametrize("held_by", ["quota", "max_in_flight", "pause", "concurrency key"])
def test_a_step_tells_what_is_ready_and_held_back_from_what_is_not_there(
    store: RedisStore, person: MessageActions, held_by: str
) -> None:
    launch = Launch(store)
    assert not launch.step(wanted=9).held_back
    limits = {"quota": THREE_AN_HOUR, "max_in_flight": TWO}.get(held_by)
    key = "k" if held_by == "concurrency key" else ""
    store.enqueue([message(f"m{n}", concurrency=key) for n in range(4)])
    first = launch.step(wanted=9, limits=limits)
    assert not first.held_back
    if held_by == "pause":
        store.enqueue([message("m5")])
        person.pause(QUEUE, paused=True)
    assert launch.step(wanted=9, limits=limits).held_back
    assert not launch.step(completed=first.reserved, limits=limits).held_back
