"""Handlers without a timeout are interrupted when a person asks for their end, and nothing else is."""

from __future__ import annotations

import signal
import sys
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.users_code import TimeIsUp
from pollconsumer.runtime.handling import interrupts
from pollconsumer.runtime.handling.executors import Attempt, ThreadExecutor
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.shield import Shield, in_force
from pollconsumer.store.records.reservations import CommonFields, Reservation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE = 30.0
SOON = 0.01


def spin(until: Callable[[], bool] = lambda: False) -> None:
    end = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < end
        time.sleep(0.001)


STORE: dict[str, Any] = {"__name__": "pollconsumer.store.client.wire"}
exec("def call(act): act()", STORE)
"""Frames of ours, beneath which nothing is raised."""


@pytest.fixture(autouse=True)
def _no_alarm_is_left() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert in_force == {}


class InFlight:
    """Ends the interruption once the message is no longer in flight."""

    def __init__(self) -> None:
        self.holds = True

    def handle(self, function: Callable[[], Any]) -> Any:
        def run(*_: object) -> None:
            assert interrupts.interrupt(SOON, lambda: self.holds)
            function()

        outcome = Handler("h", run).handle({})
        self.holds = False
        spin(lambda: not in_force)
        return outcome


def test_a_handler_is_interrupted_and_its_error_says_so() -> None:
    assert isinstance(InFlight().handle(spin).error, TimeIsUp)


def test_a_handler_that_ends_in_time_leaves_nothing_behind() -> None:
    assert InFlight().handle(lambda: None).error is None


def test_a_handler_that_swallows_it_is_interrupted_again() -> None:
    def stubborn() -> None:
        try:
            spin()
        except TimeIsUp:
            spin()

    assert isinstance(InFlight().handle(stubborn).error, TimeIsUp)


def in_a_shield(act: Callable[[], None]) -> None:
    with Shield():
        act()


@pytest.mark.parametrize("call", [STORE["call"], in_a_shield], ids=["store", "shield"])
def test_our_own_code_beneath_a_handler_is_not_interrupted(call: Callable[[Callable[[], None]], None]) -> None:
    ended: list[bool] = []

    def last() -> None:
        until = time.monotonic() + 5 * SOON
        spin(lambda: time.monotonic() > until)
        ended.append(True)

    def calls_and_goes_on() -> None:
        call(last)
        spin()

    assert isinstance(InFlight().handle(calls_and_goes_on).error, TimeIsUp)
    assert ended == [True]


def test_a_handler_that_waits_for_a_process_ends_by_itself() -> None:
    program: dict[str, Any] = {"__name__": "pollconsumer.runtime.children.command", "interrupt": interrupts.interrupt}
    exec("def run(*_): return armed.append(interrupt(0.01, lambda: True))", program)
    program["armed"] = armed = list[bool]()
    assert Handler("h", program["run"]).handle({}).error is None
    assert armed == [False]


def test_where_no_handler_is_under_way_nothing_is_armed() -> None:
    assert not interrupts.interrupt(SOON, lambda: True)


def test_a_handler_in_a_thread_is_interrupted_and_the_next_message_of_the_thread_is_not() -> None:
    executor, begun, ended = ThreadExecutor(1), threading.Event(), threading.Event()

    def run(payload: dict[str, Any], _: object) -> None:
        begun.set()
        spin(ended.is_set if payload else lambda: False)

    common = CommonFields("mail", bytes(62), "h", b"", 0, 0, 0.0)
    first, second = Reservation(common, b"1", b"{}"), Reservation(common, b"2", b"{}")
    outcomes = []
    for reservation, payload in ((first, {}), (second, {"waits": True})):
        begun.clear()
        executor.start(Attempt(reservation, Handler("h", run), payload))
        assert begun.wait(PATIENCE)
        executor.stop(first, SOON, lambda: True)
        if reservation is second:
            time.sleep(3 * SOON)  # in which it would be interrupted
            ended.set()
        while not (finished := executor.finished()):
            executor.wait(1.0)
        outcomes.append(finished[0].outcome.error)
    executor.close()
    assert isinstance(outcomes[0], TimeIsUp)
    assert outcomes[1] is None


def test_an_import_is_not_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loaded_in_time.py").write_text("import time\ntime.sleep(0.1)\nwhole = True")
    monkeypatch.syspath_prepend(tmp_path)

    def load() -> None:
        import_module("loaded_in_time")
        spin()

    assert isinstance(InFlight().handle(load).error, TimeIsUp)
    assert sys.modules["loaded_in_time"].whole
