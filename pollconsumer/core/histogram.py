"""Handling durations by size, and the margin that they call for. All in seconds.

A launch ends late if a message that it has in hand when its margin begins outlasts the margin. At any instant the
message in hand is likely a long one, so that no multiple of the mean and no quantile bounds this. By renewal theory,
with n slots it happens with probability n × Σ max(0, d − m) / Σ d over all durations d: the excess life beyond the
margin m.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping

PER_DOUBLING = 16
"""Buckets in each doubling: each upper bound is 4.4 % above the one before."""
BOUNDS = tuple(0.001 * 2 ** (number / PER_DOUBLING) for number in range(24 * PER_DOUBLING + 1))
"""Upper bounds of the buckets, from 1 ms to 4.7 hours. The first bucket has all shorter durations, the last one all
longer ones."""
LAST = len(BOUNDS) - 1
GENERATION = 8_000
"""Messages of a group that are forgotten together, once the same number of later ones is known."""


class Histogram:
    """Durations: their sum, and how many are in each bucket."""

    __slots__ = ("count", "counts", "total")

    def __init__(self, total: float = 0.0, counts: Mapping[int, int] | None = None) -> None:
        self.total = total
        self.counts: defaultdict[int, int] = defaultdict(int, counts or {})
        self.count = sum(self.counts.values())

    def add(self, duration: float) -> None:
        self.counts[bisect_left(BOUNDS, duration, 0, LAST)] += 1
        self.total += duration
        self.count += 1

    def include(self, other: Histogram) -> None:
        self.total += other.total
        self.count += other.count
        for bucket, count in other.counts.items():
            self.counts[bucket] += count

    @property
    def longest(self) -> float:
        """The upper bound of the longest duration; there is one at least."""
        return BOUNDS[max(self.counts)]

    def up_to(self, longest: float) -> Histogram:
        """The durations of at most ``longest``, and those in its bucket. Where longer ones are left out, the sum is
        that of the others' upper bounds: at most 4.4 % too great for durations of a millisecond or more."""
        first = bisect_left(BOUNDS, longest) + 1
        longer = sum(count * BOUNDS[bucket - 1] for bucket, count in self.counts.items() if bucket >= first)
        if not longer:
            return self
        kept = {bucket: count for bucket, count in self.counts.items() if bucket < first}
        whole = sum(count * BOUNDS[bucket] for bucket, count in kept.items())
        return Histogram(min(whole, max(0.0, self.total - longer)), kept)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def quantile(self, share: float) -> float:
        """The duration that a ``share`` of all does not exceed, as if those of a bucket were spread evenly over it;
        there is one duration at least."""
        rank, below = share * self.count, 0
        for bucket, count in sorted(self.counts.items()):
            if rank < below + count:
                low = BOUNDS[bucket - 1] if bucket else 0.0
                return low + (BOUNDS[bucket] - low) * (rank - below) / count
            below += count
        return self.longest

    def excess(self, share: float) -> float:
        """The least m with Σ max(0, d − m) ≤ share × Σ d.

        Each duration counts as its bucket's upper bound, and m is such a bound, too: it is never less than the exact
        one, and at most 9 % more than the exact one for a share 4.4 % smaller.
        """
        left, longer, bound = share * self.total, 0, 0.0
        for bucket in sorted(self.counts, reverse=True):
            down = longer * (bound - BOUNDS[bucket])
            if down > left:
                break
            left, longer, bound = left - down, longer + self.counts[bucket], BOUNDS[bucket]
        exact = bound - left / longer if longer else 0.0
        return BOUNDS[bisect_left(BOUNDS, exact, 0, LAST)] if exact > 0 else 0.0
