"""How far a message in hand has come, as its handler tells."""

from __future__ import annotations

from datetime import datetime
from math import isfinite
from typing import NamedTuple

from pollconsumer.core.errors import BadData
from pollconsumer.core.notation.instants import EPOCH

MOST_CHARACTERS = 200
"""Maximum length of a note."""


class Progress(NamedTuple):
    """How far a message has come: ``done`` of ``total``, which is None if unknown. ``at``: when the
    store got it, by the server's clock."""

    done: float
    total: float | None = None
    note: str = ""
    at: datetime = EPOCH

    def __str__(self) -> str:
        """The progress in words, for people."""
        number = f"{self.done:g}" if self.total is None else f"{self.done:g}/{self.total:g}"
        return f"{number} {self.note}".rstrip()


def checked(done: float, total: float | None, note: str) -> Progress:
    """The progress that a handler reports. BadData for a number that is none or is not finite, or for a long note."""
    for name, number in (("done", done), ("total", 0 if total is None else total)):
        if isinstance(number, bool) or not isinstance(number, int | float) or not _is_finite(number):
            raise BadData(f"progress: {name}", str(number)[:MOST_CHARACTERS], "give a finite number")
    if not isinstance(note, str) or len(note) > MOST_CHARACTERS:
        raise BadData("progress: note", str(note)[:MOST_CHARACTERS], f"at most {MOST_CHARACTERS} characters")
    return Progress(done, total, note)


def _is_finite(number: float) -> bool:
    try:
        return isfinite(number)
    except OverflowError:  # of an int beyond all floats
        return False
