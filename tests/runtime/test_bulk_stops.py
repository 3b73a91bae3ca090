"""When a call of a bulk handler stops: once all of its messages are to."""

from __future__ import annotations

import mmap
import sys
from types import SimpleNamespace
from typing import Any

from pollconsumer.runtime.launch.board import Flight, Stops
from pollconsumer.runtime.session.attempts import BulkAttempt, BulkCalls, MessageStopper
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import CommonFields, Reservation

COMMON = CommonFields("mail", rows.BLANK, "index", b"", 0, 0, 0.0)


class Calling:
    """A launch with a call of so many messages in flight."""

    def __init__(self, size: int) -> None:
        self.stops = Stops(mmap.mmap(-1, Stops.SIZE), 0)
        self.stopped: list[Reservation] = []
        self.messages = [Reservation(COMMON, b"%d" % n, b"{}") for n in range(size)]
        nothing: Any = None
        call = BulkAttempt(self.messages[0], *[nothing] * 3)
        call.attempts = [call._replace(reservation=each) for each in self.messages]
        calls = BulkCalls(nothing)
        calls.add(call)
        flight = SimpleNamespace(in_flight=lambda: self.messages, overdue=lambda _: [])
        launch: Any = SimpleNamespace(progress=SimpleNamespace(stops=self.stops, flight=flight), clock=lambda: 0.0)
        executor: Any = SimpleNamespace(stop=lambda each, *_: self.stopped.append(each))
        self.stopping = MessageStopper(launch, executor, nothing, ["mail"], calls)

    def ask(self, *messages: Reservation) -> None:
        self.stops.ask(*((each.queue, each.id) for each in messages))

    def interrupt(self) -> int:
        """Let it interrupt what is to stop. Returns how many functions were called."""
        calls = 0

        def count(_frame: object, what: str, _argument: object) -> None:
            nonlocal calls
            calls += what in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            self.stopping.interrupt()
        finally:
            sys.setprofile(before)
        return calls


def test_a_call_stops_once_when_all_of_its_messages_are_to() -> None:
    calling = Calling(3)
    first, *others = calling.messages
    calling.ask(*others)
    calling.interrupt()
    assert calling.stopped == []
    calling.ask(first)
    for _ in range(2):
        calling.interrupt()
    assert calling.stopped == [first]


def test_what_a_stop_costs_grows_no_faster_than_its_call() -> None:
    def costs(size: int) -> list[int]:
        calling = Calling(size)
        calling.ask(*calling.messages[1:])
        nearly_all = calling.interrupt()
        calling.ask(calling.messages[0])
        return [nearly_all, calling.interrupt()]

    for few, many in zip(costs(20), costs(200), strict=True):
        assert many < 15 * few


def test_requests_to_stop_all_messages_that_may_be_in_flight_are_kept() -> None:
    calling = Calling(Flight.MOST)
    for each in calling.messages:
        calling.ask(each)
    assert all(map(calling.stops.asked, calling.messages))
