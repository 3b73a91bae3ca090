"""A handler's timeout ends the handler, wherever it is, and nothing else."""

from __future__ import annotations

import signal
import socket
import threading
import time
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Fatal, HandlerTimeout, PollConsumer, RetryIn
from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.users_code import TimeIsUp
from pollconsumer.runtime.handling import interrupts
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.delivery import Delivery, Situation
from pollconsumer.runtime.handling.executors import Attempt, ThreadExecutor
from pollconsumer.runtime.handling.handler import Handler, Outcome, describe
from pollconsumer.runtime.handling.interrupts import call_within, limited
from pollconsumer.runtime.handling.shield import Shield, in_force
from pollconsumer.runtime.launch.board import LaunchProgress
from pollconsumer.runtime.launch.launch_end import LaunchEnd
from pollconsumer.runtime.new_messages import Defaults
from tests.site import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.site import Site

LONG = 60.0
"""Seconds that nobody waits for."""


def handle(function: Callable[[], Any], seconds: float = 0.05) -> Outcome:
    return Handler("h", limited(lambda *_: function(), seconds)).handle({})


def handle_on_a_thread(function: Callable[[], Any], seconds: float = 0.05) -> Outcome:
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(handle(function, seconds)), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return outcomes[0]


BOTH = pytest.mark.parametrize("handle", [handle, handle_on_a_thread])
"""Threads."""


def spin(seconds: float = LONG) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def receive() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.recv(1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "REPEAT", 0.05)


@pytest.mark.parametrize("block", [lambda: time.sleep(LONG), spin, receive, threading.Event().wait])
def test_in_the_main_thread_whatever_blocks_is_ended(block: Callable[[], Any]) -> None:
    outcome = handle(block)
    assert isinstance(outcome.error, HandlerTimeout)
    assert (
        describe(outcome.error)
        == "HandlerTimeout: ran longer than its limit of 50ms, from timeout= or consumer.handler_limit"
    )
    assert isinstance(outcome.error.__cause__, TimeIsUp)


def test_in_another_thread_python_code_is_ended() -> None:
    assert isinstance(handle_on_a_thread(spin).error, HandlerTimeout)


@BOTH
def test_what_ends_in_time_is_as_without_a_timeout(handle: Callable[..., Outcome]) -> None:
    assert handle(lambda: {"n": 1}, LONG) == Outcome(result={"n": 1})
    outcome = handle(lambda: [][0], LONG)
    assert isinstance(outcome.error, IndexError)


@BOTH
def test_no_except_clause_makes_a_success_of_it(handle: Callable[..., Outcome]) -> None:
    caught = []

    def stubborn() -> str:
        for kind in (Exception, BaseException, BaseException):
            try:
                spin()
            except kind:
                caught.append(kind)
        return "done"

    assert isinstance(handle(stubborn).error, HandlerTimeout)
    assert caught == []

    def shameless() -> str:
        for _ in range(2):
            try:
                spin()
            except BaseException:
                caught.append(BaseException)
        return "done"

    assert isinstance(handle(shameless).error, HandlerTimeout)
    assert len(caught) == 2


@BOTH
@pytest.mark.parametrize("said", [Fatal("no"), RetryIn(60)])
def test_a_stopped_handler_may_say_what_becomes_of_the_message(handle: Callable[..., Outcome], said: Exception) -> None:
    def speak() -> None:
        try:
            spin()
        finally:
            raise said

    assert handle(speak).error is said


# Hypothesis measures collections of garbage by a callback: Python only notes what a timeout raises within one.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@BOTH
def test_a_timeout_near_the_duration_never_strikes_beside_the_handler(handle: Callable[..., Outcome]) -> None:
    # What struck outside would come out of `limited`'s caller, or hit the plain loop after it.
    def many() -> int:
        limit, ended = 0.0005, 0
        for n in range(400):
            seconds = limit * (0.9 + n % 20 / 100)
            outcome = Handler("h", limited(lambda payload, _: spin(payload["s"]), limit)).handle({"s": seconds})
            assert outcome.error is None or isinstance(outcome.error, HandlerTimeout)
            ended += outcome.error is None
            for _ in range(300):
                pass
        return ended

    if handle is handle_on_a_thread:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(many()), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert len(results) == 1
    else:
        many()
    assert in_force == {}


@BOTH
def test_a_block_of_ours_is_not_left_in_the_middle(handle: Callable[..., Outcome]) -> None:
    steps = []

    def save() -> None:
        with Shield():
            spin(0.2)
            steps.append("saved")
        spin()
        steps.append("never")

    assert isinstance(handle(save).error, HandlerTimeout)
    assert steps == ["saved"]


