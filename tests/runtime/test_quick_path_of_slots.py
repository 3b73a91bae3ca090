"""Slots that take reserved messages by themselves: what these are, when they may, and what is left to the launch."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.window import StopReason
from pollconsumer.runtime.handling.executors.executor import Attempt, Handled
from pollconsumer.runtime.handling.executors.threads import ThreadExecutor
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.outcome import DONE
from pollconsumer.runtime.launch.launch_end import LaunchEnd
from pollconsumer.runtime.launch.shared_memory.flight import Flight
from pollconsumer.runtime.launch.shared_memory.launch_progress import LaunchProgress
from pollconsumer.runtime.session.passes.slot_relay import SlotRelay
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Lot, Reservation
from tests.runtime.virtual import TICK, Arrival, Settings, VirtualLaunch, whole_ticks
from tests.site import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MARGIN = 2.0
BRIEF = 0.5


def reservation(n: int, handler: str = "plain", payload: bytes = b"{}", crashes: int = 0) -> Reservation:
    row = bytearray(rows.HANDLER)
    row[rows.CRASHES] = crashes
    return Reservation.of(Lot("mail", bytes(row), handler, b"", 0, 0, 0.0), b"m%d" % n, payload)


class Place:
    """A launch with all slots in use, and what it has reserved."""

    def __init__(self, *reserved: Reservation) -> None:
        self.now, self.trusted, self.stopped, self.woken = 0.0, True, False, 0
        self.progress = LaunchProgress()
        self.reserved = deque(reserved)
        launch: Any = SimpleNamespace(
            progress=self.progress,
            clock=lambda: self.now,
            end=LaunchEnd(self.progress.flight, stop_before=60.0, grace=10.0, handler_limit=300.0),
            may_begin=lambda end: self.trusted and not self.stopped and end < 60.0,
        )
        executor: Any = SimpleNamespace(inline=None, wake=self._wake, relay=lambda _: None)
        exchange: Any = SimpleNamespace(reserved=self.reserved, passing=Lock())
        handlers = {
            "plain": Handler("plain", lambda *_: None),
            "context": Handler("context", lambda *_: None, takes_context=True),
            "isolated": Handler("isolated", lambda *_: None, isolated=True),
            "once": Handler("once", lambda *_: None, at_most_once=True),
            "paused": Handler("paused", lambda *_: None),
        }
        self.progress.stops.serve({}, ["paused"])
        self.ahead = SlotRelay(launch, handlers, executor, exchange, brief=BRIEF)
        self.ahead.open(MARGIN, few=1)

    def _wake(self) -> None:
        self.woken += 1

    def take(self, lasted: float = 0.0, **damages: bool) -> str | None:
        """The message that a slot takes whose last one took so many seconds."""
        following = self.ahead.take(self._ended(lasted, **damages))
        return None if following is None else following.reservation.name

    def seen(self, lasted: float = 0.0, **damages: bool) -> None:
        """The launch has collected such a one."""
        self.ahead.seen(self._ended(lasted, **damages))

    def _ended(self, lasted: float, **damages: bool) -> Handled:
        attempt: Any = None
        return Handled(attempt, self.now - lasted, self.now, DONE, **damages)

    def in_flight(self) -> set[bytes]:
        return self.progress.flight.ids("mail")


def test_a_slot_takes_what_is_reserved_in_its_order_and_each_is_in_flight_then() -> None:
    place = Place(reservation(0), reservation(1))
    assert [place.take(), place.take(), place.take()] == ["m0", "m1", None]
    assert place.in_flight() == {b"m0", b"m1"}


def test_the_launch_is_woken_once_few_are_left() -> None:
    place = Place(*map(reservation, range(4)))
    woken = []
    while place.take() is not None:
        woken.append(place.woken)
    assert woken == [0, 0, 1, 1]


def without_lease(place: Place) -> None:
    place.trusted = False


def interrupted(place: Place) -> None:
    place.stopped = True


def within_its_margin(place: Place) -> None:
    place.now = 60.0 - MARGIN


def closed(place: Place) -> None:
    place.ahead.close()


def with_a_full_table_of_messages_in_flight(place: Place) -> None:
    for n in range(Flight.MOST):
        place.progress.flight.enter(reservation(1000 + n), last=False)


@pytest.mark.parametrize(
    "becomes", [without_lease, interrupted, within_its_margin, closed, with_a_full_table_of_messages_in_flight]
)
def test_no_slot_takes_a_message_of_a_launch_that_is(becomes: Callable[[Place], None]) -> None:
    place = Place(reservation(0))
    becomes(place)
    assert place.take() is None
    assert [each.name for each in place.reserved] == ["m0"]
    assert b"m0" not in place.in_flight()


@pytest.mark.parametrize(
    "unusual",
    [
        reservation(0, "unknown"),
        reservation(0, "context"),
        reservation(0, "isolated"),
        reservation(0, "once"),
        reservation(0, "paused"),
        reservation(0, payload=b"["),
        reservation(0, crashes=1),
    ],
)
def test_anything_unusual_is_left_to_the_launch_and_what_follows_it_too(unusual: Reservation) -> None:
    place = Place(unusual, reservation(1))
    assert [place.take(), place.take()] == [None, None]
    assert [each.name for each in place.reserved] == ["m0", "m1"]
    assert place.in_flight() == set()


@pytest.mark.parametrize("ends", [{"lasted": 2 * BRIEF}, {"leaking": True}])
def test_after_a_message_that_was_long_or_leaked_none_is_taken_until_the_launch_has_seen_that(
    ends: dict[str, Any],
) -> None:
    place = Place(reservation(0), reservation(1), reservation(2))
    assert place.take(lasted=BRIEF) == "m0"
    assert place.take(**ends) is None
    place.ahead.open(MARGIN, few=0)
    assert place.take() is None
    place.seen(lasted=BRIEF)
    place.ahead.open(MARGIN, few=0)
    assert place.take() is None
    place.seen(**ends)
    assert place.take() is None
    place.ahead.open(MARGIN, few=0)
    assert place.take() == "m1"


def test_a_long_message_that_ended_while_nothing_was_reserved_is_not_forgotten() -> None:
    place = Place()
    place.ahead.close()
    assert place.take(lasted=2 * BRIEF) is None
    place.reserved.append(reservation(0))
    place.ahead.open(MARGIN, few=0)
    assert place.take() is None


@pytest.fixture
def exact() -> Iterator[None]:
    with whole_ticks():
        yield


@pytest.mark.usefixtures("exact")
def test_brief_messages_in_several_slots_are_reserved_and_settled_several_at_a_time() -> None:
    script = [Arrival(0.0, (8 + n % 5) * TICK) for n in range(200)]
    launch = VirtualLaunch(Settings(60.0, 1.0, TICK, 1.0, min_margin=5.0, slots=8, until_empty=True), script)
    steps, step = [], launch.store.step

    def counted(*arguments: Any, **options: Any) -> Any:
        steps.append(arguments[1][0].completed)
        return step(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch.store, "step", counted)
        assert launch.consumer.run() is StopReason.EMPTY
    assert [n for n, _, _ in launch.started] == list(range(200))
    assert sum(steps) == 200
    assert len(steps) < 100
    free = sorted(at + script[n].duration for n, at, _ in launch.started)
    assert [at for _, at, _ in launch.started[8:]] == free[:-8], "a slot has waited"


@pytest.mark.usefixtures("exact")
@given(
    st.integers(2, 8), st.lists(st.integers(0, 40), min_size=1, max_size=80), st.integers(1, 300), st.integers(0, 60)
)
def test_no_message_begins_within_the_margin_or_is_lost(
    slots: int, durations: list[int], window: int, margin: int
) -> None:
    script = [Arrival(0.0, duration * TICK) for duration in durations]
    launch = VirtualLaunch(
        Settings(window * TICK, TICK, TICK, 1.0, min_margin=margin * TICK, slots=slots, until_empty=True), script
    )
    launch.consumer.run()
    assert all(at + least < window * TICK for _, at, least in launch.started)
    kinds = [kind for kind, _ in launch.store.settled.values()]
    assert launch.store.settled.keys() == launch.store.reserved
    assert kinds.count("completed") == len(launch.started)


def sync_handler(run: Callable[[], None]) -> Handler:
    return Handler("plain", lambda *_: run())


def async_handler(run: Callable[[], None]) -> Handler:
    async def begin() -> None:
        await asyncio.sleep(0)
        run()

    return Handler("plain", lambda *_: begin(), asynchronous=True)


@pytest.mark.parametrize("kinds", ["ss", "aa", "sa"])
def test_a_slot_goes_on_with_what_it_is_given_and_wakes_the_launch_once_it_is_free(kinds: str) -> None:
    executor, names, given_to = ThreadExecutor(2), list[str](), list[str]()
    of_kind = {"s": sync_handler, "a": async_handler}
    following = [
        Attempt(reservation(n), of_kind[kinds[n % 2]](lambda: names.append(threading.current_thread().name)), {})
        for n in range(6)
    ]

    def take(_: Handled) -> Attempt | None:
        given_to.append(threading.current_thread().name)
        return following.pop(0) if following else None

    executor.relay(take)
    executor.start(following.pop(0))
    done, until = list[Handled](), time.monotonic() + PATIENCE
    while executor.busy and time.monotonic() < until:
        executor.wait(1.0)
        done += executor.finished()
    assert [each.attempt.reservation.name for each in done] == [f"m{n}" for n in range(6)]
    assert given_to == names
    assert executor.busy == 0
    executor.close()


def test_a_wait_ends_when_it_is_told_to_though_no_slot_is_free() -> None:
    executor = ThreadExecutor(1)
    executor.wake()
    executor.wake()
    began = time.monotonic()
    executor.wait(PATIENCE)
    assert time.monotonic() - began < PATIENCE
    assert executor.finished() == []
    executor.close()


def test_a_slot_whose_message_closed_the_bell_still_wakes_the_launch() -> None:
    executor = ThreadExecutor(1)

    def close() -> None:
        os.close(executor._ring.number)  # noqa: SLF001  what a daemonizing handler does to each

    executor.start(Attempt(reservation(0), sync_handler(close), {}))
    until = time.monotonic() + PATIENCE
    while not (done := executor.finished()) and time.monotonic() < until:
        executor.wait(1.0)
    assert len(done) == 1
    executor.start(Attempt(reservation(1), sync_handler(lambda: None), {}))
    while not (later := executor.finished()) and time.monotonic() < until:
        executor.wait(1.0)
    assert done[0].closed or later[0].closed
    executor.close()
