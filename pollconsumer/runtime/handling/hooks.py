"""Hooks: functions called around handlers, for logging and tracing.

Their exceptions are logged and change nothing. A hook that exceeds its timeout is stopped, if possible, and not called
again in this process, so that not every message waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.retry import Skip
from pollconsumer.core.users_code import called
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.outcome import described_with_place, done_result, trace
from pollconsumer.runtime.handling.own_context import own_context
from pollconsumer.runtime.system.stray_forks import end_stray

if TYPE_CHECKING:
    from pollconsumer.runtime.drafts import BeforeEnqueue

Run = Callable[[dict[str, Any], LaunchContext | None], Any]
RunAsync = Callable[[dict[str, Any], LaunchContext | None], Coroutine[Any, Any, Any]]

MOST_CHARACTERS = 300
HOOK_TIMEOUT = 5.0
"""Timeout of one call of a hook, in seconds."""


class Crashed(Exception):
    """The process died too often while the message was in flight."""


def hook_timeout() -> float:
    return HOOK_TIMEOUT


def name_of(hook: object) -> str:
    return getattr(hook, "__qualname__", type(hook).__name__)


class Hooks:
    """The hooks of one application. ``warn`` is called with a line about a failed one, and its traceback."""

    def __init__(self, warn: Callable[[str, str], None]) -> None:
        self._warn = warn
        self.before: list[Callable[[LaunchContext], object]] = []
        self.after: list[Callable[[LaunchContext, Any], object]] = []
        self.on_failure: list[Callable[[LaunchContext, BaseException, float], object]] = []
        self.on_dead: list[Callable[[LaunchContext, BaseException], object]] = []
        self.on_expired: list[Callable[[LaunchContext], object]] = []
        self.before_enqueue: list[BeforeEnqueue] = []
        self.on_launch: list[Callable[[], object]] = []
        self.on_launch_end: list[Callable[[], object]] = []
        self._hung: set[object] = set()
        self._unsaid: set[object] = set()
        """Ids of hooks that hung and were not reported yet."""

    def __bool__(self) -> bool:
        """Whether any hook concerns a handler."""
        settled = self.on_failure or self.on_dead or self.on_expired
        return bool(self.before or self.after or settled or self.before_enqueue)

    def failed(self, context_of: Callable[[], LaunchContext], error: BaseException, delay: float) -> None:
        """An attempt failed, and there will be another in ``delay`` seconds."""
        if self.on_failure:
            own_context().run(self.call, "on_failure", context_of(), error, delay)

    def dead(self, context_of: Callable[[], LaunchContext], error: BaseException) -> None:
        if self.on_dead:
            own_context().run(self.call, "on_dead", context_of(), error)

    def expired(self, context_of: Callable[[], LaunchContext]) -> None:
        if self.on_expired:
            own_context().run(self.call, "on_expired", context_of())

    def call(self, kind: str, *arguments: Any, within: Callable[[], float] = hook_timeout) -> bool:
        """Call the hooks of a ``kind``, as before, on_failure or on_launch_end, each for ``within()`` seconds. Returns
        whether any of ``before`` has the handler skipped."""
        from pollconsumer.runtime.handling.interrupts.timeouts import call_within

        pid, skips = os.getpid(), False
        for hook in getattr(self, kind):
            failure: BaseException | None = None
            seconds = within()
            if id(hook) not in self._hung:
                try:
                    call_within(seconds, called, hook, *arguments, when_stopped=partial(self._hang, hook))
                except BaseException as error:
                    if kind == "before" and isinstance(error, Skip):  # GUARD a hook says so
                        skips = True
                    else:
                        failure = error
                end_stray(pid, failure)
            if failure is not None:
                problem = described_with_place(failure, MOST_CHARACTERS)
                self._warn(f"hook {kind} {name_of(hook)} raised {problem}", trace(failure))
            if id(hook) in self._unsaid:
                self._unsaid.discard(id(hook))
                limit = f"did not end within {seconds:.2g}s"
                self._warn(f"hook {kind} {name_of(hook)} {limit}; it is not called again in this launch", "")
        return skips

    def _hang(self, hook: object) -> None:
        """Note that a hook was stopped; log nothing, as it may hold the log's lock."""
        self._unsaid.add(id(hook))
        self._hung.add(id(hook))


def hooked(run: Run, hooks: Hooks, timeout: float | None) -> Run:
    """``run`` between its ``before`` and ``after`` hooks. It needs a context; its ``timeout`` begins after ``before``.
    Hooks and handler share the message's context variables."""

    def run_hooked(payload: dict[str, Any], context: LaunchContext | None) -> Any:
        assert context is not None
        skips = hooks.call("before", context)
        if timeout is not None:
            context.limit(timeout)
        # GUARD what is skipped
        result = None if skips else done_result(run(payload, context))
        hooks.call("after", context, result)
        return result

    return run_hooked


def hooked_coroutine(run: RunAsync, hooks: Hooks, timeout: float | None) -> RunAsync:
    """The same as `hooked`, for coroutines."""

    async def run_hooked(payload: dict[str, Any], context: LaunchContext | None) -> Any:
        assert context is not None
        skips = hooks.call("before", context)
        if timeout is not None:
            from pollconsumer.runtime.handling.coroutines.event_loop import restart_timeout

            context.limit(timeout)
            restart_timeout()
        # GUARD what is skipped, awaited
        result = None if skips else done_result(await run(payload, context))
        hooks.call("after", context, result)
        return result

    return run_hooked


def begin_launch(applications: Iterable[Hooks]) -> Callable[[Callable[[], float]], None]:
    """Call their ``on_launch`` hooks. Returns what calls their ``on_launch_end`` hooks; it is given a function: how
    many seconds the next one has.

    ConfigurationError if one fails: later ones are not called, and the applications before it are ended.
    """
    begun: list[Hooks] = []

    def end(left: Callable[[], float]) -> None:
        while begun:
            begun.pop().call("on_launch_end", within=left)

    pid = os.getpid()
    for hooks in applications:
        for hook in hooks.on_launch:
            failure: BaseException | None = None
            try:
                called(hook)
            except BaseException as error:
                failure = error
            end_stray(pid, failure)
            if failure is not None:
                end(hook_timeout)
                problem = f"it raised {described_with_place(failure, MOST_CHARACTERS)}"
                refusal = ConfigurationError("on_launch", name_of(hook), problem)
                refusal.traced = trace(failure)
                raise refusal from failure
        begun.append(hooks)
    return end
