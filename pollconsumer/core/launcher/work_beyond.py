"""Messages that a launch handles beyond its window, as its heartbeat writes them into the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pollconsumer.core.notation.instants import clock, iso

MOST_NAMED = 3
_TYPES = [str, str, str, int, int]


class WorkBeyond(NamedTuple):
    """A message, since when it is handled, and until when it may be at most; in epoch ms of the server's clock."""

    handler: str
    queue: str
    id: str
    since: int
    until: int

    def as_json(self) -> dict[str, str]:
        return self._asdict() | {"since": iso(self.since), "until": iso(self.until)}


def read_work(stored: object) -> list[WorkBeyond]:
    """The messages of an entry, but for corrupt ones."""
    found = [each for each in stored if isinstance(each, list)] if isinstance(stored, list) else []
    return [WorkBeyond(*each) for each in found if [*map(type, each)] == _TYPES and min(each[3:]) >= 0]


def working_on(found: Sequence[WorkBeyond], now: int, *, utc: bool = False) -> str:
    """``working on render since 12:03:10, at most until 12:08:10``, with dates unless they are that of ``now``; in this
    machine's zone, or in ``utc``."""
    handlers = [*dict.fromkeys(each.handler for each in found)]
    others = f" and {len(handlers) - MOST_NAMED} others" if len(handlers) > MOST_NAMED else ""
    since, until = min(each.since for each in found), max(each.until for each in found)
    times = [clock(at, now, utc=utc) for at in (since, until)]
    return f"working on {', '.join(handlers[:MOST_NAMED])}{others} since {times[0]}, at most until {times[1]}"
