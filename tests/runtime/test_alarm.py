"""In a pass of messages whose handlers have timeouts, SIGALRM stays set from one to the next, and each has its own."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import HandlerTimeout
from pollconsumer.core.retry import Stopped
from pollconsumer.runtime.handling.executors.inline import InlineExecutor
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.interrupts import alarm
from pollconsumer.runtime.handling.interrupts.timeouts import limited
from pollconsumer.runtime.handling.shield import in_force
from tests.runtime.test_timeouts import LONG, handle_on_a_thread, spin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOON = 0.02
NOW = 1e-5


def rings() -> bool:
    return signal.getitimer(signal.ITIMER_REAL)[0] > 0


def nothing() -> None:
    pass


class Pass:
    """``kinds``: the timeouts of its handlers."""

    def __init__(self, *kinds: float | None) -> None:
        self.executor = InlineExecutor()
        self.executor.stay([Handler("h", lambda *_: None, timeout=kind) for kind in kinds or (LONG,)])

    def handle(self, function: Callable[[], Any], seconds: float | None = LONG) -> BaseException | None:
        run = lambda *_: function()  # noqa: E731
        handler = Handler("h", run if seconds is None else limited(run, seconds), timeout=seconds)
        error = handler.handle({}).error
        self.executor.checked(error)
        return error

    def stop(self) -> None:
        reservation: Any = None
        self.executor.stop(reservation, SOON, lambda: True)


@pytest.fixture(autouse=True)
def _the_alarm_is_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getsignal(signal.SIGALRM) is before
    assert not rings()
    assert in_force == {}
    assert not alarm.staying


@pytest.fixture
def messages() -> Iterator[Pass]:
    messages = Pass()
    yield messages
    messages.executor.rest()
    messages.executor.close()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of the system, that set SIGALRM's handler or timer."""
    calls: list[str] = []

    def count(place: object, name: str, function: Callable[..., Any]) -> None:
        def counted(*arguments: Any) -> Any:
            calls.append(name.removeprefix("_set_"))
            return function(*arguments)

        monkeypatch.setattr(place, name, counted)

    count(alarm, "_set_handler", signal.signal)
    count(signal, "setitimer", signal.setitimer)
    return calls


def test_a_pass_sets_handler_and_timer_once_and_restores_them_once(calls: list[str]) -> None:
    messages = Pass()
    for _ in range(5):
        assert messages.handle(nothing) is None
    assert calls == ["handler", "setitimer"]
    messages.executor.rest()
    assert calls == ["handler", "setitimer", "setitimer", "handler"]


def test_outside_of_a_pass_each_message_restores_them(calls: list[str], messages: Pass) -> None:
    messages.handle(nothing)
    messages.executor.rest()
    calls.clear()
    for _ in range(2):
        messages.handle(nothing)
        assert not rings()
    assert calls == ["handler", "setitimer", "setitimer", "handler"] * 2


def test_the_next_pass_sets_them_again(messages: Pass) -> None:
    for _ in range(2):
        messages.handle(nothing)
        assert rings()
        messages.executor.rest()
        assert not rings()
        messages.executor.stay([Handler("h", lambda *_: None, timeout=LONG)])
    assert isinstance(messages.handle(spin, SOON), HandlerTimeout)


def test_a_pass_with_a_handler_without_a_timeout_leaves_it_the_alarm_signal_as_the_users_modules_set_it() -> None:
    messages, before = Pass(LONG, None), signal.getsignal(signal.SIGALRM)
    messages.handle(nothing)
    found: list[Any] = []
    messages.handle(lambda: found.append((signal.getsignal(signal.SIGALRM), rings())), None)
    messages.executor.rest()
    assert found == [(before, False)]


def test_the_timeout_of_each_message_counts_from_its_own_beginning(messages: Pass) -> None:
    limit = 0.6
    for _ in range(5):
        assert messages.handle(lambda: spin(0.25 * limit), limit) is None
    assert isinstance(messages.handle(spin, limit), HandlerTimeout)
    assert messages.handle(nothing, limit) is None


