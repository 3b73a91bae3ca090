"""Averages, the margin that they call for, and the batch that fits beside it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.durations import MEMORY, Average, Durations, batch_size, margin, margin_in
from pollconsumer.core.forecast import Margin
from pollconsumer.core.window import Window

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
    durations = Durations({"slow": (4.0, 2), "fast": (1.0, 2)})
    assert durations.overall.mean == 2.5
    durations.add("fast", 4.0)
    durations.add("new", 6.0)
    assert (durations.expected("slow"), durations.expected("fast"), durations.expected("new")) == (4.0, 2.0, 6.0)
    assert durations.overall.mean == 20 / 6


def test_only_what_this_launch_measured_is_to_be_remembered() -> None:
    durations = Durations({"known": (4.0, 50)})
    durations.add("known", 1.0)
    durations.add("known", 2.0)
    assert {name: (average.mean, average.count) for name, average in durations.measured.items()} == {"known": (1.5, 2)}


@given(SECONDS, SECONDS, FACTORS)
def test_the_margin_is_the_average_times_the_tolerance_factor(average: float, estimate: float, factor: float) -> None:
    assert margin(average, estimated_duration=estimate, tolerance_factor=factor) == average * factor
    assert margin(None, estimated_duration=estimate, tolerance_factor=factor) == estimate * factor


@given(st.none() | SECONDS, SECONDS, FACTORS, SECONDS, st.integers(1, 255))
def test_the_margin_has_a_floor_and_grows_with_the_slots(
    average: float | None, estimate: float, factor: float, floor: float, slots: int
) -> None:
    def margin_of(n: int) -> float:
        return margin(average, estimated_duration=estimate, tolerance_factor=factor, min_margin=floor, concurrency=n)

    assert floor <= margin_of(slots) <= margin_of(slots + 1)


@pytest.mark.parametrize(("slots", "expected"), [(1, 2.0), (2, 3.0), (4, 2 * (1 + 1 / 2 + 1 / 3 + 1 / 4))])
def test_n_slots_multiply_the_margin_by_the_expected_maximum(slots: int, expected: float) -> None:
    found = margin(2.0, estimated_duration=9, tolerance_factor=1, concurrency=slots)
    assert math.isclose(found, expected)


@given(st.none() | SECONDS, st.floats(0, 10), st.floats(-100, 1e6), st.integers(1, 64), st.integers(64, 256))
def test_a_batch_fills_every_slot_and_stays_within_its_bound(
    average: float | None, horizon: float, left: float, slots: int, most: int
) -> None:
    size = batch_size(average, horizon=horizon, left=left, concurrency=slots, most=most)
    assert slots <= size <= most


@given(st.floats(1e-4, 10), st.floats(0, 10), st.floats(0, 10))
def test_a_batch_beyond_one_message_fits_the_horizon_and_the_window(
    average: float, horizon: float, left: float
) -> None:
    size = batch_size(average, horizon=horizon, left=left, concurrency=1, most=128)
    assert size == 1 or size * average <= min(horizon, left) * (1 + 1e-9)


def test_while_nothing_is_known_a_batch_is_one_message_a_slot() -> None:
    assert batch_size(None, horizon=10, left=60, concurrency=3, most=128) == 3


def test_messages_that_take_no_time_come_in_the_largest_batch() -> None:
    assert batch_size(0.0, horizon=0.01, left=60, concurrency=1, most=128) == 128


def test_remembered_durations_leave_half_of_the_window_until_one_message_was_measured() -> None:
    durations, window = Durations({"slow": (30.0, 100)}), Window(0.0, 60.0)
    assert margin_in(window, durations, Margin(2.0, 5.0, 2.0), 1) == 30.0
    durations.add("slow", 30.0)
    assert margin_in(window, durations, Margin(2.0, 5.0, 2.0), 1) == 150.0


def test_the_estimated_duration_counts_until_one_is_known() -> None:
    rules, window = Margin(3.0, 4.0, 2.0), Window(0.0, 60.0)
    assert margin_in(window, Durations({}), rules, 1) == 12.0
    assert margin_in(window, Durations({"fast": (0.01, 9)}), rules, 1) == rules.min_margin
