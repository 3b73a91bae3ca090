"""What an application wants called around its handlers, for logging and tracing.

Hooks only watch: whatever they raise is logged, and changes nothing.
"""

from __future__ import annotations

from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pollconsumer.runtime.handlers import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pollconsumer.runtime.context import Context
    from pollconsumer.runtime.handlers import Handler

    Run = Callable[[dict[str, Any], Context | None], Any]
    RunAsync = Callable[[dict[str, Any], Context | None], Coroutine[Any, Any, Any]]

MOST_CHARACTERS = 300


class Crashed(Exception):
    """The process of a message died while the message was in flight, too often."""


class Hooks:
    """The hooks of one application. ``warn`` takes a line about one that failed."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self.before: list[Callable[[Context], object]] = []
        self.after: list[Callable[[Context, Any], object]] = []
        self.on_failure: list[Callable[[Context, BaseException, float], object]] = []
        self.on_dead: list[Callable[[Context, BaseException], object]] = []

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
        for hook in hooks:
            try:
                hook(*arguments)
            except BaseException as error:
                name = getattr(hook, "__qualname__", type(hook).__name__)
                self._warn(f"hook {kind} {name} raised {describe(error)[:MOST_CHARACTERS]}")


def hooked(run: Run, hooks: Hooks) -> Run:
    """``run`` between the hooks that go around it. It must be given a context.

    What hooks and handler set in context variables is seen by each other and gone afterwards.
    """

    def run_hooked(payload: dict[str, Any], context: Context | None) -> Any:
        assert context is not None
        hooks.starting(context)
        result = run(payload, context)
        hooks.returned(context, result)
        return result

    return lambda payload, context: copy_context().run(run_hooked, payload, context)


def hooked_coroutine(run: RunAsync, hooks: Hooks) -> RunAsync:
    """The same for what is awaited: a task has context variables of its own as it is."""

    async def run_hooked(payload: dict[str, Any], context: Context | None) -> Any:
        assert context is not None
        hooks.starting(context)
        result = await run(payload, context)
        hooks.returned(context, result)
        return result

    return run_hooked


def with_hooks(handler: Handler, hooks: Hooks) -> Handler:
    """``handler`` as an application with these hooks has it run: itself, where there are none."""
    if not hooks:
        return handler
    changes: dict[str, Any] = {"hooks": hooks}
    if hooks.before or hooks.after:
        around = hooked_coroutine if handler.asynchronous else hooked
        changes |= {"takes_context": True, "run": around(handler.run, hooks)}
    return replace(handler, **changes)