@pytest.mark.parametrize("seconds", [NOW, SOON])
def test_a_shorter_timeout_than_those_before_holds(messages: Pass, seconds: float) -> None:
    for _ in range(3):
        messages.handle(nothing)
        assert isinstance(messages.handle(spin, seconds), HandlerTimeout)


def test_an_alarm_that_rings_while_it_is_set_is_set_again(messages: Pass, monkeypatch: pytest.MonkeyPatch) -> None:
    def ring_at_once(*_: Any) -> tuple[float, float]:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGALRM)
        return 0.0, 0.0

    monkeypatch.setattr(signal, "setitimer", ring_at_once)
    assert isinstance(messages.handle(spin, SOON), HandlerTimeout)


def test_an_alarm_between_two_messages_harms_nothing_and_the_next_one_is_stopped_in_time(messages: Pass) -> None:
    messages.handle(nothing, SOON)
    spin(3 * SOON)
    assert not rings()
    assert isinstance(messages.handle(spin, SOON), HandlerTimeout)


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
def test_a_handler_that_changes_the_alarm_takes_the_timeout_from_no_other(
    messages: Pass, change: Callable[[], None]
) -> None:
    limit = 0.4
    for function in (nothing, change, nothing):
        assert messages.handle(function, limit) is None
    assert isinstance(messages.handle(spin, limit), HandlerTimeout)


def test_an_alarm_that_a_handler_has_set_does_not_ring_after_it(messages: Pass) -> None:
    rung: list[int] = []

    def set_one() -> None:
        signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
        signal.setitimer(signal.ITIMER_REAL, SOON, SOON)

    messages.handle(set_one)
    spin(3 * SOON)
    messages.handle(lambda: spin(3 * SOON))
    assert rung == []


def test_what_a_module_has_set_is_restored_after_a_pass_though_a_handler_changed_it(messages: Pass) -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    signal.setitimer(signal.ITIMER_REAL, LONG, 7.0)
    try:
        for change in (nothing, call_me, ring_no_more, lambda: spin(SOON)):
            messages.handle(change)
        messages.executor.rest()
        left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
        assert 0 < left <= LONG - SOON
        assert interval == 7.0
        signal.raise_signal(signal.SIGALRM)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_request_to_stop_ends_the_handler_in_hand_and_no_other(messages: Pass) -> None:
    messages.handle(nothing)

    def stopped() -> None:
        messages.stop()
        spin()

    assert isinstance(messages.handle(stopped, 10 * LONG), Stopped)
    assert messages.handle(lambda: spin(3 * SOON)) is None
    assert messages.handle(messages.stop) is None
    assert messages.handle(lambda: spin(3 * SOON)) is None


def test_a_fork_in_a_handler_takes_no_timeout_from_the_messages_after_it(messages: Pass) -> None:
    statuses: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            return  # and is ended as a stray
        statuses.append(os.waitpid(child, 0)[1])

    messages.handle(fork)
    assert statuses == [0]
    assert isinstance(messages.handle(spin, SOON), HandlerTimeout)


@pytest.mark.parametrize("in_a_pass", [True, False])
def test_a_pass_within_a_handler_leaves_its_timeout(messages: Pass, in_a_pass: bool) -> None:
    if not in_a_pass:
        messages.executor.rest()

    def drain() -> None:
        before = dict(in_force)
        inner = Pass()
        assert isinstance(inner.handle(spin, SOON), HandlerTimeout)
        inner.executor.rest()
        inner.executor.close()
        assert in_force == before
        spin()

    assert isinstance(messages.handle(drain, 5 * SOON), HandlerTimeout)


def test_in_other_threads_timeouts_are_as_outside_of_passes(messages: Pass) -> None:
    messages.handle(nothing)
    assert isinstance(handle_on_a_thread(spin).error, HandlerTimeout)
    errors: list[BaseException | None] = []

    def drain() -> None:
        other = Pass()
        errors.append(other.handle(spin, SOON))
        other.executor.rest()
        other.executor.close()

    thread = threading.Thread(target=drain)
    thread.start()
    thread.join()
    assert isinstance(errors[0], HandlerTimeout)
    assert rings()
