"""Durations at random, each family with its mean; all in seconds.

A distribution gives its quantiles, and a draw is the quantile of a random share: one random number each, so that the
same source draws comparable values from any of them.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple, Protocol

_NORMAL = NormalDist()
_ALMOST_ONE = 1 - 1e-12


class Chance(Protocol):
    """A source of random numbers, as ``random.Random``."""

    def random(self) -> float:
        """A random number in [0, 1)."""


class Distribution(Protocol):
    def quantile(self, share: float) -> float:
        """The duration that a ``share`` of all does not exceed; ``share`` in [0, 1)."""


def draw(distribution: Distribution, chance: Chance) -> float:
    return distribution.quantile(chance.random())


class Lognormal(NamedTuple):
    """A lognormal distribution. ``sigma``: the standard deviation of the logarithm."""

    mean: float
    sigma: float = 1.0

    def quantile(self, share: float) -> float:
        deviations = _NORMAL.inv_cdf(min(max(share, 1 - _ALMOST_ONE), _ALMOST_ONE))
        return self.mean * math.exp(self.sigma * deviations - self.sigma**2 / 2)


def lognormal_between(low: float, high: float) -> Lognormal:
    """The lognormal distribution whose first and last percentile are ``low`` and ``high``, for what was measured as
    "from … to"."""
    sigma = math.log(high / low) / 2 / _NORMAL.inv_cdf(0.99)
    return Lognormal(math.sqrt(low * high) * math.exp(sigma**2 / 2), sigma)


class Demand(NamedTuple):
    """What a message does to its handler: it takes ``seconds``, infinitely many if it hangs; then, if it ``crashes``,
    it kills the process."""

    seconds: float
    crashes: bool = False


class Arrival(NamedTuple):
    """A message that arrives. ``due`` is later than ``sent`` if it is scheduled."""

    sent: float
    due: float
    handling: Demand
