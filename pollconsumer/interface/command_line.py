"""Finds the command and values of options in a command line that may be invalid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

LAUNCHES = ("run", "move")
OPTIONS_WITH_VALUE = ("--config", "--store", "--namespace")
"""Options that may stand before the command, and have a value."""


def command_in(arguments: Sequence[str]) -> str | None:
    """The command that ``arguments`` name; None if they name none."""
    words = iter(arguments)
    for word in words:
        if word in OPTIONS_WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


def values_of(option: str, arguments: Sequence[str]) -> Iterator[str]:
    """All values given for ``option``, which may be given several times."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if word == option:
            yield following
        elif word.startswith(f"{option}="):
            yield word.removeprefix(f"{option}=")
