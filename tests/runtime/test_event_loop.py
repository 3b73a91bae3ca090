"""The event loop of coroutines: no handler, and nothing that one leaves there, harms the next."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.retry import HandlerTimeout
from pollconsumer.runtime.handling.event_loop import EventLoop
from pollconsumer.runtime.handling.executors import Attempt, Executor
from pollconsumer.runtime.handling.handler import Handler
from tests.site import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from pollconsumer.runtime.handling.handler import Outcome

RESERVATION: Any = None


def of(timeout: float | None = None) -> Handler:
    return Handler("it", lambda *_: None, timeout=timeout, asynchronous=True)


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    loop = EventLoop(thread=False)
    yield loop
    loop.close()


def test_a_signal_handler_of_the_loop_is_called_though_handlers_await_nothing(loop: EventLoop) -> None:
    called = list[int]()

    async def listen() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, called.append, 1)

    async def send() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)

    async def nothing() -> None:
        pass

    for handler in (listen, send, nothing):
        loop.handle(handler(), of())
    assert called == [1]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_loop_whose_descriptors_a_handler_closes_is_replaced_before_the_next(asynchronous: bool) -> None:
    executor, loops = Executor(), list[Any]()

    def close() -> int:
        for each in (loops[0]._selector, loops[0]._ssock, loops[0]._csock):  # noqa: SLF001  # they have no public names
            os.close(each.fileno())
        return 1

    async def close_within() -> int:
        return close()

    async def answer() -> int:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return 2

    def handled(function: Any) -> Any:
        handler = Handler("it", lambda _, __: function(), asynchronous=function is not close)
        executor.start(Attempt(RESERVATION, handler, {}, None))
        return executor.finished()[0].outcome.result

    functions = (answer, close_within if asynchronous else close, answer, answer)
    assert [handled(function) for function in functions] == [2, 1, 2, 2]
    assert loops[0] is not loops[1] is loops[2]
    executor.close()


def test_a_handler_that_stops_the_loop_harms_neither_itself_nor_the_next(loop: EventLoop) -> None:
    async def stop(seconds: float | None = None) -> int:
        asyncio.get_running_loop().stop()
        if seconds is not None:
            await asyncio.sleep(seconds)
        return 1

    outcomes = [loop.handle(stop(seconds), of()) for seconds in (None, 0, None)]
    assert [outcome.result for outcome in outcomes] == [1, 1, 1]


def test_what_a_task_raised_as_its_handler_ended_does_no_harm_to_the_next(loop: EventLoop) -> None:
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
        assert [loop.handle(handler(), of()).result for handler in (end_with_it, wait)] == [1, 2]


def test_a_timeout_counts_from_the_handlers_beginning_though_it_blocked_before_it_waited(loop: EventLoop) -> None:
    async def handle() -> None:
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            pass
        await asyncio.sleep(30)

    assert isinstance(loop.handle(handle(), of(0.01)).error, HandlerTimeout)


def test_while_another_loop_runs_each_coroutine_fails_and_those_afterwards_do_not() -> None:
    executor = Executor()

    async def answer() -> int:
        return 1

    handler = Handler("it", lambda _, __: answer(), asynchronous=True)

    async def within() -> list[Outcome]:
        return handled()

    def handled() -> list[Outcome]:
        for _ in range(2):
            executor.start(Attempt(RESERVATION, handler, {}))
        return [each.outcome for each in executor.finished()]

    assert [type(each.error) for each in asyncio.run(within())] == [RuntimeError, RuntimeError]
    assert [each.result for each in handled()] == [1, 1]
    executor.close()


def test_a_loop_that_was_made_before_another_runs_fails_the_coroutine_and_goes_on_afterwards(loop: EventLoop) -> None:
    async def answer() -> int:
        return 1

    async def within() -> Outcome:
        return loop.handle(answer(), of())

    assert isinstance(asyncio.run(within()).error, RuntimeError)
    assert loop.handle(answer(), of()).result == 1


def handled_in_one_slot(begins: list[Callable[[], Coroutine[Any, Any, Any]]]) -> list[Outcome]:
    """The outcomes of coroutines that the loop's thread handles, each as soon as the one before has ended."""
    loop, ended = EventLoop(thread=True), threading.Event()
    outcomes: list[Outcome] = []

    def start_next(outcome: Outcome | None = None) -> None:
        if outcome is not None:
            outcomes.append(outcome)
        if len(outcomes) == len(begins):
            ended.set()
        else:
            loop.start(len(outcomes), begins[len(outcomes)], of(), start_next)

    start_next()
    assert ended.wait(PATIENCE)
    loop.close()
    return outcomes


def test_any_number_of_messages_with_invalid_arguments_end_in_one_slot() -> None:
    def refuse() -> Coroutine[Any, Any, Any]:
        raise TypeError("handler() missing 1 required positional argument: 'n'")

    outcomes = handled_in_one_slot([refuse] * 2 * sys.getrecursionlimit())
    assert {type(outcome.error) for outcome in outcomes} == {TypeError}


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_first_step_that_ends_its_process_fails_its_message_alone(error: type[BaseException]) -> None:
    async def leave() -> None:
        raise error

    outcomes = handled_in_one_slot([lambda: asyncio.sleep(0), leave, lambda: asyncio.sleep(0)])
    assert [type(outcome.error) for outcome in outcomes] == [type(None), error, type(None)]
