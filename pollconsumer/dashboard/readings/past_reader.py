"""A day or a week of launches, as far as the ledger goes, and the totals, which go back to the first launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from pollconsumer.store.leases import LAUNCHES_KEPT, MOST_LAUNCHES_KEPT
from pollconsumer.store.reading.inspector import Inspector

HANDLERS = 50
"""Handlers whose totals are shown."""


class PastSpan(StrEnum):
    DAY = "day"
    WEEK = "week"

    @property
    def milliseconds(self) -> int:
        return 86_400_000 * (1 if self is PastSpan.DAY else 7)


class HandlerTotals(NamedTuple):
    """How the messages of a handler were settled, ever. ``mean_seconds``: how long one took; None if none did."""

    name: str
    completed: int
    retried: int
    dead: int
    others: int
    mean_seconds: float | None


class OfPast(NamedTuple):
    """The page of a day or a week. ``since``: the start of the oldest launch that is kept, in epoch ms, if that is
    later than the span's beginning."""

    now: int
    span: PastSpan
    launches: Sequence[Mapping[str, Any]]
    since: int | None
    totals: Sequence[HandlerTotals]


def past_of(inspector: Inspector, span: PastSpan) -> OfPast:
    """The page. The ledger is read whole."""
    now, kept = inspector.now(), inspector.launches(MOST_LAUNCHES_KEPT)
    begin = now - span.milliseconds
    found = [each for each in kept if each.get("started_ms", 0) > begin]
    oldest = min((each["started_ms"] for each in kept if "started_ms" in each), default=None)
    since = oldest if oldest is not None and oldest > begin and len(kept) >= LAUNCHES_KEPT else None
    return OfPast(now, span, found, since, _totals(inspector))


def _totals(inspector: Inspector) -> list[HandlerTotals]:
    totals = inspector.totals()
    settled: dict[str, Counter[str]] = {}
    for (_, handler, outcome), number in totals.settled.items():
        if handler:
            settled.setdefault(handler, Counter())[outcome] += number
    found = []
    for name, counts in settled.items():
        took = totals.durations.get(name)
        handled = sum(took.counts.values()) if took else 0
        mean = took.total / handled if took and handled else None
        first = (counts["completed"], counts["retried"], counts["dead"])
        found.append(HandlerTotals(name, *first, counts.total() - sum(first), mean))
    return sorted(found, key=lambda each: (-each.completed, each.name))[:HANDLERS]
