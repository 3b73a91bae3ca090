"""What a histogram of durations tells of them, and how exactly."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.durations import BOUNDS, LAST, Histogram
from tests.forecast.distributions import Distribution, Lognormal, draw
from tests.runtime.virtual import histogram
from tests.simulation.workloads import Bimodal, Exponential, Pareto


def of(durations: list[float]) -> Histogram:
    found = Histogram()
    for duration in durations:
        found.add(duration)
    return found


def test_a_quantile_is_the_duration_that_a_share_does_not_exceed() -> None:
    durations = of([0.1] * 90 + [2.0] * 10)
    for share, expected in ((0.0, 0.1), (0.5, 0.1), (0.89, 0.1), (0.9, 2.0), (0.99, 2.0), (1.0, 2.0)):
        assert durations.quantile(share) == pytest.approx(expected, rel=0.05)
    assert durations.quantile(0.2) < durations.quantile(0.4)


def exact_excess(durations: list[float], share: float) -> float:
    left, longer, bound = share * sum(durations), 0, max(durations)
    for duration in sorted(durations, reverse=True):
        if (bound - duration) * longer > left:
            break
        left -= (bound - duration) * longer
        longer, bound = longer + 1, duration
    return max(0.0, bound - left / longer)


def test_each_duration_is_in_the_bucket_whose_bound_is_the_first_that_it_does_not_exceed() -> None:
    for bucket, (below, bound) in enumerate(pairwise(BOUNDS), 1):
        assert dict(of([below * 1.0001, bound]).counts) == {bucket: 2}
    assert dict(of([0.0, 0.001]).counts) == {0: 2}
    assert dict(of([BOUNDS[-1], 1e9]).counts) == {LAST: 2}


def test_neighbouring_bounds_are_less_than_five_percent_apart_and_reach_from_a_millisecond_to_hours() -> None:
    assert all(1 < bound / below < 1.05 for below, bound in pairwise(BOUNDS))
    assert BOUNDS[0] == 0.001
    assert BOUNDS[-1] > 4 * 3600


@given(st.lists(st.floats(0, 1e4)), st.lists(st.floats(0, 1e4)))
def test_what_is_included_counts_as_if_it_had_been_added(first: list[float], second: list[float]) -> None:
    found = of(first)
    found.include(of(second))
    together = of(first + second)
    assert (found.counts, found.count) == (together.counts, together.count)
    assert found.total == pytest.approx(together.total)


@pytest.mark.parametrize("share", [0.0025, 0.01, 0.1])
@pytest.mark.parametrize("distribution", [Exponential(0.5), Lognormal(0.5, 1.5), Bimodal(0.5), Pareto(0.5)])
def test_the_excess_is_at_most_a_tenth_above_the_exact_one_and_never_below(
    distribution: Distribution, share: float
) -> None:
    chance = random.Random(1)
    durations = [draw(distribution, chance) for _ in range(4_000)]
    exact = exact_excess(durations, share)
    assert exact <= of(durations).excess(share) <= exact * 1.1


def test_without_durations_there_is_no_excess() -> None:
    assert Histogram().excess(0.01) == 0.0
    assert Histogram().mean is None


def test_a_rare_long_duration_that_takes_less_than_its_share_of_the_time_does_not_count() -> None:
    durations = histogram(0.01, 100_000)
    durations.add(5.0)
    assert durations.excess(0.01) < 0.011
