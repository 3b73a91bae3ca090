"""``async def`` handlers share one event loop, which none of them can end."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import HandlerTimeout, PollConsumer, RetryIn
from pollconsumer.runtime.handling.arguments import BadArguments
from pollconsumer.runtime.handling.context import Context, LaunchContext
from pollconsumer.runtime.handling.delivery import Delivery, Situation
from pollconsumer.runtime.handling.executors import Attempt, Executor, ThreadExecutor
from pollconsumer.runtime.handling.handler import Outcome, describe
from pollconsumer.runtime.new_messages import Defaults
from tests.inner import calls_of
from tests.site import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pollconsumer.runtime.handling.handler import Handler
    from tests.site import Site


@pytest.fixture(params=[1, 2])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    executor = Executor() if request.param == 1 else ThreadExecutor(request.param)
    yield executor
    executor.close()


def handler(function: Callable[..., Any], **options: Any) -> Handler:
    app = PollConsumer()
    app.handler("h", **options)(function)
    return calls_of(app).handlers["h"].definition


def start(executor: Executor, handler: Handler, context: LaunchContext | None = None, **payload: Any) -> None:
    reservation: Any = None
    executor.start(Attempt(reservation, handler, payload, context))


def outcomes(executor: Executor, count: int = 1) -> list[Outcome]:
    found = [handled.outcome for handled in executor.finished()]
    until = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < until:
        executor.wait(1)
        found += [handled.outcome for handled in executor.finished()]
    assert len(found) == count
    return found


def outcome_of(executor: Executor, handler: Handler, context: LaunchContext | None = None, **payload: Any) -> Outcome:
    start(executor, handler, context, **payload)
    return outcomes(executor)[0]


def test_results_and_failures_are_those_of_the_coroutine(executor: Executor) -> None:
    async def divide(a: int, b: int) -> float:
        await asyncio.sleep(0)
        if b == 1:
            raise RetryIn(5)
        return a / b

    divides = handler(divide)
    assert outcome_of(executor, divides, a=4, b=2) == Outcome(result=2.0)
    assert isinstance(outcome_of(executor, divides, a=4, b=0).error, ZeroDivisionError)
    assert isinstance(outcome_of(executor, divides, a=4, b=1).error, RetryIn)
    assert isinstance(outcome_of(executor, divides, a="4", b=1).error, BadArguments)


def test_all_run_on_the_same_loop(executor: Executor) -> None:
    async def which() -> int:
        return id(asyncio.get_running_loop())

    runs = handler(which)
    assert outcome_of(executor, runs) == outcome_of(executor, runs)


def test_a_timeout_stops_it_where_it_awaits(executor: Executor) -> None:
    stopped = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(True)

    error = outcome_of(executor, handler(wait, timeout="20ms")).error
    assert isinstance(error, HandlerTimeout)
    assert (
        describe(error) == "HandlerTimeout: ran longer than its limit of 20ms, from timeout= or consumer.handler_limit"
    )
    assert stopped == [True]


def test_no_except_clause_makes_a_success_of_a_timeout(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pollconsumer.runtime.handling.event_loop.REPEAT", 0.02)
    swallowed = []

    async def shameless() -> str:
        for _ in range(2):
            try:
                await asyncio.sleep(60)
            except BaseException:
                swallowed.append(True)
        return "done"

    assert isinstance(outcome_of(executor, handler(shameless, timeout=0.02)).error, HandlerTimeout)
    assert len(swallowed) == 2


def test_a_context_has_the_deadline_of_the_timeout(executor: Executor) -> None:
    async def left(context: Context) -> float:
        return context.time_left()

    situation = Situation(lambda began, limit=600.0: began + limit, lambda: False, lambda *_: None, Defaults)
    context = LaunchContext(Delivery("n", "q", "id", "h", 1, 0, 1), situation)
    annotated: Any = left
    annotated.__annotations__["context"] = Context
    result = outcome_of(executor, handler(left, timeout="60s"), context).result
    assert 0 < result <= 60


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_nothing_that_is_raised_ends_the_loop(executor: Executor) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def leaves() -> None:
        raise SystemExit(3)

    async def has_a_task_that_leaves() -> None:
        async def leave() -> None:
            raise KeyboardInterrupt

        await asyncio.create_task(leave())

    async def stops_the_loop() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return "on"

    async def fine() -> str:
        return "fine"

    assert isinstance(outcome_of(executor, handler(cancelled)).error, asyncio.CancelledError)
    assert isinstance(outcome_of(executor, handler(leaves)).error, SystemExit)
    assert isinstance(outcome_of(executor, handler(has_a_task_that_leaves)).error, KeyboardInterrupt)
    outcome_of(executor, handler(stops_the_loop))
    assert outcome_of(executor, handler(fine)) == Outcome(result="fine")


def test_what_a_handler_leaves_running_ends_with_the_executor() -> None:
    ended, tasks = [], set()

    async def leave() -> None:
        async def linger() -> None:
            try:
                await asyncio.sleep(600)
            finally:
                ended.append(True)

        tasks.add(asyncio.create_task(linger()))
        await asyncio.sleep(0)

    for executor in (Executor(), ThreadExecutor(2)):
        outcome_of(executor, handler(leave))
        executor.close()
    assert ended == [True, True]


@pytest.mark.parametrize("timeout", [None, "30s"])
def test_its_task_has_the_name_of_the_handler(executor: Executor, timeout: str | None) -> None:
    async def name() -> str:
        task = asyncio.current_task()
        assert task is not None
        return task.get_name()

    assert outcome_of(executor, handler(name, timeout=timeout)) == Outcome(result="h")


def test_async_handlers_run_together_on_one_loop_beside_a_thread() -> None:
    executor = ThreadExecutor(3)
    gate, threads = threading.Event(), set()
    met: list[asyncio.Event] = []

    async def meet(name: str) -> str:
        """Needs the other one to go on."""
        threads.add(threading.current_thread().name)
        met.append(asyncio.Event())
        if len(met) == 2:
            for event in met:
                event.set()
        await met[0].wait()
        return name

    def plain() -> str:
        threads.add(threading.current_thread().name)
        assert gate.wait(PATIENCE)
        return "plain"

    start(executor, handler(plain))
    meets = handler(meet)
    start(executor, meets, name="a")
    start(executor, meets, name="b")
    assert sorted(outcome.result for outcome in outcomes(executor, 2)) == ["a", "b"]
    assert executor.busy == 1
    gate.set()
    assert outcomes(executor) == [Outcome(result="plain")]
    executor.close()
    assert sorted(name.partition("-")[0] for name in threads) == ["event", "handler"]


def test_without_an_executor_it_has_a_loop_of_its_own() -> None:
    async def fine() -> str:
        await asyncio.sleep(0)
        return "fine"

    assert handler(fine).handle({}) == Outcome(result="fine")

    async def within_another() -> Outcome:
        return handler(fine).handle({})

    assert isinstance(asyncio.run(within_another()).error, RuntimeError)


def test_a_plain_function_that_returns_a_coroutine_has_not_done_its_work() -> None:
    async def work() -> None: ...

    assert isinstance(handler(lambda: work()).handle({}).error, TypeError)


ASYNC = """
import asyncio
from pathlib import Path
from pollconsumer import PollConsumer
app = PollConsumer()
together = None

