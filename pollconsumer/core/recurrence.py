"""Rules that yield due times: cron expressions in a time zone, and plain periods."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from pollconsumer.core.cron import Cron

if TYPE_CHECKING:
    from collections.abc import Iterator

ON_TIME = 90.0
"""Seconds by which an occurrence may be late and is not missed: a platform that launches every minute may skip one."""
MOST_CAUGHT_UP = 100
"""Most missed occurrences that are made up for at once."""
MOST_LOOKED_AT = 100_000
"""Most occurrences that are counted one by one; beyond them, what was missed is known to be at least so many."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What recurs, and when. Exactly one of ``cron`` and ``every`` (seconds) is set.

    ``missed``: what becomes of occurrences that nobody was there to enqueue: ``skip`` them, enqueue the last ``once``,
    or ``all``. ``overlap``: whether an occurrence is enqueued (``allow``) while the one before is unfinished. One
    that is not ``enabled`` is known and yields nothing.
    """

    name: str
    handler: str
    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"
    queue: str = "default"
    payload: dict[str, Any] = field(default_factory=dict)
    priority: int = 0
    missed: str = "once"
    overlap: str = "allow"
    enabled: bool = True
    occurrence_wanted: bool = False
    """Whether the handler takes its nominal instant as the argument ``occurrence``."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def instants(self, after_ms: int) -> Iterator[int]:
        """Nominal instants later than ``after_ms``, in epoch milliseconds, ascending, without end."""
        if self.every is not None:
            step = round(self.every * 1000)
            instant = after_ms // step * step
            while True:
                instant += step
                yield instant
        assert self.cron is not None
        yield from Cron(self.cron).instants(after_ms, ZoneInfo(self.timezone))

    def next_after(self, after_ms: int) -> int | None:
        """The first instant later than ``after_ms``; None where the expression has none left."""
        return next(self.instants(after_ms), None)


@dataclass(frozen=True, slots=True)
class Tick:
    """What to do about a recurrence now: ``enqueue`` these instants, count ``skipped`` ones, look again at ``next``."""

    enqueue: tuple[int, ...]
    skipped: int
    next: int | None


def tick(recurrence: Recurrence, due_ms: int, now_ms: int) -> Tick:
    """What becomes of the occurrences from ``due_ms``, the first that was not dealt with, until ``now_ms``."""
    passed, ahead = [due_ms], recurrence.instants(due_ms)
    following = next(ahead, None)
    while following is not None and following <= now_ms and len(passed) < MOST_LOOKED_AT:
        passed.append(following)
        following = next(ahead, None)
    if following is not None and following <= now_ms:
        following = recurrence.next_after(now_ms)
    if recurrence.missed == "all":
        enqueue = passed[-MOST_CAUGHT_UP:]
    elif recurrence.missed == "once" or now_ms - passed[-1] <= ON_TIME * 1000:
        enqueue = passed[-1:]
    else:
        enqueue = []
    return Tick(tuple(enqueue), len(passed) - len(enqueue), following)
