"""A handler's steps run alone are those that it has in turns of the loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.retry import HandlerTimeout
from pollconsumer.runtime.handling.event_loop import EventLoop
from pollconsumer.runtime.handling.executors.inline import InlineExecutor
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.quick_loop import QuickLoop
from tests.runtime.coroutine_traces import ACTS, Trace, of

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextvars import Context


def in_turns(self: QuickLoop, coroutine: Coroutine[Any, Any, Any], name: str, own: Context) -> None:
    """`QuickLoop.alone`, without its quick way."""
    self.task = self.create_task(coroutine, name=name, context=own)


def traced(messages: list[list[str]], timeout: float | None, *, quickly: bool, staying: bool = False) -> list[Any]:
    """What each message's handler saw, and its outcome."""
    trace = Trace()
    with pytest.MonkeyPatch.context() as patch:
        if not quickly:
            patch.setattr(QuickLoop, "alone", in_turns)
        loop = EventLoop(thread=False)
        if staying:
            loop.stay()
        for n, acts in enumerate(messages):
            outcome = loop.handle(trace.handle(n, acts), of(timeout))
            trace.seen.append((n, type(outcome.error), outcome.result))
            assert staying or asyncio._get_running_loop() is None  # noqa: SLF001  as above
        loop.rest()
        trace.note("after all")
        loop.close()
    return trace.seen


@pytest.mark.parametrize("timeout", [None, 30.0])
@given(messages=st.lists(st.lists(st.sampled_from(ACTS), max_size=3), max_size=6))
def test_the_same_handlers_see_the_same(messages: list[list[str]], timeout: float | None) -> None:
    expected = traced(messages, timeout, quickly=False)
    assert traced(messages, timeout, quickly=True) == expected
    assert traced(messages, timeout, quickly=True, staying=True) == expected


def test_a_coroutine_that_awaits_nothing_has_no_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, trace = EventLoop(thread=False), Trace()
    monkeypatch.setattr(QuickLoop, "turn_until", None)
    for timeout in (None, 30.0):
        assert loop.handle(trace.handle(1, ["nothing", "context"]), of(timeout)).result == 1
    monkeypatch.undo()
    loop.close()


@pytest.mark.parametrize("staying", [False, True])
def test_a_signal_handler_of_the_loop_is_called_though_handlers_await_nothing(staying: bool) -> None:
    loop, called = EventLoop(thread=False), list[int]()

    async def listen() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, called.append, 1)

    async def send() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)

    async def nothing() -> None:
        pass

    if staying:
        loop.stay()
    for handler in (listen, send, nothing):
        loop.handle(handler(), of(None))
    assert called == [1]
    loop.close()


def test_a_loop_that_stays_and_whose_descriptors_a_handler_closes_is_replaced_before_the_next() -> None:
    executor = InlineExecutor()

    async def close() -> int:
        loop: Any = asyncio.get_running_loop()
        for each in (loop._selector, loop._ssock, loop._csock):  # noqa: SLF001  # they have no public names
            os.close(each.fileno())
        return 1

    async def answer() -> int:
        await asyncio.sleep(0)
        return 2

    def handled(function: Any) -> Any:
        outcome = executor.turning(Handler("it", lambda _, __: function(), asynchronous=True))({}, None)
        executor.checked(outcome.error)
        return outcome.result

    assert handled(answer) == 2
    executor.stay([])
    assert [handled(function) for function in (answer, close, answer, answer)] == [2, 1, 2, 2]
    executor.close()


def test_a_handler_that_stops_the_loop_harms_neither_itself_nor_the_next() -> None:
    loop = EventLoop(thread=False)

    async def stop(seconds: float | None = None) -> int:
        asyncio.get_running_loop().stop()
        if seconds is not None:
            await asyncio.sleep(seconds)
        return 1

    outcomes = [loop.handle(stop(seconds), of(None)) for seconds in (None, 0, None)]
    assert [outcome.result for outcome in outcomes] == [1, 1, 1]
    loop.close()


def test_what_a_task_raised_as_its_handler_ended_does_no_harm_to_the_next() -> None:
    loop = EventLoop(thread=False)

    async def leave() -> None:
        raise SystemExit(3)

    async def end_with_it() -> int:
        await asyncio.sleep(0)
        left.append(asyncio.create_task(leave()))
        return 1

    async def wait() -> int:
        await asyncio.sleep(0.001)
        return 2

    left: list[asyncio.Task[None]] = []
    for _ in range(3):
        assert [loop.handle(handler(), of(None)).result for handler in (end_with_it, wait)] == [1, 2]
    loop.close()


