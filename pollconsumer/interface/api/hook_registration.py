"""Registers an application's hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.api.handler_options import is_asynchronous
from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.handling.hooks import Hooks

if TYPE_CHECKING:
    from pollconsumer.runtime.drafts import Draft

H = TypeVar("H", bound="Callable[..., object]")
Before = TypeVar("Before", bound="Callable[[Context], object]")
After = TypeVar("After", bound="Callable[[Context, Any], object]")
OnFailure = TypeVar("OnFailure", bound="Callable[[Context, BaseException, float], object]")
OnDead = TypeVar("OnDead", bound="Callable[[Context, BaseException], object]")
OnExpired = TypeVar("OnExpired", bound="Callable[[Context], object]")
BeforeEnqueue = TypeVar("BeforeEnqueue", bound="Callable[[Draft], object]")
OnLaunch = TypeVar("OnLaunch", bound="Callable[[], object]")


class HookRegistration:
    """Hooks apply to the application and all of its handlers, including those registered earlier.

    Their exceptions are logged in a line, and change nothing. ConfigurationError for a function that cannot be called
    as a hook.
    """

    _hooks: Hooks

    def before(self, hook: Before) -> Before:
        """Call ``hook(context)`` before each handler of this application runs, on its thread."""
        return _hook(self._hooks.before, hook, 1)

    def after(self, hook: After) -> After:
        """Call ``hook(context, result)`` when a handler has returned, on its thread."""
        return _hook(self._hooks.after, hook, 2)

    def on_failure(self, hook: OnFailure) -> OnFailure:
        """Call ``hook(context, error, delay)`` when an attempt failed: the next is in ``delay`` seconds."""
        return _hook(self._hooks.on_failure, hook, 3)

    def on_dead(self, hook: OnDead) -> OnDead:
        """Call ``hook(context, error)`` when a message became a dead letter, even without having been handled."""
        return _hook(self._hooks.on_dead, hook, 2)

    def on_expired(self, hook: OnExpired) -> OnExpired:
        """Call ``hook(context)`` when a message was not handled, because its expiry had come."""
        return _hook(self._hooks.on_expired, hook, 1)

    def before_enqueue(self, hook: BeforeEnqueue) -> BeforeEnqueue:
        """Call ``hook(draft)`` in the producer, before this application enqueues a message, or one of its handlers
        does. It may change ``draft.headers``; what it raises, such as ``Refused``, the caller gets, and nothing is
        sent."""
        return _hook(self._hooks.before_enqueue, hook, 1)

    def on_launch(self, hook: OnLaunch) -> OnLaunch:
        """Call ``hook()`` in each launch, once it has its lease, before it handles anything. If it raises, the launch
        ends, with exit code 78."""
        return _hook(self._hooks.on_launch, hook, 0)

    def on_launch_end(self, hook: OnLaunch) -> OnLaunch:
        """Call ``hook()`` at the end of each launch whose ``on_launch`` hooks were called, within five seconds."""
        return _hook(self._hooks.on_launch_end, hook, 0)


def _hook(hooks: list[Any], hook: H, parameters: int) -> H:
    name = getattr(hook, "__qualname__", type(hook).__name__)
    if is_asynchronous("hook", hook):
        raise ConfigurationError("hook", name, "make it a plain function, not an async one")
    try:
        inspect.signature(hook).bind(*[None] * parameters)
    except (TypeError, ValueError) as error:
        raise ConfigurationError("hook", name, f"it is given {parameters} arguments: {error}") from None
    hooks.append(hook)
    return hook
