"""Handlers as the consumer sees them: what runs under a name, and what its failures mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import iscoroutine
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pollconsumer.core.message import Malformed
from pollconsumer.core.retry import Backoff
from pollconsumer.runtime.arguments import BadArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pollconsumer.runtime.arguments import Arguments
    from pollconsumer.runtime.context import Context

MAX_ATTEMPTS = 5


class Outcome(NamedTuple):
    """What a handler returned, or raised."""

    error: BaseException | None = None
    result: Any = None


@dataclass(frozen=True, slots=True)
class Handler:
    """``run`` takes the payload, and the context where ``takes_context`` says so; it returns a result, or raises.

    ``timeout`` in seconds, None for none. ``run`` keeps it by itself, except where it is ``asynchronous`` and returns a
    coroutine, and where it is ``isolated``, to be called in a process that can be killed.
    """

    name: str
    run: Callable[[dict[str, Any], Context | None], Any]
    max_attempts: int = MAX_ATTEMPTS
    backoff: Backoff = field(default_factory=Backoff)
    fatal: tuple[type[BaseException], ...] = ()
    queue: str = "default"
    takes_context: bool = False
    takes_occurrence: bool = False
    timeout: float | None = None
    asynchronous: bool = False
    isolated: bool = False

    def handle(self, payload: dict[str, Any], context: Context | None = None) -> Outcome:
        """Run it. The outcome holds what was raised, whatever that is: no handler ends a launch by raising."""
        try:
            result = self.begin(payload, context)
            if result is None or not iscoroutine(result):
                return Outcome(result=result)
            if self.asynchronous:
                return _on_loop(self, result)
            result.close()
            raise TypeError("it returned a coroutine; a handler that does must be declared with async def")
        except BaseException as error:
            return Outcome(error)

    def begin(self, payload: dict[str, Any], context: Context | None) -> Any:
        """What ``run`` returns: a coroutine where it is asynchronous. Its timeout begins now."""
        if self.timeout is not None and context is not None:
            context.limit(self.timeout)
        return self.run(payload, context)


def _on_loop(handler: Handler, coroutine: Coroutine[Any, Any, Any]) -> Outcome:
    """On a loop that is made for this one message: whoever has one calls ``run`` himself."""
    from pollconsumer.runtime.event_loop import EventLoop

    try:
        loop = EventLoop(thread=False)
    except BaseException:
        coroutine.close()
        raise
    try:
        return loop.handle(coroutine, handler.timeout)
    finally:
        loop.close()


class Limit(Protocol):
    """A timeout in force."""

    sparing: bool

    def spare(self) -> None:
        """Do not stop the handler until ``sparing`` is False again."""


in_force: dict[int, Limit] = {}
"""By the thread whose handler is to be stopped."""


class Unbroken:
    """A block of ours that a handler calls, and that a timeout must not leave in the middle: it is stopped after it."""

    __slots__ = ("_limit",)

    def __enter__(self) -> None:
        self._limit = in_force.get(get_ident())
        if self._limit is not None:
            try:
                self._limit.spare()
            except BaseException:
                self._limit.sparing = False
                raise

    def __exit__(self, *_: object) -> None:
        if self._limit is not None:
            self._limit.sparing = False


def calling(function: Callable[..., Any], arguments: Arguments) -> Callable[[dict[str, Any], Context | None], Any]:
    """What runs a handler that is a function."""
    if arguments.takes_context:
        return lambda payload, context: function(**arguments.bind(payload), context=context)
    return lambda payload, _: function(**arguments.bind(payload))


def describe(error: BaseException) -> str:
    """``error`` as it is kept with the message, whatever it is made of."""
    text = text_of(error)
    if not isinstance(error, Malformed | BadArguments):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text.encode("utf-8", "backslashreplace").decode()


def text_of(error: BaseException) -> str:
    """What it says of itself, where it can."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its text raised {type(failure).__name__})"
