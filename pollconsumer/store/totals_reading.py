"""Totals of all launches, as metrics show them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from pollconsumer.store.id_text import id_text
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.server import count_of
from pollconsumer.store.totals import LAST_BUCKET, SUM
from pollconsumer.store.wire import Wire


@dataclass
class Spans:
    """A histogram: its sum in seconds, and how many spans are in each bucket."""

    total: float = 0.0
    counts: dict[int, int] = field(default_factory=dict)


@dataclass
class Totals:
    """``settled`` by queue, handler and outcome, ``launches`` by role and stop reason, ``durations`` by handler,
    ``waits`` and ``lateness`` by queue."""

    settled: dict[tuple[str, str, str], int] = field(default_factory=dict)
    launches: dict[tuple[str, str], int] = field(default_factory=dict)
    durations: defaultdict[str, Spans] = field(default_factory=lambda: defaultdict(Spans))
    waits: defaultdict[str, Spans] = field(default_factory=lambda: defaultdict(Spans))
    lateness: defaultdict[str, Spans] = field(default_factory=lambda: defaultdict(Spans))


def totals_of(wire: Wire, keys: Keys) -> Totals:
    """Without those whose name is corrupt."""
    found, answer = Totals(), wire.command("HGETALL", keys.control("totals"))
    histograms = {"duration": found.durations, "waiting": found.waits, "lateness": found.lateness}
    for name, text in zip(answer[::2], answer[1::2], strict=True):
        number = max(0, count_of(text))
        match id_text(name).split("\n"):
            case ["settled", queue, handler, outcome]:
                found.settled[queue, handler, outcome] = number
            case ["launches", role, reason]:
                found.launches[role, reason] = number
            case [kind, subject, place] if kind in histograms and place == SUM:
                histograms[kind][subject].total = number / 1e6
            case [kind, subject, place] if kind in histograms and place.isdecimal() and int(place) <= LAST_BUCKET:
                histograms[kind][subject].counts[int(place)] = number
    return found
