"""Durations as people write and read them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.spans import UNITS, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("2s", 2),
        ("1m30s", 90),
        ("2h", 7200),
        ("1d", 86400),
        ("1.5h", 5400),
        ("90", 90),
        ("0.25", 0.25),
        (" 2s ", 2),
        (0, 0),
        (1.5, 1.5),
    ],
)
def test_a_duration_is_read_as_seconds(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(sorted(UNITS))), min_size=1, max_size=5))
def test_parts_add_up_in_any_order(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{number}{unit}" for number, unit in parts)
    assert parse_duration(text) == sum(float(number) * UNITS[unit] for number, unit in parts)


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_a_number_of_seconds_is_itself(seconds: float) -> None:
    assert parse_duration(seconds) == parse_duration(repr(seconds)) == seconds


@pytest.mark.parametrize(
    "value",
    [
        *("-5s", "5 minutes ago", "", " ", "s", "5x", "1m 30s", "1.m", ".5s", "1_0s", "5S", "five", "1" * 400 + "d"),
        *("nan", "inf", "1e999", -5, -0.1, math.nan, math.inf, -math.inf),
    ],
)
def test_what_is_no_duration_is_refused(value: str | float) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_duration(value)


@pytest.mark.parametrize("value", [True, False, None, ["5m"], b"5m", object()])
def test_what_is_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^must be seconds, text such as 1m30s, or a timedelta, not "):
        parse_duration(value)


@given(st.text())
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert math.isfinite(seconds)
    assert seconds >= 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.048, "48ms"),
        (12.3, "12.3s"),
        (12.04, "12s"),
        (0.9996, "1s"),
        (59.96, "1m"),
        (60, "1m"),
        (90, "1m 30s"),
        (3900, "1h 5m"),
        (90000, "1d 1h"),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.just(0.0) | st.floats(1e-6, 1e8))
def test_what_is_shown_is_read_back_as_about_the_same(seconds: float) -> None:
    again = parse_duration(format_duration(seconds).replace(" ", ""))
    assert math.isclose(again, seconds, rel_tol=0.05, abs_tol=0.0006)
