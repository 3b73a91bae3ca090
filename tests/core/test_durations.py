"""Averages, the margin that they call for, and the page that fits beside it."""

from __future__ import annotations

import math
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.choices import Loop
from pollconsumer.core.durations import (
    BOUNDS,
    GENERATION,
    LAST,
    MEMORY,
    PER_DOUBLING,
    Average,
    Durations,
    Histogram,
    MarginRule,
    ahead,
    margin,
    margin_in,
)
from pollconsumer.core.window import Window
from tests.runtime.virtual import histogram

SECONDS = st.floats(0, 1e6)
FACTORS = st.floats(0, 100)


def test_nothing_measured_has_no_mean() -> None:
    assert Average().mean is None
    assert Durations({}).overall.mean is None
    assert Durations({}).expected("handler") is None


@given(st.lists(SECONDS, min_size=1))
def test_an_average_is_the_mean_of_what_was_added(durations: list[float]) -> None:
    average = Average()
    for duration in durations:
        average.add(duration)
    assert average.mean is not None
    assert math.isclose(average.mean, math.fsum(durations) / len(durations), rel_tol=1e-9, abs_tol=1e-9)


@given(SECONDS, st.integers(1, 10**6), SECONDS)
def test_what_was_learned_weighs_no_more_than_what_an_average_remembers(mean: float, count: int, added: float) -> None:
    average = Average(mean, count)
    average.add(added)
    weight = min(count, MEMORY)
    assert average.mean is not None
    assert math.isclose(average.mean, (mean * weight + added) / (weight + 1), rel_tol=1e-9, abs_tol=1e-9)


def test_each_handler_has_an_average_of_its_own_beside_the_one_over_all() -> None:
    durations = Durations({"slow": histogram(4.0, 2), "fast": histogram(1.0, 2)})
    assert durations.overall.mean == 2.5
    durations.add("fast", 4.0)
    durations.add("new", 6.0)
    assert (durations.expected("slow"), durations.expected("fast"), durations.expected("new")) == (4.0, 2.0, 6.0)
    assert durations.overall.mean == 20 / 6


def test_handlers_weigh_in_the_overall_average_as_often_as_they_were_called() -> None:
    durations = Durations({"nightly": histogram(40.0, 10), "mail": histogram(0.01, 4_000)})
    assert durations.overall.mean == pytest.approx((400 + 40) / 4_010)


def test_only_what_this_launch_measured_is_to_be_remembered() -> None:
    durations = Durations({"known": histogram(4.0, 50)})
    durations.add("known", 1.0)
    durations.add("known", 2.0)
    assert {name: (each.total, each.count) for name, each in durations.measured.items()} == {"known": (3.0, 2)}
    assert (durations.own_mean, durations.longest) == (1.5, 2.0)


@given(SECONDS, SECONDS, FACTORS)
def test_the_margin_is_the_average_times_the_tolerance_factor(average: float, estimate: float, factor: float) -> None:
    assert margin(average, estimate, factor) == average * factor
    assert margin(None, estimate, factor) == estimate * factor


@given(st.none() | SECONDS, SECONDS, FACTORS, st.integers(1, 255))
def test_the_margin_grows_with_the_slots(average: float | None, estimate: float, factor: float, slots: int) -> None:
    assert margin(average, estimate, factor, slots) <= margin(average, estimate, factor, slots + 1)


@pytest.mark.parametrize(("slots", "expected"), [(1, 2.0), (2, 3.0), (4, 2 * (1 + 1 / 2 + 1 / 3 + 1 / 4))])
def test_n_slots_multiply_the_margin_by_the_expected_maximum(slots: int, expected: float) -> None:
    found = margin(2.0, 9.0, 1.0, slots)
    assert math.isclose(found, expected)


