"""A heartbeat sees which messages are in flight for long, and the store is told of these alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.coverage import WorkBeyond
from pollconsumer.core.window import StopReason
from pollconsumer.runtime.launch.board import LaunchProgress
from pollconsumer.runtime.launch.heartbeat import LOOK_EVERY, LongRunningWatch, Parent, keep
from pollconsumer.runtime.launch.launch_end import LaunchEnd
from pollconsumer.store.client.patience import Clocks
from pollconsumer.store.leases import RENEW_EVERY, TTL, Group, Leases
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.records.reservations import Claim, CommonFields, Reservation
from tests.conftest import NAMESPACE
from tests.store.acting import QUEUE, Launch, message, release

if TYPE_CHECKING:
    from pollconsumer.store.queues.redis_store import RedisStore


def reservation(name: str) -> Reservation:
    return Reservation(CommonFields(QUEUE, bytes(62), "handler", b"", 0, 0, 0.0), name.encode(), b"{}")


def begin(progress: LaunchProgress, reservation: Reservation) -> None:
    progress.flight.enter(reservation, last=False, began=1.0, ends_by=61.0)


def test_only_what_is_in_hand_at_two_looks_is_told_once() -> None:
    launch = LaunchProgress()
    watch = LongRunningWatch(launch.flight, stop_before=100.0)
    held = {name: reservation(name) for name in "abc"}
    begin(launch, held["a"])
    assert not watch.look(1.0, 1.0)
    begin(launch, held["b"])
    assert watch.look(1.4, 1.4)
    assert watch.long_running == [("handler", QUEUE, "a", 1.0, 61.0)]
    launch.flight.end(held["b"])
    begin(launch, held["c"])
    assert not watch.look(1.8, 1.8)
    launch.flight.end(held["a"])
    assert watch.look(2.2, 2.2)
    assert watch.long_running == [("handler", QUEUE, "c", 1.8, 61.0)]


def test_a_message_is_told_of_once_more_when_the_window_is_over_and_none_where_none_is_in_hand() -> None:
    launch = LaunchProgress()
    watch, held = LongRunningWatch(launch.flight, stop_before=2.0), reservation("a")
    begin(launch, held)
    assert [watch.look(now + 9, now) for now in (1.2, 1.6, 2.0, 2.4, 2.8)] == [False, True, False, True, False]
    assert watch.beyond
    assert watch.long_running == [("handler", QUEUE, "a", 10.2, 70.0)]  # on the boot clock
    launch.flight.end(held)
    assert not watch.look(12.2, 3.2)
    idle = LongRunningWatch(LaunchProgress().flight, stop_before=2.0)
    assert [idle.look(now, now) for now in (1.6, 2.4)] == [False, False]


FACTS = {"launch_id": "one", "role": "consumer", "queues": (QUEUE,), "host": "host", "pid": 1}


class Watched(Clocks, Parent):
    """A launch whose heartbeat's clocks go on as it waits, and that ends after some seconds."""

    def __init__(self, lasts: float) -> None:
        self.passed, self._lasts = 0.0, lasts

    def ends_within(self, seconds: float) -> bool:
        self.passed += seconds
        return self.passed > self._lasts

    def is_suspended(self) -> bool:
        return False

    def call(self) -> None: ...

    def kill(self) -> None:
        self.killed = True

    def monotonic(self) -> float:
        return self.passed

    boot_time = monotonic


def test_a_message_that_takes_long_is_listed_as_started_within_a_second_and_one_reserved_ahead_is_not(
    store: RedisStore,
) -> None:
    leases, progress, launch = Leases(store.wire, NAMESPACE), LaunchProgress(), Watched(1.0)
    acquired = leases.acquire(Group("consumer", (QUEUE,), 1), "one", "{}", "{}")
    assert isinstance(acquired, Claim)
    progress.facts = FACTS
    store.wire.command("HSET", f"{{{NAMESPACE}}}:lease:consumer:{QUEUE}:0", "holder", progress.description())
    store.enqueue([message("slow"), message("ahead")])
    first, _ = Launch(store, int(acquired.fence)).reserve(2)
    begin(progress, first)
    keep(launch, progress, leases, acquired, LaunchEnd(progress.flight, 50.0, 10.0), launch, print)
    found = {
        each.id: each.row.timestamps.started_at for each in Inspector(store.wire, NAMESPACE).messages(None, QUEUE, 9)
    }
    assert found == {"slow": acquired.at, "ahead": None}
    assert launch.passed <= 1.0 + LOOK_EVERY


