"""What an application wants called around its handlers, for logging and tracing.

Hooks only watch: whatever they raise is logged, and changes nothing. One that does not end in time is stopped where it
can be, and not called again in this process: a thousand messages must not wait a thousand times.
"""

from __future__ import annotations

import os
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from pollconsumer.runtime.handling.outcome import describe
from pollconsumer.runtime.handling.stray_forks import end_stray

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pollconsumer.runtime.handling.context import Context

    Run = Callable[[dict[str, Any], Context | None], Any]
    RunAsync = Callable[[dict[str, Any], Context | None], Coroutine[Any, Any, Any]]

MOST_CHARACTERS = 300
HOOK_TIMEOUT = 5.0
"""Seconds that one call of a hook may take."""


class Crashed(Exception):
    """The process of a message died while the message was in flight, too often."""


def _name(hook: object) -> str:
    return getattr(hook, "__qualname__", type(hook).__name__)


class Hooks:
    """The hooks of one application. ``warn`` takes a line about one that failed."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self.before: list[Callable[[Context], object]] = []
        self.after: list[Callable[[Context, Any], object]] = []
        self.on_failure: list[Callable[[Context, BaseException, float], object]] = []
        self.on_dead: list[Callable[[Context, BaseException], object]] = []
        self._hung: set[object] = set()
        self._unsaid: set[object] = set()
        """Those that hung and were not yet warned of."""

    def __bool__(self) -> bool:
        return bool(self.before or self.after or self.on_failure or self.on_dead)

    def starting(self, context: Context) -> None:
        self._call("before", self.before, context)

    def returned(self, context: Context, result: Any) -> None:
        self._call("after", self.after, context, result)

    def failed(self, context_of: Callable[[], Context], error: BaseException, delay: float) -> None:
        """An attempt failed, and there will be another in ``delay`` seconds."""
        if self.on_failure:
            self._call("on_failure", self.on_failure, context_of(), error, delay)

    def dead(self, context_of: Callable[[], Context], error: BaseException) -> None:
        """A message became a dead letter."""
        if self.on_dead:
            self._call("on_dead", self.on_dead, context_of(), error)

    def _call(self, kind: str, hooks: list[Any], *arguments: Any) -> None:
        from pollconsumer.runtime.handling.timeouts import call_within

        pid = os.getpid()
        for hook in hooks:
            failure: BaseException | None = None
            if id(hook) not in self._hung:
                try:
                    call_within(HOOK_TIMEOUT, hook, *arguments, when_stopped=partial(self._hang, hook))
                except BaseException as error:
                    failure = error
                end_stray(pid, failure)
            if failure is not None:
                self._warn(f"hook {kind} {_name(hook)} raised {describe(failure)[:MOST_CHARACTERS]}")
            if id(hook) in self._unsaid:
                self._unsaid.discard(id(hook))
                limit = f"did not end within {HOOK_TIMEOUT:g}s"
                self._warn(f"hook {kind} {_name(hook)} {limit}; it is not called again in this launch")

    def _hang(self, hook: object) -> None:
        """Nothing is logged here: it may hold the lock of the log."""
        self._unsaid.add(id(hook))
        self._hung.add(id(hook))


def hooked(run: Run, hooks: Hooks, timeout: float | None) -> Run:
    """``run`` between the hooks that go around it. It must be given a context; its ``timeout`` begins after the first.

    What hooks and handler set in context variables is seen by each other and gone afterwards.
    """

    def run_hooked(payload: dict[str, Any], context: Context | None) -> Any:
        assert context is not None
        hooks.starting(context)
        if timeout is not None:
            context.limit(timeout)
        result = run(payload, context)
        hooks.returned(context, result)
        return result

    return lambda payload, context: copy_context().run(run_hooked, payload, context)


def hooked_coroutine(run: RunAsync, hooks: Hooks, timeout: float | None) -> RunAsync:
    """The same for what is awaited: a task has context variables of its own as it is."""

    async def run_hooked(payload: dict[str, Any], context: Context | None) -> Any:
        assert context is not None
        hooks.starting(context)
        if timeout is not None:
            from pollconsumer.runtime.handling.event_loop import restart_timeout

            context.limit(timeout)
            restart_timeout()
        result = await run(payload, context)
        hooks.returned(context, result)
        return result

    return run_hooked
