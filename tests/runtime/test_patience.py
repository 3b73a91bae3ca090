"""How long a launch bears with a server that says nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pollconsumer.core.errors import StoreUnreachable
from pollconsumer.core.events import Event, StoreAwaited
from pollconsumer.runtime.launch.board import LaunchProgress
from pollconsumer.runtime.launch.launch_end import LEAST_FOR_ANSWER, LaunchEnd, WindowPatience
from pollconsumer.store.client.patience import COMMAND_TIMEOUT, SYSTEM_CLOCKS, Budget, Clocks, Patience
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.records.reservations import CommonFields, Reservation
from tests.store.relay import answering


def patience(left: float, grace: float) -> WindowPatience:
    now = time.monotonic()
    return WindowPatience(LaunchEnd(LaunchProgress().flight, now + left, grace), lambda: False, SYSTEM_CLOCKS)


def test_an_answer_may_take_its_time_while_the_window_is_open() -> None:
    assert patience(30, 3).for_one_answer() == COMMAND_TIMEOUT


def test_an_answer_may_take_what_is_left_after_the_window_and_no_more() -> None:
    assert 0.0 < patience(-1, 3).for_one_answer() <= 1.0
    assert patience(-1, 3).for_one_answer(blocking=9.0) <= 1.5
    assert patience(-4, 3).for_one_answer() == LEAST_FOR_ANSWER


class Clock(Clocks):
    """Nobody else uses it: it advances while its user sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    boot_time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_what_is_left_after_the_window_counts_from_its_end_whatever_pause_began_before() -> None:
    clock = Clock()
    patient = WindowPatience(LaunchEnd(LaunchProgress().flight, 3.0, 1.5), lambda: False, clock)
    while patient.left() > 0:
        patient.pause(0.7)
    assert clock.now == pytest.approx(3.5)


def test_a_launch_tells_once_of_a_store_that_has_been_away_for_three_seconds_and_until_when_it_asks() -> None:
    clock, told = Clock(), list[Event]()
    patient = WindowPatience(LaunchEnd(LaunchProgress().flight, 60.0, 10.0), lambda: False, clock, told.append)
    for _ in range(2):
        patient.missed("redis://a", "refused", first=True)
        patient.pause(2.5)
    assert told == []
    patient.missed("redis://a", "refused", first=True)
    for _ in range(4):
        patient.pause(1.0)
        patient.missed("redis://a", "timed out", first=False)
    assert told == [StoreAwaited("redis://a", "timed out", 3.0, 60.0 - 8.0 + 2.0)]


def test_a_call_tells_its_patience_of_each_answer_that_is_missing(tmp_path: Path) -> None:
    missed = list[tuple[str, bool]]()

    class Noting(Budget):
        def missed(self, address: str, reason: str, *, first: bool) -> None:  # noqa: ARG002  the protocol has it
            missed.append((address, first))

    clock, url = Clock(), f"unix://{tmp_path}/nowhere.sock"
    wire = Wire(url, lambda: Noting(0.1, clock))
    with pytest.raises(StoreUnreachable):
        wire.command("PING")
    assert missed[0] == (wire.address, True)
    assert len(missed) > 1
    assert not any(first for _, first in missed[1:])


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_outcome_of_a_handler_that_took_windows_is_worth_the_grace_after_its_end(interrupted: bool) -> None:
    clock, flight = Clock(), LaunchProgress().flight
    patient = WindowPatience(LaunchEnd(flight, 60.0, 10.0), lambda: interrupted, clock)
    clock.now = 30.0
    patient.left()  # a signal has come: the short time of the launch's end begins
    clock.now = 200.0
    message = Reservation(CommonFields("mail", bytes(62), "send", b"", 0, 0, 0.0), b"m", b"{}")
    flight.enter(message, last=False)
    flight.end(message, 200.0)
    while patient.left() > 0:
        patient.pause(0.7)
    assert clock.now == pytest.approx(209.5)


def test_a_connection_waits_for_an_answer_as_long_as_its_caller_can() -> None:
    waited: list[float] = []

    class Noting(Patience):
        def left(self) -> float:
            return 0.0

        def pause(self, seconds: float) -> None: ...

        def for_one_answer(self, blocking: float = 0.0) -> float:  # noqa: ARG002  the protocol has it
            return 1.5

    with answering(b"+PONG\r\n") as url:
        wire = Wire(url, Noting)
        wire.send([("PING",)])
        connection: Any = wire._connection  # noqa: SLF001  what is waited for shows nowhere else
        read = connection.read

        def note(timeout: float) -> object:
            waited.append(timeout)
            return read(timeout)

        connection.read = note
        assert wire.receive([("PING",)]) == [b"PONG"]
        wire.close()
    assert waited == [1.5]
