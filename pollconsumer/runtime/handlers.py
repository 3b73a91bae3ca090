"""Handlers as the consumer sees them: what runs under a name, and what its failures mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.message import Malformed
from pollconsumer.core.retry import Backoff
from pollconsumer.runtime.arguments import BadArguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.runtime.arguments import Arguments
    from pollconsumer.runtime.context import Context
    from pollconsumer.runtime.hooks import Hooks

MAX_ATTEMPTS = 5


class Outcome(NamedTuple):
    """What a handler returned, or raised."""

    error: BaseException | None = None
    result: Any = None


@dataclass(frozen=True, slots=True)
class Handler:
    """``run`` takes the payload, and the context where ``takes_context`` says so; it returns a result, or raises.

    ``timeout`` in seconds, None for none.
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
    hooks: Hooks | None = None

    def handle(self, payload: dict[str, Any], context: Context | None = None) -> Outcome:
        """Run it. The outcome holds what was raised, whatever that is: no handler ends a launch by raising."""
        try:
            return Outcome(result=self.run(payload, context))
        except BaseException as error:
            return Outcome(error)


def calling(function: Callable[..., Any], arguments: Arguments) -> Callable[[dict[str, Any], Context | None], Any]:
    """What runs a handler that is a function."""
    if arguments.takes_context:
        return lambda payload, context: function(**arguments.bind(payload), context=context)
    return lambda payload, _: function(**arguments.bind(payload))


def describe(error: BaseException) -> str:
    """``error`` as it is kept with the message, whatever it is made of."""
    try:
        text = str(error)
    except Exception as failure:
        text = f"(its text raised {type(failure).__name__})"
    if not isinstance(error, Malformed | BadArguments):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text.encode("utf-8", "backslashreplace").decode()
