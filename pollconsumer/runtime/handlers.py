"""Handlers as the consumer sees them: a function under a name, and what its failures mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pollconsumer.core.message import Malformed
from pollconsumer.core.retry import Backoff, Fatal

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_ATTEMPTS = 5


class BadArguments(Fatal):
    """The payload does not fit the handler's parameters; it will not fit next time either."""


@dataclass(frozen=True, slots=True)
class Handler:
    name: str
    function: Callable[..., Any]
    max_attempts: int = MAX_ATTEMPTS
    backoff: Backoff = field(default_factory=Backoff)
    fatal: tuple[type[BaseException], ...] = ()
    takes_occurrence: bool = False
    """Whether the function has a parameter ``occurrence``, for the instant at which a recurrence was due."""

    def handle(self, payload: dict[str, Any]) -> BaseException | None:
        """Call the function. Returns what it raised, whatever that is: no handler ends a launch by raising."""
        try:
            if self.takes_occurrence and isinstance(payload.get("occurrence"), str):
                payload["occurrence"] = datetime.fromisoformat(payload["occurrence"])
            self.function(**payload)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                return BadArguments(f"bad_arguments: {error}")
            return error
        except BaseException as error:
            return error
        return None


def describe(error: BaseException) -> str:
    """``error`` as it is kept with the message, whatever it is made of."""
    try:
        text = str(error)
    except Exception as failure:
        text = f"(its text raised {type(failure).__name__})"
    if not isinstance(error, Malformed | BadArguments):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text.encode("utf-8", "backslashreplace").decode()
