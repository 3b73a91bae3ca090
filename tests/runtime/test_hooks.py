"""Hooks watch what becomes of messages, and change nothing of it."""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.users_code import answering
from pollconsumer.runtime.handling import handler as hooks_of_runtime
from pollconsumer.runtime.handling.context import Context, LaunchContext
from pollconsumer.runtime.handling.delivery import Delivery, Situation
from pollconsumer.runtime.handling.executors import Attempt, ThreadExecutor
from pollconsumer.runtime.handling.handler import Crashed, Handler, Hooks, with_hooks
from pollconsumer.runtime.handling.interrupts import limited
from pollconsumer.runtime.new_messages import Defaults
from tests.inner import calls_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.site import Site


def context() -> LaunchContext:
    situation = Situation(lambda began, limit=60.0: began + limit, lambda: False, lambda *_: None, Defaults)
    return LaunchContext(Delivery("tests", "default", "m1", "h", 1, 0, 7), situation)


def unwanted() -> LaunchContext:
    raise AssertionError("no context is needed")


class Log:
    """Everything that was called, in order, and what was warned of."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.warnings: list[str] = []
        self.hooks = Hooks(lambda text, _: self.warnings.append(text))

    def noting(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((name, *arguments))

    def handler(self, function: Callable[[], Any]) -> Handler:
        def run(payload: dict[str, Any], _: LaunchContext | None) -> Any:
            self.calls.append(("run", payload))
            return function()

        return Handler("h", run)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def app() -> PollConsumer:
    return PollConsumer()


def test_before_and_after_go_around_the_handler_in_the_order_of_their_registration(log: Log) -> None:
    log.hooks.before += [log.noting("first"), log.noting("second")]
    log.hooks.after.append(log.noting("after"))
    handler, given = with_hooks(log.handler(lambda: 42), log.hooks), context()
    assert handler.takes_context
    assert handler.handle({"n": 1}, given) == (None, 42)
    assert log.calls == [("first", given), ("second", given), ("run", {"n": 1}), ("after", given, 42)]


def test_after_is_not_called_for_a_handler_that_raised(log: Log) -> None:
    log.hooks.before.append(log.noting("before"))
    log.hooks.after.append(log.noting("after"))
    error = with_hooks(log.handler(lambda: 1 // 0), log.hooks).handle({}, context()).error
    assert type(error) is ZeroDivisionError
    assert [name for name, *_ in log.calls] == ["before", "run"]


@pytest.mark.parametrize("within", [nullcontext, answering], ids=["program", "launch"])
@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, RecursionError])
def test_what_a_hook_raises_is_warned_of_in_a_line_and_changes_nothing(
    log: Log, kind: type[BaseException], within: Callable[[], AbstractContextManager[None]]
) -> None:
    def bad(*_: Any) -> None:
        raise kind("of the hook")

    for hooks in (log.hooks.before, log.hooks.after, log.hooks.on_failure, log.hooks.on_dead):
        hooks += [bad, log.noting("good")]
    with within():
        assert with_hooks(log.handler(lambda: 42), log.hooks).handle({}, context()) == (None, 42)
        log.hooks.settled("on_failure", context, OSError(), 1.0)
        log.hooks.settled("on_dead", context, OSError())
    assert [name for name, *_ in log.calls] == ["good", "run", "good", "good", "good"]
    assert [warning.split()[:2] for warning in log.warnings] == [
        ["hook", "before"],
        ["hook", "after"],
        ["hook", "on_failure"],
        ["hook", "on_dead"],
    ]
    at = rf"\(\S*{Path(__file__).name}:\d+\)"
    assert all(re.search(rf"bad raised {kind.__name__}: of the hook {at}$", warning) for warning in log.warnings)


def test_a_hook_whose_error_has_no_text_is_warned_of_all_the_same(log: Log) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    def bad(_: Context) -> None:
        raise Mute

    log.hooks.before.append(bad)
    assert with_hooks(log.handler(lambda: 42), log.hooks).handle({}, context()).result == 42
    assert len(log.warnings) == 1


def in_main_thread(call: Callable[[], Any]) -> Any:
    return call()


def in_another_thread(call: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


IN_ANY_THREAD = pytest.mark.parametrize("where", [in_main_thread, in_another_thread])


@IN_ANY_THREAD
@pytest.mark.parametrize("kind", ["before", "after", "on_failure", "on_dead"])
def test_a_hook_that_hangs_is_stopped_warned_of_once_and_not_called_again(
    log: Log, kind: str, where: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*_: Any) -> None:
        log.calls.append(("hang",))
        while True:
            time.sleep(0.001)

    monkeypatch.setattr(hooks_of_runtime, "HOOK_TIMEOUT", 0.05)
    getattr(log.hooks, kind).extend([hang, log.noting("good")])
    handler = with_hooks(log.handler(lambda: 42), log.hooks)

    def call() -> None:
        if kind == "on_failure":
            log.hooks.settled("on_failure", context, OSError(), 1.0)
        elif kind == "on_dead":
            log.hooks.settled("on_dead", context, OSError())
        else:
            assert handler.handle({}, context()) == (None, 42)

    for _ in range(2):
        where(call)
    assert [name for name, *_ in log.calls if name != "run"] == ["hang", "good", "good"]
    assert log.warnings == [
        f"hook {kind} {hang.__qualname__} did not end within 0.05s; it is not called again in this launch"
    ]


@IN_ANY_THREAD
def test_the_time_that_a_hook_takes_is_none_of_its_handlers_timeout(log: Log, where: Callable[..., Any]) -> None:
    def linger(context: Context) -> None:
        time.sleep(0.3)
        assert context.time_left() == 0  # the window's, which has closed long ago

    log.hooks.before.append(linger)
    handler = log.handler(lambda: 42)
    handler = with_hooks(handler._replace(run=limited(handler.run, 0.2), timeout=0.2), log.hooks)
    assert where(lambda: handler.handle({}, context())) == (None, 42)

    async def run(_: dict[str, Any], __: LaunchContext | None) -> int:
        await asyncio.sleep(0)
        return 42

    handler = with_hooks(Handler("h", run, timeout=0.2, asynchronous=True), log.hooks)
    assert where(lambda: handler.handle({}, context())) == (None, 42)
    assert log.warnings == []


def test_failures_and_deaths_are_told_with_their_context_error_and_delay(log: Log) -> None:
    log.hooks.on_failure.append(log.noting("failure"))
    log.hooks.on_dead.append(log.noting("dead"))
    given, error, crash = context(), OSError("gone"), Crashed("crashed: three times")
    log.hooks.settled("on_failure", lambda: given, error, 2.5)
    log.hooks.settled("on_dead", lambda: given, crash)
    assert log.calls == [("failure", given, error, 2.5), ("dead", given, crash)]


def test_no_context_is_made_for_nobody(log: Log) -> None:
    log.hooks.settled("on_failure", unwanted, OSError(), 1.0)
    log.hooks.settled("on_dead", unwanted, OSError())
    handler = log.handler(lambda: 42)
    assert with_hooks(handler, log.hooks) is handler
    assert handler.hooks is None
    log.hooks.on_dead.append(log.noting("dead"))
    watched = with_hooks(handler, log.hooks)
    assert watched.hooks is log.hooks
    assert (watched.run, watched.takes_context) == (handler.run, False)


def test_before_and_after_run_on_the_thread_of_their_handler(log: Log) -> None:
    threads: list[str] = []

    def note(*_: Any) -> None:
        threads.append(threading.current_thread().name)

    log.hooks.before.append(note)
    log.hooks.after.append(note)
    executor = ThreadExecutor(1)
    attempt: Any = None
    executor.start(Attempt(attempt, with_hooks(log.handler(note), log.hooks), {}, context()))
    while not (done := executor.finished()):
        executor.wait(30)
    assert done[0].outcome.error is None
    assert threads == ["handler-0"] * 3


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def test_context_variables_set_by_a_hook_reach_the_handler_and_no_other_message(log: Log) -> None:
    seen: list[str] = []

    def look(*_: Any) -> None:
        seen.append(variable.get())

    log.hooks.before += [look, lambda _: variable.set("set")]
    handler = with_hooks(log.handler(look), log.hooks)
    handler.handle({}, context())
    handler.handle({}, context())
    assert seen == ["unset", "set", "unset", "set"]


def test_hooks_go_around_what_is_awaited_too(log: Log) -> None:
    async def run(payload: dict[str, Any], _: LaunchContext | None) -> int:
        await asyncio.sleep(0)
        log.calls.append(("run", payload))
        return 42

    log.hooks.before.append(log.noting("before"))
    log.hooks.after.append(log.noting("after"))
    given = context()
    handler = with_hooks(Handler("h", run, asynchronous=True), log.hooks)
    assert asyncio.run(handler.run({}, given)) == 42
    assert log.calls == [("before", given), ("run", {}), ("after", given, 42)]


def test_an_application_registers_hooks_and_has_its_functions_back(app: PollConsumer) -> None:
    def before(context: Context) -> None: ...
    def after(context: Context, result: Any) -> None: ...
    def on_failure(context: Context, error: BaseException, delay: float) -> None: ...
    def on_dead(context: Context, error: BaseException) -> None: ...

    assert app.before(before) is before
    assert app.after(after) is after
    assert app.on_failure(on_failure) is on_failure
    assert app.on_dead(on_dead) is on_dead
    hooks = calls_of(app).hooks
    assert (hooks.before, hooks.after, hooks.on_failure, hooks.on_dead) == ([before], [after], [on_failure], [on_dead])


async def waiting(context: Context) -> None: ...


@pytest.mark.parametrize("hook", [lambda: None, lambda *, keyword: keyword, waiting, 5])
def test_what_cannot_be_called_as_a_hook_is_refused(app: PollConsumer, hook: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^hook: "):
        app.before(hook)
    assert not calls_of(app).hooks


def test_hooks_watch_the_handlers_of_their_application_in_a_launch_and_of_no_other(site: Site) -> None:
    (site.directory / "handlers.py").write_text(
        "from pathlib import Path\nfrom pollconsumer import PollConsumer\n"
        "watched, other = PollConsumer(), PollConsumer()\n"
        "def note(*what):\n    with Path('notes').open('a') as file:\n        print(*what, file=file)\n"
        "@watched.handler\ndef add(a: int, b: int) -> int:\n    return a + b\n"
        "@other.handler\ndef unseen() -> None:\n    note('unseen')\n"
        "@watched.before\ndef before(context):\n    note('before', context.handler, context.id, context.attempt)\n"
        "@watched.before\ndef broken(context):\n    raise ValueError('two\\nlines')\n"
        "@watched.after\ndef after(context, result):\n    note('after', context.id, result)\n"
    )
    message = site.enqueue("add", a=1, b=2)
    site.enqueue("unseen")
    done = site.drain()
    assert done.returncode == 0
    assert done.stderr == "pollconsumer: warning: hook before broken raised ValueError: two\\nlines (handlers.py:18)\n"
    assert site.state(message) == "completed"
    assert site.notes() == [f"before add {message} 1", f"after {message} 3", "unseen"]