@given(st.floats(1e-4, 10), st.floats(0, 10), st.floats(-100, 1e6), st.integers(1, 64), st.integers(0, 256))
def test_what_is_reserved_ahead_fits_the_horizon_the_window_and_its_bound(
    average: float, horizon: float, left: float, slots: int, most: int
) -> None:
    size = ahead(average, horizon=horizon, left=left, concurrency=slots, most=most)
    assert 0 <= size <= most
    assert size * average <= max(0.0, min(horizon, left)) * slots * (1 + 1e-9)


def test_while_nothing_is_known_nothing_is_reserved_ahead() -> None:
    assert ahead(None, horizon=10, left=60, concurrency=3, most=128) == 0


def test_messages_that_take_no_time_come_in_the_largest_page() -> None:
    assert ahead(0.0, horizon=0.01, left=60, concurrency=1, most=128) == 128


WINDOW = Window(0.0, 60.0)
RULE = MarginRule(2.0, 5.0, 2.0, overrun_target=0.01)


def test_what_is_remembered_or_estimated_leaves_half_of_the_window_until_a_duration_as_long_was_measured() -> None:
    durations = Durations({"slow": histogram(30.0, 100)})
    assert margin_in(WINDOW, durations, RULE, 1) == 30.0
    durations.add("slow", 20.0)
    assert margin_in(WINDOW, durations, RULE, 1) == 30.0
    durations.add("slow", 45.0)
    assert margin_in(WINDOW, durations, RULE, 1) == 45.0
    assert margin_in(WINDOW, Durations({}), RULE, 240) == 30.0


def test_one_long_duration_among_short_ones_leaves_half_of_each_later_window_until_it_is_forgotten() -> None:
    remembered = histogram(0.01, GENERATION)
    remembered.add(50.0)
    durations = Durations({"fast": remembered})
    for _ in range(10_000):
        durations.add("fast", 0.01)
        assert margin_in(WINDOW, durations, RULE, 1) <= 30.0
    assert margin_in(WINDOW, Durations({"fast": histogram(0.01, GENERATION)}), RULE, 1) == RULE.min_margin


REPORT, MAIL = histogram(180.0, 8), histogram(0.01, 800)


def in_window(**learned: Histogram) -> Durations:
    return Durations(learned, WINDOW.length)


@pytest.mark.parametrize("together", [False, True])
def test_durations_longer_than_the_window_leave_its_margin_as_it_is_whether_remembered_or_measured(
    together: bool,
) -> None:
    """``together``: one handler has long and short ones."""
    mixed = Histogram()
    for each in (REPORT, MAIL):
        mixed.include(each)
    durations = in_window(mail=mixed) if together else in_window(report=REPORT, mail=MAIL)
    assert margin_in(WINDOW, durations, RULE, 1) == RULE.min_margin
    assert durations.overall.mean == pytest.approx(0.01, rel=0.05)
    durations.add("mail" if together else "report", 200.0)
    assert margin_in(WINDOW, durations, RULE, 1) == RULE.min_margin
    assert durations.longest == 0.0
    assert durations.measured["mail" if together else "report"].total == 200.0
    assert (durations.expected("mail" if together else "report") or 0.0) > 1.0
    assert durations.longer_than_window == 1


def test_durations_as_long_as_the_window_count() -> None:
    remembered = histogram(0.01, 900)
    remembered.include(histogram(60.0, 100))
    assert margin_in(WINDOW, in_window(report=remembered), RULE, 1) == 30.0
    durations = in_window(mail=MAIL)
    durations.add("report", 60.0)
    assert margin_in(WINDOW, durations, RULE, 1) > 50.0


def test_a_launch_that_has_measured_nothing_but_longer_ones_has_the_margin_of_its_estimate() -> None:
    durations = in_window()
    for duration in (180.0, 200.0):
        durations.add("report", duration)
    assert durations.overall.mean is None
    assert margin_in(WINDOW, durations, RULE, 1) == 10.0


