"""What is wrong with a handler's arguments, as exceptions and in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pollconsumer.core.errors import shown
from pollconsumer.core.retry import Fatal

MOST_NAMED = 5
MOST_CHARACTERS = 300


class BadArguments(Fatal):
    """The payload does not fit the handler's parameters; no retry can help."""


class Mismatch(ValueError):
    """A value does not fit. ``problems``: each a path within the argument, and the error there, without values."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class NotOfJson(Exception):
    """A parameter's type has no JSON form."""


def refuse_thrown(error: Exception, call: Callable[..., object], *args: Any) -> None:
    """Raise ``error`` unless ``call`` fails so again: a signal handler, or another thread, has thrown it into that."""
    try:
        call(*args)
    except Exception as again:
        if type(again) is type(error):
            return
    raise error


def bad_arguments(problems: list[str]) -> BadArguments:
    if len(problems) > MOST_NAMED:
        problems = [*problems[:MOST_NAMED], f"and {len(problems) - MOST_NAMED} more"]
    text = f"bad_arguments: {'; '.join(problems)}"
    return BadArguments(text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…")


def listed(names: Iterable[str]) -> str:
    texts = [shown(name) for name in names]
    more = len(texts) - MOST_NAMED
    return ", ".join([*texts[:MOST_NAMED], f"and {more} more"] if more > 0 else texts)


def any_of(kinds: tuple[type, ...]) -> str:
    return " or ".join(name_of(kind) for kind in kinds) or "anything"


def name_of(kind: type) -> str:
    return "None" if kind is type(None) else kind.__name__


def reason_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
