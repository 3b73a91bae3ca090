"""The note that stands in the place of each key of a closed store. Imported where one is found, or written."""

from __future__ import annotations

from typing import NamedTuple

from pollconsumer.core.errors import StoreUnreachable
from pollconsumer.core.notation.instants import iso

EXPORT, IMPORT = "export", "import"


class ClosingNote(NamedTuple):
    """Why a store is closed: ``for_`` its EXPORT or IMPORT, which has an ``id``."""

    at: int
    """Epoch ms of the server's clock."""
    for_: str
    id: str

    def __str__(self) -> str:
        return f"closed {self.at} {self.for_} {self.id}"

    @staticmethod
    def of(text: str) -> ClosingNote | None:
        words = text.split(" ")
        if len(words) != 4 or words[0] != "closed" or not words[1].isdecimal() or words[2] not in (EXPORT, IMPORT):
            return None
        return ClosingNote(int(words[1]), *words[2:])


def refusal(text: str) -> StoreUnreachable:
    """The error for whoever connects to a store that is closed, by its note."""
    note = ClosingNote.of(text)
    if note is None:
        return StoreUnreachable("store closed", None, "a newer version did that")
    if note.for_ == EXPORT:
        fix = "connect to the store that it moved to; or open it again: pollconsumer store reopen --yes"
        return StoreUnreachable("store closed", f"for its export, at {iso(note.at)}", fix)
    fix = "finish that: pollconsumer store import"
    return StoreUnreachable("store closed", f"its import, begun at {iso(note.at)}, is not finished", fix)