def test_a_timeout_counts_from_the_handlers_beginning_though_it_blocked_before_it_waited() -> None:
    loop = EventLoop(thread=False)

    async def handle() -> None:
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            pass
        await asyncio.sleep(30)

    assert isinstance(loop.handle(handle(), of(0.01)).error, HandlerTimeout)
    loop.close()


def test_a_loop_that_stays_does_so_after_a_close_look_at_descriptors() -> None:
    executor, running = InlineExecutor(), list[bool]()

    async def nothing() -> None:
        pass

    handler = Handler("it", lambda _, __: nothing(), asynchronous=True)
    executor.turning(handler)({}, None)  # makes the loop
    executor.rest()
    executor.stay([handler])
    for _ in range(3):
        executor.turning(handler)({}, None)
        executor.checked(None)
        running.append(asyncio._get_running_loop() is not None)  # noqa: SLF001  None, where the public name raises
    executor.rest()
    assert running == [False, True, True]  # the first look is a close one, with the loop at rest
    executor.close()


def test_while_another_loop_runs_each_coroutine_fails_and_those_afterwards_do_not() -> None:
    executor = InlineExecutor()

    async def answer() -> int:
        return 1

    handler = Handler("it", lambda _, __: answer(), asynchronous=True)

    async def within() -> Any:
        turn = executor.turning(handler)
        return [turn({}, None).error for _ in range(2)], turn

    errors, turn = asyncio.run(within())
    assert [type(error) for error in errors] == [RuntimeError, RuntimeError]
    assert [each({}, None).result for each in (turn, executor.turning(handler))] == [1, 1]
    executor.close()


def counting(made: list[Any]) -> Any:
    def factory(loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    return factory


@pytest.mark.parametrize("waits", [False, True])
def test_a_task_factory_that_a_handler_sets_makes_the_tasks_after_it(waits: bool) -> None:
    loop, made = EventLoop(thread=False), list[Any]()

    async def set_it() -> None:
        running = asyncio.get_running_loop()
        if waits:
            waiting = running.create_future()
            threading.Timer(0.01, running.call_soon_threadsafe, (waiting.set_result, None)).start()
            await waiting
        running.set_task_factory(counting(made))

    async def nothing() -> None:
        pass

    loop.stay()
    for handler in (nothing, set_it, nothing):
        loop.handle(handler(), of(None))
    assert len(made) == 1
    loop.rest()
    loop.close()


@pytest.mark.parametrize("staying", [False, True])
def test_what_others_set_on_the_loop_between_two_handlers_holds_for_the_next(staying: bool) -> None:
    loop, made, loops = EventLoop(thread=False), list[Any](), list[asyncio.AbstractEventLoop]()

    async def nothing() -> None:
        loops.append(asyncio.get_running_loop())

    if staying:
        loop.stay()
    loop.handle(nothing(), of(None))
    if staying:
        loop.rest()
    loops[0].set_task_factory(counting(made))
    if staying:
        loop.stay()
    loop.handle(nothing(), of(None))
    assert len(made) == 1
    loop.rest()
    loop.close()


def test_what_a_thread_asked_of_a_loop_that_stays_is_called_before_the_next_handler() -> None:
    loop, seen, loops = EventLoop(thread=False), list[str](), list[asyncio.AbstractEventLoop]()

    async def note(what: str) -> None:
        loops.append(asyncio.get_running_loop())
        seen.append(what)

    loop.stay()
    loop.handle(note("first"), of(None))
    thread = threading.Thread(target=loops[0].call_soon_threadsafe, args=(seen.append, "thread"))
    thread.start()
    thread.join()
    loop.handle(note("second"), of(None))
    assert seen == ["first", "thread", "second"]
    loop.rest()
    loop.close()


def test_in_debug_mode_asyncio_logs_a_slow_step_of_a_coroutine_that_awaits_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = EventLoop(thread=False)

    async def set_it() -> None:
        asyncio.get_running_loop().set_debug(True)
        asyncio.get_running_loop().slow_callback_duration = 0

    async def nothing() -> None:
        pass

    loop.stay()
    loop.handle(set_it(), of(None))
    caplog.clear()
    loop.handle(nothing(), of(None))
    assert "Executing <Task" in caplog.text
    loop.rest()
    loop.close()
