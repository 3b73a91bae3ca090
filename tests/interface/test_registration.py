"""What is no handler is refused when it is registered, or where it is called: no message completes without its body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from functools import partial, wraps
from multiprocessing.pool import AsyncResult
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Context, PollConsumer, RetryPolicy
from pollconsumer.core.errors import ConfigurationError
from tests.inner import calls_of

if TYPE_CHECKING:
    from pollconsumer.testing import Sandbox
    from tests.site import Site


def yields(n: int = 0) -> Iterator[int]:
    yield n


async def yields_async(n: int = 0) -> AsyncIterator[int]:
    yield n


async def returns_async(n: int = 0) -> int:
    return n


class Yielding:
    def __call__(self) -> Iterator[int]:
        yield 1

    def method(self) -> Iterator[int]:
        yield 1

    @classmethod
    async def of_class(cls) -> AsyncIterator[int]:
        yield 1

    @staticmethod
    def static() -> Iterator[int]:
        yield 1


YIELDING: list[Callable[..., Any]] = [
    yields,
    yields_async,
    partial(yields, 1),
    partial(partial(yields_async), 1),
    lambda: (yield),
    Yielding(),
    partial(Yielding()),
    Yielding().method,
    Yielding.of_class,
    Yielding.static,
]


@pytest.mark.parametrize("function", YIELDING, ids=range(len(YIELDING)))
def test_a_function_that_yields_is_no_handler_and_no_hook(app: PollConsumer, function: Callable[..., Any]) -> None:
    for register in (app.handler("x"), app.handler("x", isolation="process"), app.every("1h", name="x"), app.on_launch):
        with pytest.raises(ConfigurationError, match="it is a generator function, whose call runs nothing: use return"):
            register(function)
    assert (calls_of(app).handlers, calls_of(app).recurring) == ({}, {})


class Calm:
    def delay(self, attempt: int, chance: float) -> Iterator[float]:  # noqa: ARG002  a policy's
        yield 1.0


def test_a_retry_policy_that_yields_is_none(app: PollConsumer) -> None:
    odd: Any = Calm()
    policy: RetryPolicy = odd
    with pytest.raises(ConfigurationError, match="retry"):
        app.handler("x", retry=policy)


@wraps(yields)
def driving(n: int = 0) -> list[int]:
    return list(yields(n))


@wraps(yields)
def leaving(n: int = 0) -> Any:
    return yields(n)


def making_async(n: int = 0) -> Any:
    return yields_async(n)


def forgetting(n: int = 0) -> Awaitable[int]:
    return returns_async(n)


async def forgetting_within(n: int = 0) -> Awaitable[int]:
    return returns_async(n)


async def leaving_within(n: int = 0) -> Iterator[int]:
    return yields(n)


async def leaving_task(n: int = 0) -> Awaitable[int]:
    return asyncio.ensure_future(returns_async(n))


@contextmanager
def managing(n: int = 0) -> Iterator[int]:
    yield n


@asynccontextmanager
async def managing_async(n: int = 0) -> AsyncIterator[int]:
    yield n


def mapping(n: int = 0) -> Any:
    return map(abs, [n])


def handing_over() -> Any:
    return Future[int]()


async def handing_over_within() -> Any:
    return Future[int]()


def handing_to_a_pool() -> Any:
    return AsyncResult(SimpleNamespace(_cache={}), None, None)  # type: ignore[arg-type]  # of a pool


def failing_elsewhere() -> Any:
    future = Future[int]()
    future.set_exception(ValueError("no such mailbox"))
    return future


def exiting_elsewhere() -> Any:
    future = Future[int]()
    future.set_exception(SystemExit(3))
    return future


def leaving_elsewhere(n: int = 0) -> Any:
    future = Future[Any]()
    future.set_result(yields(n))
    return future


RETURNS = {
    handing_over: "it returned a Future that is not done; return its .result()",
    handing_over_within: "it returned a Future that is not done; return its .result()",
    handing_to_a_pool: "it returned an ApplyResult that is not done; return its .get()",
    failing_elsewhere: "ValueError: no such mailbox",
    exiting_elsewhere: "SystemExit: 3",
    leaving_elsewhere: "it returned a generator, which nobody runs",
    managing: "it returned a context manager, which nobody enters; use it in a with statement",
    managing_async: "it returned a context manager, which nobody enters",
    mapping: "it returned a map, which nobody runs; loop over it in the handler",
    leaving: "it returned a generator, which nobody runs; loop over it in the handler",
    leaving_within: "it returned a generator, which nobody runs",
    making_async: "it returned an async_generator, which nobody runs",
    forgetting: "it returned a coroutine; await it, in a handler declared with async def",
    forgetting_within: "it returned a coroutine; await it",
    leaving_task: "it returned a ",
}


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("timeout", [None, "1h"])
@pytest.mark.parametrize("function", RETURNS, ids=lambda function: function.__name__)
def test_what_returns_unbegun_code_has_not_handled_its_message(
    app: PollConsumer, sandbox: Sandbox, function: Callable[..., Any], timeout: str | None, hooked: bool
) -> None:
    after: list[Any] = []
    if hooked:
        app.after(lambda _, result: after.append(result))
    app.handler("x", timeout=timeout, result_ttl=0, max_attempts=1)(function)
    handle = app.enqueue("x")
    sandbox.run()
    assert handle.status().state == "dead"
    assert RETURNS[function] in (handle.status().last_error or "")
    assert after == []


@pytest.mark.parametrize("hooked", [False, True])
def test_the_result_of_work_elsewhere_that_is_done_is_the_handlers(
    app: PollConsumer, sandbox: Sandbox, hooked: bool
) -> None:
    after: list[Any] = []
    if hooked:
        app.after(lambda _, result: after.append(result))

    @app.handler("x", result_ttl="1h")
    def count() -> Any:
        future = Future[int]()
        future.set_result(7)
        return future

    handle = app.enqueue("x")
    sandbox.run()
    assert (handle.state, handle.wait()) == ("completed", 7)
    assert after == [7] * hooked


def test_in_slots_and_in_processes_of_their_own_neither(site: Site) -> None:
    (site.directory / "handlers.py").write_text(
        "from concurrent.futures import Future\nfrom pollconsumer import PollConsumer\napp = PollConsumer()\n"
        "def yields():\n    yield\nasync def returns(): ...\nasync def forgets():\n    return returns()\n"
        "for name, function in {'a': lambda: yields(), 'b': lambda: returns(), 'c': forgets, 'd': Future}.items():\n"
        "    app.handler(name, max_attempts=1, result_ttl=0)(function)\n"
        "    app.handler(f'{name}.isolated', max_attempts=1, result_ttl=0, isolation='process')(function)\n"
    )
    names = [*"abcd", "a.isolated", "b.isolated", "c.isolated", "d.isolated"]
    messages = [site.enqueue(name) for name in names]
    assert site.drain("--concurrency", "3").returncode == 0
    assert [site.state(message) for message in messages] == ["dead"] * len(names)


def test_who_loops_over_a_generator_by_itself_is_a_handler(app: PollConsumer, sandbox: Sandbox) -> None:
    app.handler("x")(driving)
    app.enqueue("x", {"n": 7})
    assert sandbox.run().handled == 1


class Mail:
    def send(self, to: str) -> str:
        return to

    @classmethod
    def of_class(cls, to: str) -> str:
        return to

    @staticmethod
    def static(to: str) -> str:
        return to

    def __call__(self, to: str) -> str:
        return to


class Calling:
    async def __call__(self, to: str) -> str:
        await asyncio.sleep(0)
        return to


CALLABLE: list[Callable[..., Any]] = [
    Mail().send,
    Mail.of_class,
    Mail.static,
    vars(Mail)["static"],
    Mail(),
    Calling(),
    partial(Calling()),
    partial(Mail.send, Mail()),
]


@pytest.mark.parametrize("function", CALLABLE, ids=range(len(CALLABLE)))
def test_bound_and_static_methods_and_callable_objects_are_handlers(
    app: PollConsumer, sandbox: Sandbox, function: Callable[..., Any]
) -> None:
    app.handler("x")(function)
    handle = app.enqueue("x", {"to": "ada"})
    assert sandbox.run().handled == 1
    assert handle.wait() == "ada"


def bind(self, to: str) -> None: ...  # type: ignore[no-untyped-def]
def of_class(cls, to: str) -> None: ...  # type: ignore[no-untyped-def]
def unannotated(to: str, context) -> None: ...  # type: ignore[no-untyped-def]
def unannotated_with_default(context=None) -> None: ...  # type: ignore[no-untyped-def]
def brief(ctx, to: str) -> None: ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            Mail.send,
            r"^parameter self of Mail.send; register a bound method, as of Mail\(\).send; who wants its context",
        ),
        (bind, "^parameter self of bind; .* takes context: Context$"),
        (of_class, "^parameter cls of of_class; register a bound method"),
        (unannotated, "^parameter context of unannotated; annotate it: context: Context for the handler's context"),
        (unannotated_with_default, "^parameter context of"),
        (brief, "^parameter ctx of brief; annotate it"),
    ],
)
def test_a_parameter_that_no_message_can_give_is_refused_with_what_to_write(
    app: PollConsumer, function: Callable[..., Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        app.handler("x")(function)
    assert calls_of(app).handlers == {}


def test_such_names_with_a_type_of_their_own_are_arguments_like_any(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[tuple[Any, ...]] = []

    @app.handler
    def f(self: int, ctx: str, to: str, context: Context, cls=None) -> None:  # type: ignore[no-untyped-def]
        seen.append((self, ctx, to, cls, context.attempt))

    app.enqueue("f", {"self": 1, "ctx": "c", "to": "t", "cls": 2})
    assert sandbox.run(raising=True).handled == 1
    assert seen == [(1, "c", "t", 2, 1)]


@pytest.mark.parametrize(
    "odd", [vars(Mail)["of_class"], property(lambda _: None), 7, None], ids=lambda odd: type(odd).__name__
)
def test_what_cannot_be_called_is_refused_by_its_kind(app: PollConsumer, odd: Any) -> None:
    register: Any = app.handler
    for decorate in (app.handler("x"), *[register] * (odd is not None)):
        with pytest.raises(ConfigurationError, match=r"^handler: a \w+; give a function; a method of a class once"):
            decorate(odd)
    assert calls_of(app).handlers == {}


def test_decorators_that_are_put_together_say_what_to_leave_out(app: PollConsumer, sandbox: Sandbox) -> None:
    every: Any = app.every
    with pytest.raises(ConfigurationError, match=r'^every: yields; say how often, as in @app.every\("5m"\)$'):
        every(driving)
    handled = app.handler("x")(driving)
    for again in (app.every("1h", name="x"), app.handler("x")):
        with pytest.raises(ConfigurationError, match=r"registered twice: x; two decorators at .*leave out one$"):
            again(handled)
    app.handler("y")(app.handler("z")(returns_async))  # two names of one function
    handles = [app.enqueue(name, {"n": 3}) for name in "yz"]
    assert sandbox.run().handled == 2
    assert [handle.wait() for handle in handles] == [3, 3]


def test_a_handler_that_recurs_has_no_parameter_that_nobody_gives(app: PollConsumer) -> None:
    with pytest.raises(ConfigurationError, match=r"^every, parameter occurence of report; an occurrence has no argum"):

        @app.every("1h")
        def report(occurence, n: int = 1) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(
        ConfigurationError, match=r"^every, parameter occurrence of untyped; an occurrence has no argum"
    ):

        @app.every("1h")
        def untyped(occurrence) -> None: ...  # type: ignore[no-untyped-def]

    assert calls_of(app).recurring == {}


def test_a_sandbox_runs_nothing_within_a_coroutine(app: PollConsumer, sandbox: Sandbox) -> None:
    app.handler("x")(returns_async)
    handle = app.enqueue("x")

    async def test() -> None:
        sandbox.run()

    with pytest.raises(RuntimeError, match="call it outside of coroutines"):
        asyncio.run(test())
    assert handle.state == "ready"
    assert sandbox.run().handled == 1