def test_a_launch_beyond_its_window_says_what_it_works_on_and_until_when_at_most(store: RedisStore) -> None:
    leases, progress, launch = Leases(store.wire, NAMESPACE), LaunchProgress(), Watched(3.0)
    progress.facts = FACTS
    acquired = leases.acquire(Group("consumer", (QUEUE,), 1), "one", progress.description(), progress.entry(None, 0.0))
    assert isinstance(acquired, Claim)
    begin(progress, reservation("slow"))
    inspector, found = Inspector(store.wire, NAMESPACE), []
    for stop_before in (50.0, 2.0):  # within the window; beyond it
        launch.passed = 0.0
        keep(launch, progress, leases, acquired, LaunchEnd(progress.flight, stop_before, 10.0), launch, print)
        ((lease,), (entry,)) = inspector.leases(), inspector.launches(9)
        assert lease["working_on"] == entry["working_on"]
        found.append(entry["working_on"])
    assert found == [[], [WorkBeyond("handler", QUEUE, "slow", acquired.at, acquired.at + 61_000)]]
    progress.end(StopReason.DIED, -1)
    leases.release(acquired, progress.entry(acquired, 3.0))
    assert [each["working_on"] for each in inspector.launches(9)] == [[]]


def test_of_the_reserved_those_are_counted_as_started_that_a_launch_named_and_still_has(store: RedisStore) -> None:
    leases, progress = Leases(store.wire, NAMESPACE), LaunchProgress()
    progress.facts = FACTS
    acquired = leases.acquire(Group("consumer", (QUEUE,), 1), "one", progress.description(), "{}")
    assert isinstance(acquired, Claim)
    launch = Launch(store, int(acquired.fence))
    store.enqueue([message(name) for name in ("a", "b", "released", "ahead", "c")])
    a, b, released, _ = launch.reserve(4)
    named = [("handler", QUEUE, each.id.decode(), 0.0, 0.0) for each in (a, b, released)]
    named += [("handler", "other", "c", 0.0, 0.0), ("handler", QUEUE, "?", 0.0, 0.0)]
    entry = progress.entry(acquired, 0.0, in_flight=named)
    assert leases.renew(acquired, entry)
    launch.complete(a)
    launch.settle(release(released))
    counts = Inspector(store.wire, NAMESPACE).counts(QUEUE)
    assert (counts.reserved, counts.started) == (2, 1)
    assert [each.started for each in Inspector(store.wire, NAMESPACE).overview().queues] == [1]


@pytest.mark.parametrize(("stop_before", "prolonged"), [(0.5, True), (50.0, False)])
@pytest.mark.parametrize("is_there", [True, False])
def test_beyond_its_window_a_launch_on_demand_stays_there_for_producers_as_its_lease_does(
    store: RedisStore, stop_before: float, *, prolonged: bool, is_there: bool
) -> None:
    leases, progress, launch = Leases(store.wire, NAMESPACE), LaunchProgress(), Watched(2 * RENEW_EVERY + 1.0)
    acquired = leases.acquire(Group("consumer", (QUEUE,), 1), "one", "{}", "{}")
    assert isinstance(acquired, Claim)
    key = store.keys.queue(QUEUE, "presence")
    if is_there:
        store.wire.command("SET", key, 1, "PX", 900)
    progress.facts = FACTS
    keep(launch, progress, leases, acquired, LaunchEnd(progress.flight, stop_before, 10.0), launch, print)
    left = store.wire.command("PTTL", key)
    if is_there:
        assert 900 < left <= TTL * 1000 if prolonged else left <= 900
    else:
        assert left == -2


@pytest.mark.parametrize(("reason", "reported"), [(StopReason.STORE_UNREACHABLE, 1), (None, 0)])
def test_a_launch_that_is_killed_in_its_exit_is_reported(
    store: RedisStore, reason: StopReason | None, reported: int
) -> None:
    leases, progress, launch, lines = Leases(store.wire, NAMESPACE), LaunchProgress(), Watched(30.0), list[str]()
    progress.facts = FACTS
    acquired = leases.acquire(Group("consumer", (QUEUE,), 1), "one", progress.description(), progress.entry(None, 0.0))
    assert isinstance(acquired, Claim)
    if reason is not None:
        progress.end(reason, 69)
    keep(launch, progress, leases, acquired, LaunchEnd(progress.flight, 2.0, 10.0), launch, lines.append)
    assert launch.killed
    assert [line for line in lines if "watchdog: launch killed, it had ended" in line] == lines
    assert len(lines) == reported
