"""Statistics of handling durations; the margin and the number of messages to reserve that follow from them. In seconds.

A launch ends late if a message that is in flight when its margin begins outlasts the margin. At any instant the message
in flight is likely a long one, so neither a multiple of the mean nor a quantile bounds the risk. By renewal theory,
with n slots the risk is n × Σ max(0, d − m) / Σ d over all durations d: the excess life beyond the margin m."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from pollconsumer.core.choices import LauncherRule, Loop
from pollconsumer.core.window import Window

PER_DOUBLING = 16
"""Buckets in each doubling: each upper bound is 4.4 % above the one before."""
BOUNDS = tuple(0.001 * 2 ** (number / PER_DOUBLING) for number in range(24 * PER_DOUBLING + 1))
"""Upper bounds of the buckets, from 1 ms to 4.7 hours. The first bucket has all shorter durations, the last all
longer."""
LAST = len(BOUNDS) - 1
GENERATION = 8_000
"""Durations are kept in two generations of so many messages. When the newer one is full, the older one is forgotten."""
HANDLER_LIMIT = 300.0
"""Default limit of a handler without a timeout, in seconds."""
MEMORY = 100
"""Most messages of earlier launches in an average, so that the average soon follows a handler that changed."""
OVERRUN_TARGETS = {LauncherRule.PARALLEL: 1.0, LauncherRule.QUEUE: 1.0, LauncherRule.DROP: 0.05}
"""Share of launches that may outlast their window. If the launcher starts the next launch anyway, an overrun costs
nothing, since the message goes on until its own limit. If the launcher drops the tick, an overrun costs a period."""
OVERRUN_TARGET_OF_BUDGETS = OVERRUN_TARGETS[LauncherRule.DROP]
"""The same share for a launch that its platform kills at the end of its window. There an overrun costs the attempt."""


class Histogram:
    """Durations: their sum, and their number in each bucket."""

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
        """The upper bound of the bucket of the longest duration. There must be at least one duration."""
        return BOUNDS[max(self.counts)]

    def up_to(self, longest: float) -> Histogram:
        """The histogram without the buckets above the one that holds ``longest``. If durations are left out, the new
        sum is computed from bucket bounds: at most 4.4 % too great for durations of a millisecond or more."""
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
        """The duration that a ``share`` of all durations does not exceed, as if durations were spread evenly over their
        bucket. There must be at least one duration."""
        rank, below = share * self.count, 0
        for bucket, count in sorted(self.counts.items()):
            if rank < below + count:
                low = BOUNDS[bucket - 1] if bucket else 0.0
                return low + (BOUNDS[bucket] - low) * (rank - below) / count
            below += count
        return self.longest

    def excess(self, share: float) -> float:
        """The least margin m for which the durations d fulfil Σ max(0, d − m) ≤ share × Σ d.

        Each duration counts as the upper bound of its bucket, and m is such a bound, too. So m is never less than the
        exact value. It is at most 9 % more than the exact value for a share 4.4 % smaller."""
        left, longer, bound = share * self.total, 0, 0.0
        for bucket in sorted(self.counts, reverse=True):
            down = longer * (bound - BOUNDS[bucket])
            if down > left:
                break
            left, longer, bound = left - down, longer + self.counts[bucket], BOUNDS[bucket]
        exact = bound - left / longer if longer else 0.0
        return BOUNDS[bisect_left(BOUNDS, exact, 0, LAST)] if exact > 0 else 0.0


class Average:
    """A mean that starts with the mean of earlier launches."""

    __slots__ = ("count", "mean", "total")

    def __init__(self, mean: float = 0.0, count: int = 0) -> None:
        self.count = min(count, MEMORY)
        self.total = mean * self.count
        self.mean: float | None = mean if count else None
        """The mean; None before the first measurement."""

    def add(self, duration: float) -> None:
        self.total += duration
        self.count += 1
        self.mean = self.total / self.count


class Durations:
    """Handling durations: the mean of all, the mean of each handler, and how long the long ones are.

    ``learned``: histograms of earlier launches, by handler. ``window``: seconds of the launch's window. Durations
    longer than the window count neither in the overall mean nor in the excess, except in the article's loop: such a
    message outlasts the window whenever it begins, and no margin prevents that."""

    def __init__(self, learned: Mapping[str, Histogram], window: float = math.inf, loop: Loop = Loop.WOKEN) -> None:
        self.measured: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.longest = 0.0
        """The longest duration that this launch has measured, among those that count."""
        self.longer_than_window = 0
        """How many of the durations that this launch has measured were longer than its window."""
        self._earlier, self._learned, self._window = learned, Histogram(), window
        self._longest_counted, self._left_out = math.inf if loop is Loop.ARTICLE else window, Average()
        self._averages = {}
        for name, earlier in learned.items():
            self._learned.include(earlier.up_to(self._longest_counted))
            self._averages[name] = Average(earlier.mean or 0.0, earlier.count)
        self.overall = Average(self._learned.mean or 0.0, self._learned.count)
        self._total = self._learned.total
        self._excess, self._valid_below = math.inf, 0.0

    def add(self, handler: str, duration: float) -> None:
        self.measured[handler].add(duration)
        if duration > self._window:
            self.longer_than_window += 1
            if duration > self._longest_counted:
                self._left_out.add(duration)
                return
        self.overall.add(duration)
        self._total += duration
        if duration > self.longest:
            self.longest = duration
        if duration > self._excess:
            self._valid_below = 0.0

    @property
    def mean(self) -> float | None:
        """The mean of all known durations, including those longer than the window if this launch measured them. None
        before the first one."""
        count = self.overall.count + self._left_out.count
        return (self.overall.total + self._left_out.total) / count if count else None

    @property
    def own_mean(self) -> float | None:
        """The mean of what this launch has measured; None before the first measurement."""
        count = sum(each.count for each in self.measured.values())
        return sum(each.total for each in self.measured.values()) / count if count else None

    def expected(self, handler: str) -> float | None:
        learned, measured = self._averages.get(handler), self.measured.get(handler)
        if learned is None:
            return measured.total / measured.count if measured else None
        if measured is None:
            return learned.mean
        return (learned.total + measured.total) / (learned.count + measured.count)

    def longest_of(self, handler: str) -> float | None:
        """The longest known duration of ``handler``, rounded up to the bound of its bucket; None if none is known."""
        known = (each for each in (self._earlier.get(handler), self.measured.get(handler)) if each)
        return max((BOUNDS[max(each.counts)] for each in known if each.counts), default=None)

    def excess(self, share: float) -> float:
        """The least m with Σ max(0, d − m) ≤ share × Σ d: see `Histogram.excess`. ``share`` never changes.

        The result is cached until a longer duration is added, or the sum of durations has grown by an eighth. Meanwhile
        it may be too long, but not too short, since durations up to m leave the first sum as it is."""
        if self._total >= self._valid_below:
            every = Histogram()
            for each in (self._learned, *self.measured.values()):
                every.include(each.up_to(self._longest_counted))
            self._excess, self._valid_below = every.excess(share), self._total * 1.125
        return self._excess


def margin(average: float | None, estimated_duration: float, tolerance_factor: float, concurrency: int = 1) -> float:
    """The article's margin: the time that must be left in the window to take another message.

    With n messages in flight the launch ends with the slowest. For exponentially distributed durations the expected
    maximum of n is H(n) = 1 + 1/2 + … + 1/n times the mean, so n slots multiply the article's margin by H(n)."""
    expected = estimated_duration if average is None else average
    return expected * tolerance_factor * _harmonic(concurrency)


