"""Durations at random, each family with its mean; all in seconds.

A distribution gives its quantiles, and a draw is the quantile of a random share: one random number each, so that the
same source draws comparable values from any of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import NamedTuple, Protocol

_NORMAL = NormalDist()
_ALMOST_ONE = 1 - 1e-12


class Chance(Protocol):
    """A source of random numbers, as ``random.Random``."""

    def random(self) -> float:
        """In [0, 1)."""


class Distribution(Protocol):
    def quantile(self, share: float) -> float:
        """The duration that a ``share`` of all does not exceed; ``share`` in [0, 1)."""


def draw(distribution: Distribution, chance: Chance) -> float:
    return distribution.quantile(chance.random())


class Constant(NamedTuple):
    mean: float

    def quantile(self, share: float) -> float:  # noqa: ARG002  the protocol has it
        return self.mean


class Uniform(NamedTuple):
    low: float
    high: float

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    def quantile(self, share: float) -> float:
        return self.low + share * (self.high - self.low)


class Exponential(NamedTuple):
    mean: float

    def quantile(self, share: float) -> float:
        return -self.mean * math.log1p(-share)


class Lognormal(NamedTuple):
    """``sigma``: the standard deviation of the logarithm."""

    mean: float
    sigma: float = 1.0

    def quantile(self, share: float) -> float:
        deviations = _NORMAL.inv_cdf(min(max(share, 1 - _ALMOST_ONE), _ALMOST_ONE))
        return self.mean * math.exp(self.sigma * deviations - self.sigma**2 / 2)


def lognormal_between(low: float, high: float) -> Lognormal:
    """With ``low`` and ``high`` as its first and last percentile: what was measured as from … to."""
    sigma = math.log(high / low) / 2 / _NORMAL.inv_cdf(0.99)
    return Lognormal(math.sqrt(low * high) * math.exp(sigma**2 / 2), sigma)


class Bimodal(NamedTuple):
    """``short`` or ``long``, mixed so that the mean is ``mean``."""

    mean: float
    short: float = 0.01
    long: float = 4.0

    def quantile(self, share: float) -> float:
        return self.short if share < (self.long - self.mean) / (self.long - self.short) else self.long


class Pareto(NamedTuple):
    """Heavy-tailed: the chance to exceed a duration falls with its power ``shape``, which is above 1."""

    mean: float
    shape: float = 1.3

    def quantile(self, share: float) -> float:
        return self.mean * (1 - 1 / self.shape) * math.pow(1 - share, -1 / self.shape)


class Demand(NamedTuple):
    """What a message does to its handler: take so many ``seconds``, infinitely many if it hangs; then, if it
    ``crashes``, kill the process."""

    seconds: float
    crashes: bool = False


class Arrival(NamedTuple):
    """``due`` is later than ``sent`` for a scheduled message."""

    sent: float
    due: float
    handling: Demand


class Workload(NamedTuple):
    """A message each ``every`` seconds. ``hanging`` and ``crashing`` are shares of the messages; each
    ``scheduled``-th is due ``ahead`` seconds later than it is sent."""

    durations: Distribution
    every: float
    hanging: float = 0.0
    crashing: float = 0.0
    scheduled: int = 0
    ahead: float = 3.0

    def draw(self, chance: Chance) -> Demand:
        fate, seconds = chance.random(), draw(self.durations, chance)
        if fate < self.hanging:
            return Demand(math.inf)
        return Demand(seconds, crashes=fate < self.hanging + self.crashing)

    def messages(self, chance: Chance, begin: float, end: float) -> Iterator[Arrival]:
        """In the order of sending."""
        for number in range(math.ceil((end - begin) / self.every)):
            sent = begin + number * self.every
            later = self.scheduled and number % self.scheduled == self.scheduled - 1
            yield Arrival(sent, sent + self.ahead if later else sent, self.draw(chance))
