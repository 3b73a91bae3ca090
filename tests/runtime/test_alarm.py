"""Each message of a handler with a timeout sets SIGALRM, which is as before afterwards."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import HandlerTimeout
from pollconsumer.core.retry import Stopped
from pollconsumer.runtime.handling.executors import Attempt, Executor
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.interrupts import limited
from pollconsumer.runtime.handling.shield import in_force
from tests.runtime.test_timeouts import LONG, spin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESERVATION: Any = None
SOON = 0.02
NOW = 1e-5


def rings() -> bool:
    return signal.getitimer(signal.ITIMER_REAL)[0] > 0


def nothing() -> None:
    pass


def handle(function: Callable[[], Any], seconds: float = LONG) -> BaseException | None:
    handler, executor = Handler("h", limited(lambda *_: function(), seconds), timeout=seconds), Executor()
    executor.start(Attempt(RESERVATION, handler, {}))
    executor.close()
    return executor.finished()[0].outcome.error


def stop() -> None:
    """Ask for the end of what this thread handles."""
    executor = Executor()
    executor.stop(RESERVATION, SOON, lambda: True)
    executor.close()


@pytest.fixture(autouse=True)
def _the_alarm_is_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getsignal(signal.SIGALRM) is before
    assert not rings()
    assert in_force == {}


@pytest.mark.parametrize("seconds", [NOW, SOON])
def test_a_shorter_timeout_than_those_before_holds(seconds: float) -> None:
    for _ in range(3):
        handle(nothing)
        assert isinstance(handle(spin, seconds), HandlerTimeout)


def test_an_alarm_that_rings_while_it_is_set_is_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def ring_at_once(_which: int, seconds: float) -> tuple[float, float]:
        if seconds:
            monkeypatch.undo()
            signal.raise_signal(signal.SIGALRM)
        return 0.0, 0.0

    monkeypatch.setattr(signal, "setitimer", ring_at_once)
    assert isinstance(handle(spin, SOON), HandlerTimeout)


def ring_no_more() -> None:
    signal.alarm(0)


def ring_much_later() -> None:
    signal.setitimer(signal.ITIMER_REAL, 10 * LONG)


def ring_earlier_once() -> None:
    signal.setitimer(signal.ITIMER_REAL, SOON / 2)


def ignore() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)


def call_me() -> None:
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.alarm(1)


def alarm_of_its_own() -> None:
    """As a library with timeouts of its own does: it restores the handler, and clears the timer."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, LONG)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "change", [ring_no_more, ring_much_later, ring_earlier_once, ignore, call_me, alarm_of_its_own]
)
def test_a_handler_that_changes_the_alarm_takes_the_timeout_from_no_other(change: Callable[[], None]) -> None:
    limit = 0.4
    for function in (nothing, change, nothing):
        assert handle(function, limit) is None
    assert isinstance(handle(spin, limit), HandlerTimeout)


def test_an_alarm_that_a_handler_has_set_does_not_ring_after_it() -> None:
    rung: list[int] = []

    def set_one() -> None:
        signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
        signal.setitimer(signal.ITIMER_REAL, SOON, SOON)

    handle(set_one)
    spin(3 * SOON)
    handle(lambda: spin(3 * SOON))
    assert rung == []


def test_what_a_module_has_set_is_restored_though_a_handler_changed_it() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    signal.setitimer(signal.ITIMER_REAL, LONG, 7.0)
    try:
        for change in (nothing, call_me, ring_no_more, lambda: spin(SOON)):
            handle(change)
        left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
        assert 0 < left <= LONG - SOON
        assert interval == 7.0
        signal.raise_signal(signal.SIGALRM)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_request_to_stop_ends_the_handler_in_hand_and_no_other() -> None:
    handle(nothing)

    def stopped() -> None:
        stop()
        spin()

    assert isinstance(handle(stopped, 10 * LONG), Stopped)
    assert handle(lambda: spin(3 * SOON)) is None
    assert handle(stop) is None
    assert handle(lambda: spin(3 * SOON)) is None


def test_a_fork_in_a_handler_takes_no_timeout_from_the_messages_after_it() -> None:
    statuses: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            return  # and is ended as a stray
        statuses.append(os.waitpid(child, 0)[1])

    handle(fork)
    assert statuses == [0]
    assert isinstance(handle(spin, SOON), HandlerTimeout)