@app.handler
async def meet() -> None:
    global together
    together = together or asyncio.Barrier(2)
    async with together:
        pass

@app.handler
async def alone() -> None:
    await asyncio.sleep(0)
"""


def test_a_launch_runs_async_handlers(site: Site) -> None:
    (site.directory / "handlers.py").write_text(ASYNC)
    messages = [site.enqueue("meet") for _ in range(4)]
    done = site.drain("--concurrency", "2")
    assert (done.returncode, done.stderr) == (0, "")
    messages.append(site.enqueue("alone"))
    done = site.drain()
    assert (done.returncode, done.stderr) == (0, "")
    assert [site.state(message) for message in messages] == ["completed"] * 5


def close_those_of_the_loop() -> None:
    """As code that makes daemons does, but for the test's own."""
    loop: Any = asyncio.get_running_loop()
    for each in (loop._selector, loop._ssock, loop._csock):  # noqa: SLF001  # they have no public names
        os.close(each.fileno())


def test_a_loop_whose_descriptors_a_handler_closes_is_replaced(executor: Executor) -> None:
    ended = []

    async def close() -> int:
        close_those_of_the_loop()
        return 1

    async def close_and_wait() -> None:
        close_those_of_the_loop()
        try:
            await asyncio.sleep(300)
        finally:
            ended.append(True)

    async def answer() -> int:
        await asyncio.sleep(0)
        return 2

    assert outcome_of(executor, handler(close)).result == 1
    assert outcome_of(executor, handler(answer)).result == 2
    error = outcome_of(executor, handler(close_and_wait)).error
    assert isinstance(error, OSError)
    assert ended == [True]
    assert outcome_of(executor, handler(answer)).result == 2
