"""What launches were worth: coverage, gaps, latencies, overruns, from what was recorded of them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Spread(NamedTuple):
    """Quantiles of values, and the greatest one, in seconds; zeros if there are no values."""

    p50: float = 0.0
    p99: float = 0.0
    most: float = 0.0


def spread(values: Sequence[float]) -> Spread:
    if not values:
        return Spread()
    return Spread(quantile(values, 0.5), quantile(values, 0.99), max(values))


def quantile(values: Sequence[float], share: float) -> float:
    """The value that at most a ``share`` of the ``values`` is below; ``share`` in [0, 1]."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


class LeaseSpan(NamedTuple):
    """One launch's tenure of the lease, and the instant before which it was to stop; infinity if it had a message that
    was longer than its window."""

    acquired: float
    released: float
    stop_before: float


class Figures(NamedTuple):
    """What a table says of many launches.

    ``coverage``: the share of time in which the lease was held, from the start of the first tenure to that of the last.
    ``overruns``: the share of tenures that went on beyond their window. ``latency``: from the due time of a message, or
    its sending, to the start of its handler; ``lateness``: the same of those that were scheduled.
    """

    launches: int
    windows: int
    coverage: float
    gap: Spread
    latency: Spread
    lateness: Spread
    overruns: float
    dropped: int


class Record:
    """What is recorded of launches. ``tenures`` are in order of time."""

    def __init__(self) -> None:
        self.tenures: list[LeaseSpan] = []
        self.latencies, self.latenesses = array("d"), array("d")
        self.launches = self.dropped = self.ended_by_force = 0
        self.cut_off = 0.0
        """Seconds of handling that ended with their process, and have to be repeated."""

    def handled(self, latency: float, *, scheduled: bool) -> None:
        self.latencies.append(latency)
        if scheduled:
            self.latenesses.append(latency)

    def figures(self) -> Figures:
        gaps = [max(0.0, after.acquired - before.released) for before, after in pairwise(self.tenures)]
        whole = self.tenures[-1].acquired - self.tenures[0].acquired if self.tenures else 0.0
        overruns = sum(each.released > each.stop_before for each in self.tenures)
        return Figures(
            self.launches,
            len(self.tenures),
            1 - sum(gaps) / whole if whole else 0.0,
            spread(gaps),
            spread(self.latencies),
            spread(self.latenesses),
            overruns / len(self.tenures) if self.tenures else 0.0,
            self.dropped,
        )
