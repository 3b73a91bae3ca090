"""The quantiles of what was measured."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from pollconsumer.core.histogram import BOUNDS, Histogram


class Measured:
    """What was measured, in buckets from ``low`` to ``high``, over which values are spread evenly. ``upto``: the number
    of values in a bucket and all before it."""

    def __init__(self, low: Sequence[float], high: Sequence[float], upto: Sequence[int]) -> None:
        self._low, self._high, self._upto = low, high, upto

    @classmethod
    def values(cls, values: Iterable[float]) -> Measured:
        ordered = sorted(values)
        return cls(ordered, ordered, range(1, len(ordered) + 1))

    @classmethod
    def durations(cls, histogram: Histogram) -> Measured:
        buckets = sorted(bucket for bucket, count in histogram.counts.items() if count)
        low = [BOUNDS[bucket - 1] if bucket else 0.0 for bucket in buckets]
        upto = accumulate(histogram.counts[bucket] for bucket in buckets)
        return cls(low, [BOUNDS[bucket] for bucket in buckets], [*upto])

    def quantile(self, share: float) -> float:
        rank = share * self._upto[-1]
        at = min(bisect_right(self._upto, rank), len(self._upto) - 1)
        low, below = self._low[at], self._upto[at - 1] if at else 0
        return low + (self._high[at] - low) * (rank - below) / (self._upto[at] - below)