@BOTH
def test_an_import_is_not_left_in_the_middle(
    handle: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / f"half_{handle.__name__}"
    package.mkdir()
    (package / "__init__.py").write_text("from tests.runtime.test_timeouts import spin\nspin(0.2)")
    (package / "part.py").write_text("import time\ntime.sleep(0.2)")
    monkeypatch.syspath_prepend(tmp_path)

    def load() -> None:
        import_module(f"{package.name}.part")
        spin()

    assert isinstance(handle(load).error, HandlerTimeout)
    assert import_module(package.name).part.time is time


def test_a_limit_within_another_leaves_that_in_force() -> None:
    ended: list[str] = []

    def outer() -> None:
        call_within(0.01, spin, when_stopped=lambda: ended.append("inner"))
        with Shield():
            spin(0.1)
            ended.append("shielded")
        spin()

    assert isinstance(handle(outer).error, HandlerTimeout)
    assert ended == ["inner", "shielded"]
    assert in_force == {}


def test_handler_and_timer_of_the_alarm_signal_are_put_back() -> None:
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    signal.setitimer(signal.ITIMER_REAL, LONG)
    try:
        assert isinstance(handle(spin).error, HandlerTimeout)
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        assert 0 < left < LONG
        signal.raise_signal(signal.SIGALRM)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_thread_that_was_stopped_handles_the_next_message() -> None:
    executor = ThreadExecutor(1)
    reservation: Any = None
    ends: list[Outcome] = []
    for run in (lambda *_: spin(), lambda *_: "fine"):
        executor.start(Attempt(reservation, Handler("h", limited(run, 0.5)), {}))
        until = time.monotonic() + PATIENCE
        while executor.busy and time.monotonic() < until:
            executor.wait(1)
            ends += [handled.outcome for handled in executor.finished()]
    executor.close()
    assert isinstance(ends[0].error, HandlerTimeout)
    assert ends[1] == Outcome(result="fine")


@pytest.mark.parametrize(
    ("bounded", "timeout", "left"),
    [(False, 30.0, 30.0), (False, None, 300.0), (True, 30.0, 20.0), (True, None, 20.0), (True, 10.0, 10.0)],
)
def test_the_deadline_that_a_handler_sees_is_that_of_its_limit_but_where_the_platform_ends_the_launch(
    bounded: bool, timeout: float | None, left: float
) -> None:
    clock = lambda: 100.0  # noqa: E731
    delivery = Delivery("n", "q", "id", "h", 1, 0, 1)
    end = LaunchEnd(LaunchProgress().flight, stop_before=120.0, grace=10.0, handler_limit=300.0, bounded=bounded)
    ends_by = partial(end.ends_by, limit=timeout)
    context = LaunchContext(delivery, Situation(ends_by, lambda: False, lambda *_: None, Defaults, clock))
    Handler("h", lambda *_: None, timeout=timeout).handle({}, context)
    assert (context.deadline, context.time_left()) == (100 + left, left)


@pytest.mark.parametrize(
    ("bounded", "timeout", "said"),
    [
        (False, None, "5m, from consumer.handler_limit; give it timeout="),
        (False, 30.0, "30s, from timeout="),
        (True, None, "20s, all that a launch by a URL had left"),
        (True, 30.0, "20s, all that a launch by a URL had left"),
        (True, 10.0, "10s, from timeout="),
    ],
)
def test_what_stopped_a_handler_at_its_limit_is_named(bounded: bool, timeout: float | None, said: str) -> None:
    end = LaunchEnd(LaunchProgress().flight, stop_before=120.0, grace=10.0, handler_limit=300.0, bounded=bounded)
    assert str(end.verdict(100.0, timeout)).startswith(f"ran longer than its limit of {said}")


@pytest.mark.parametrize("timeout", [0, "0s", -1, "soon", True, float("inf"), "1000000h", [1]])
def test_a_timeout_that_cannot_be_meant_is_refused(timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        PollConsumer().handler("x", timeout=timeout)
    with pytest.raises(ConfigurationError, match="timeout"):
        PollConsumer().every("1m", timeout=timeout)(print)


SLOW = """
import time
from pollconsumer import Backoff, HandlerTimeout, PollConsumer
app = PollConsumer()

@app.handler(timeout="200ms", retry=Backoff(first="1h", most="1h"))
def slow() -> None:
    while True:
        for _ in range(1000): pass

@app.handler(timeout="200ms", fatal=(HandlerTimeout,))
def once() -> None:
    while True:
        for _ in range(1000): pass

@app.handler(timeout="30s")
def quick() -> None:
    pass
"""


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_timed_out_attempt_is_a_failure_like_any_other(site: Site, concurrency: int) -> None:
    (site.directory / "handlers.py").write_text(SLOW)
    slow, once, quick = (site.enqueue(name) for name in ("slow", "once", "quick"))
    launch = site.drain("--concurrency", str(concurrency))
    assert launch.returncode == 0, launch.stderr
    for message, state in ((slow, "scheduled"), (once, "dead")):
        status = site.json("status", message)
        assert (status["state"], status["attempts"]) == (state, 1)
        assert (
            status["last_error"]
            == "HandlerTimeout: ran longer than its limit of 200ms, from timeout= or consumer.handler_limit"
        )
    assert site.state(quick) == "completed"