class MarginRule(NamedTuple):
    """The settings that determine a margin."""

    estimated_duration: float
    tolerance_factor: float
    min_margin: float
    overrun_target: float
    loop: Loop = Loop.WOKEN


def margin_in(window: Window, durations: Durations, rule: MarginRule, concurrency: int) -> float:
    """The margin of a launch, given the ``durations`` known so far.

    Estimates and earlier launches may mislead. So, except in the article's loop, a margin that follows from them is at
    most half of the window, for any number of slots, until this launch has measured so long a duration."""
    expected, factor = rule.estimated_duration, rule.tolerance_factor
    if rule.loop is Loop.ARTICLE:
        return max(rule.min_margin, margin(durations.own_mean, expected, factor))
    needed = margin(durations.overall.mean, expected, factor, concurrency)
    if rule.overrun_target < 1:
        needed = max(needed, durations.excess(rule.overrun_target / concurrency))
    return max(rule.min_margin, min(needed, max(window.length / 2, durations.longest)))


@cache
def _harmonic(n: int) -> float:
    return sum(1 / k for k in range(1, n + 1))


def ahead(average: float | None, *, horizon: float, left: float, concurrency: int, most: int) -> int:
    """How many messages to reserve beyond those in the slots, ``most`` at most: as many as the slots will probably
    begin within ``horizon``, or ``left`` if that is less, both in seconds. ``average``: the mean duration."""
    if average is None:
        return 0
    room = max(0.0, min(horizon, left)) * concurrency
    return most if average * most <= room else int(room / average)