def test_the_articles_loop_counts_durations_longer_than_the_window() -> None:
    durations = Durations({}, WINDOW.length, Loop.ARTICLE)
    durations.add("report", 180.0)
    assert margin_in(WINDOW, durations, RULE._replace(loop=Loop.ARTICLE), 1) == 900.0
    assert durations.longer_than_window == 1


@given(st.lists(st.floats(0, 20_000), min_size=1, max_size=40), st.floats(0.5, 20_000))
def test_the_durations_of_a_histogram_up_to_a_longest_one_are_those_of_the_buckets_that_may_have_one(
    added: list[float], longest: float
) -> None:
    every = Histogram()
    for duration in added:
        every.add(duration)
    found = every.up_to(longest)
    bucket = bisect_left(BOUNDS, longest)
    kept = [each for each in added if min(bisect_left(BOUNDS, each), LAST) <= bucket]
    assert found.count == len(kept)
    assert math.fsum(kept) <= found.total * (1 + 1e-9) + 1e-9
    assert found.total <= math.fsum(kept) * 2 ** (1 / PER_DOUBLING) + 0.001 * len(kept) + 1e-9


def test_240_slots_leave_half_of_the_window_to_short_messages_and_all_but_the_least_margin_once_they_are_known() -> (
    None
):
    durations = Durations({})
    assert margin_in(WINDOW, durations, RULE, 240) == 30.0
    durations.add("fast", 0.01)
    assert margin_in(WINDOW, durations, RULE, 240) == RULE.min_margin


def test_the_estimated_duration_counts_until_one_is_known() -> None:
    rules = RULE._replace(estimated_duration=3.0, tolerance_factor=4.0)
    assert margin_in(WINDOW, Durations({}), rules, 1) == 12.0
    assert margin_in(WINDOW, Durations({"fast": histogram(0.01, 9)}), rules, 1) == rules.min_margin


def test_the_margin_is_the_excess_where_that_is_more_than_the_mean_calls_for() -> None:
    remembered = histogram(0.01, 900)
    remembered.include(histogram(4.0, 100))
    durations = Durations({"check": remembered})
    exact = 4.0 - 0.01 * remembered.total / 100
    assert exact <= margin_in(WINDOW, durations, RULE._replace(overrun_target=0.01), 1) <= exact * 1.1
    assert margin_in(WINDOW, durations, RULE._replace(overrun_target=1.0), 1) == pytest.approx(5 * 0.409)


def test_the_articles_margin_is_a_multiple_of_the_mean_that_this_launch_measured() -> None:
    rules = RULE._replace(loop=Loop.ARTICLE)
    durations = Durations({"slow": histogram(30.0, 100)})
    assert margin_in(WINDOW, durations, rules, 4) == 10.0
    durations.add("slow", 20.0)
    assert margin_in(WINDOW, durations, rules, 4) == 100.0


@given(st.lists(st.floats(0, 20_000), max_size=60), st.sampled_from([0.001, 0.01, 0.1, 0.5]))
def test_the_excess_is_never_short_of_the_exact_one_however_seldom_it_is_computed(
    added: list[float], share: float
) -> None:
    durations = Durations({})
    for n, duration in enumerate(added):
        durations.add("handler", duration)
        found = durations.excess(share)
        beyond = math.fsum(max(0.0, each - found) for each in added[: n + 1] if each < BOUNDS[-1])
        assert beyond <= share * math.fsum(added[: n + 1]) * (1 + 1e-9)


def test_the_excess_is_computed_some_dozens_of_times_for_a_hundred_thousand_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed = []
    excess = Histogram.excess

    def counted(histogram: Histogram, share: float) -> float:
        computed.append(share)
        return excess(histogram, share)

    monkeypatch.setattr(Histogram, "excess", counted)
    durations = Durations({})
    for n in range(100_000):
        durations.add("noop", 0.00001 * (1 + n % 7))
        durations.excess(0.01)
    assert 10 < len(computed) < 120
