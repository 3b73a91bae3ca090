"""Streams of messages, whose durations are of a family of distributions, each with its mean; in seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from tests.forecast.distributions import Arrival, Chance, Demand, Distribution, draw


class Constant(NamedTuple):
    mean: float

    def quantile(self, queue_step: float) -> float:  # noqa: ARG002  the protocol has it
        return self.mean


class Uniform(NamedTuple):
    low: float
    high: float

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    def quantile(self, queue_step: float) -> float:
        return self.low + queue_step * (self.high - self.low)


class Exponential(NamedTuple):
    mean: float

    def quantile(self, queue_step: float) -> float:
        return -self.mean * math.log1p(-queue_step)


class Bimodal(NamedTuple):
    """``short`` or ``long``, mixed so that the mean is ``mean``."""

    mean: float
    short: float = 0.01
    long: float = 4.0

    def quantile(self, queue_step: float) -> float:
        return self.short if queue_step < (self.long - self.mean) / (self.long - self.short) else self.long


class Pareto(NamedTuple):
    """Heavy-tailed: the chance to exceed a duration falls with its power ``shape``, which is above 1."""

    mean: float
    shape: float = 1.3

    def quantile(self, queue_step: float) -> float:
        return self.mean * (1 - 1 / self.shape) * math.pow(1 - queue_step, -1 / self.shape)


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
