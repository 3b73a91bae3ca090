"""Average durations, and the margin and batch size derived from them. All in seconds."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Protocol

from pollconsumer.core.window import Window

MEMORY = 100
"""Maximum weight of earlier messages, so that an average follows a handler that changed."""


class Average:
    """A mean, initialised from earlier launches."""

    __slots__ = ("count", "total")

    def __init__(self, mean: float = 0.0, count: int = 0) -> None:
        self.count = min(count, MEMORY)
        self.total = mean * self.count

    def add(self, duration: float) -> None:
        self.total += duration
        self.count += 1

    @property
    def mean(self) -> float | None:
        """None before the first measurement."""
        return self.total / self.count if self.count else None


class Durations:
    """Handling durations: the overall average, and one per handler.

    ``learned``, from earlier launches: handler → (mean, count).
    """

    def __init__(self, learned: dict[str, tuple[float, int]]) -> None:
        self.by_handler = defaultdict(Average, {name: Average(*entry) for name, entry in learned.items()})
        self.measured: defaultdict[str, Average] = defaultdict(Average)
        total = sum(average.total for average in self.by_handler.values())
        count = sum(average.count for average in self.by_handler.values())
        self.overall = Average(total / count if count else 0.0, count)

    def add(self, handler: str, duration: float) -> None:
        for average in (self.overall, self.measured[handler], self.by_handler[handler]):
            average.add(duration)

    @property
    def remembered_only(self) -> bool:
        """Whether all durations come from earlier launches."""
        return not self.measured and self.overall.count > 0

    def expected(self, handler: str) -> float | None:
        average = self.by_handler.get(handler)
        return average.mean if average else None


def margin(
    average: float | None,
    *,
    estimated_duration: float,
    tolerance_factor: float,
    min_margin: float = 0.0,
    concurrency: int = 1,
) -> float:
    """Time that must remain for another message to be taken.

    With n messages in flight the launch ends with the slowest. For exponentially distributed durations the expected
    maximum of n is H(n) = 1 + 1/2 + … + 1/n times the mean, so n slots multiply the article's margin by H(n).
    """
    expected = estimated_duration if average is None else average
    return max(min_margin, expected * tolerance_factor * _harmonic(concurrency))


class MarginRule(Protocol):
    """The settings that a margin follows from."""

    @property
    def estimated_duration(self) -> float: ...

    @property
    def tolerance_factor(self) -> float: ...

    @property
    def min_margin(self) -> float: ...


def margin_in(window: Window, durations: Durations, rule: MarginRule, concurrency: int) -> float:
    """The margin of a launch that has measured so much.

    Remembered durations may be out of date, so these alone leave half of the window: at least one message is handled
    and measured.
    """
    needed = margin(
        durations.overall.mean,
        estimated_duration=rule.estimated_duration,
        tolerance_factor=rule.tolerance_factor,
        min_margin=rule.min_margin,
        concurrency=concurrency,
    )
    if durations.remembered_only:
        needed = min(needed, max(rule.min_margin, (window.stop_before - window.start) / 2))
    return needed


@cache
def _harmonic(n: int) -> float:
    return sum(1 / k for k in range(1, n + 1))


def batch_size(average: float | None, *, horizon: float, left: float, concurrency: int, most: int) -> int:
    """How many messages to reserve in one round trip: those expected to end within the shorter of ``horizon`` and
    ``left``, the time until the margin; at least one per slot."""
    if average is None:
        return concurrency
    room = max(0.0, min(horizon, left))
    fitting = most if average * most <= room else int(room / average)
    return min(most, max(1, fitting) * concurrency)
