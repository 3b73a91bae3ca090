"""Drawn durations have their mean and quantiles, and follow from their source alone."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.forecast.distributions import Demand, Distribution, Lognormal, draw, lognormal_between
from tests.forecast.figures import quantile
from tests.simulation.workloads import Bimodal, Constant, Exponential, Pareto, Uniform, Workload

if TYPE_CHECKING:
    from collections.abc import Callable

MEANS = st.floats(0.001, 100)
WITH_MEAN: dict[str, Callable[[float], Distribution]] = {
    "constant": Constant,
    "uniform": lambda mean: Uniform(0.5 * mean, 1.5 * mean),
    "exponential": Exponential,
    "lognormal": Lognormal,
    "bimodal": lambda mean: Bimodal(mean, short=mean / 50, long=8 * mean),
    "Pareto": lambda mean: Pareto(mean, shape=3.0),
}


@pytest.mark.parametrize("name", WITH_MEAN)
@given(MEANS)
def test_the_mean_is_the_parameter(name: str, mean: float) -> None:
    distribution = WITH_MEAN[name](mean)
    shares = 2000
    average = math.fsum(distribution.quantile((n + 0.5) / shares) for n in range(shares)) / shares
    assert average == pytest.approx(mean, rel=0.02)


@pytest.mark.parametrize("name", WITH_MEAN)
@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=2, max_size=20).map(sorted))
def test_quantiles_are_positive_and_ascend(name: str, shares: list[float]) -> None:
    durations = [WITH_MEAN[name](1.0).quantile(share) for share in shares]
    assert durations == sorted(durations)
    assert all(0 <= duration < math.inf for duration in durations)


@given(MEANS)
def test_the_medians_are_those_of_their_families(mean: float) -> None:
    assert Exponential(mean).quantile(0.5) == pytest.approx(mean * math.log(2))
    assert Lognormal(mean, 1.5).quantile(0.5) == pytest.approx(mean * math.exp(-(1.5**2) / 2))
    assert Pareto(mean, 1.3).quantile(0.5) == pytest.approx(mean * 0.3 / 1.3 * 2 ** (1 / 1.3))


def test_what_was_measured_as_from_to_lies_there_in_all_but_two_percent() -> None:
    distribution = lognormal_between(0.3, 0.8)
    assert distribution.quantile(0.01) == pytest.approx(0.3)
    assert distribution.quantile(0.99) == pytest.approx(0.8)


@pytest.mark.parametrize("name", WITH_MEAN)
@given(st.integers())
def test_a_seed_draws_the_same_durations_each_time(name: str, seed: int) -> None:
    first, second = random.Random(seed), random.Random(seed)
    distribution = WITH_MEAN[name](1.0)
    assert [draw(distribution, first) for _ in range(9)] == [draw(distribution, second) for _ in range(9)]


def test_so_many_messages_hang_and_so_many_crash_their_process() -> None:
    workload, chance = Workload(Exponential(1.0), every=1.0, hanging=0.1, crashing=0.2), random.Random(1)
    drawn = [workload.draw(chance) for _ in range(10_000)]
    assert sum(each == Demand(math.inf) for each in drawn) == pytest.approx(1000, rel=0.1)
    assert sum(each.crashes for each in drawn) == pytest.approx(2000, rel=0.1)


def test_messages_are_sent_at_their_pace_and_some_are_due_later() -> None:
    workload = Workload(Constant(0.5), every=10.0, scheduled=3, ahead=4.0)
    assert list(workload.messages(random.Random(1), 5.0, 45.0)) == [
        (5.0, 5.0, Demand(0.5)),
        (15.0, 15.0, Demand(0.5)),
        (25.0, 29.0, Demand(0.5)),
        (35.0, 35.0, Demand(0.5)),
    ]


@given(values=st.lists(st.floats(0.0, 1e6), min_size=1), share=st.floats(0.0, 1.0, exclude_max=True))
def test_a_share_of_what_was_measured_is_below_its_quantile(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert found in values
    assert sum(each < found for each in values) <= share * len(values) <= sum(each <= found for each in values)
