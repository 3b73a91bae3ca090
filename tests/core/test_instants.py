"""Instants and spans in milliseconds."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.notation.instants import (
    LAST_MILLISECOND,
    ceil_epoch_ms,
    ceil_ms,
    clock,
    datetime_of,
    epoch_ms,
    exact_epoch_ms,
    given_instant,
    iso,
    iso_of,
)

MONTH_MS = 31 * 86_400_000
MILLISECONDS = st.integers(0, LAST_MILLISECOND)
ZONES = st.integers(-23, 23).map(lambda hours: timezone(timedelta(hours=hours)))
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(9000, 1, 1), timezones=ZONES)


@given(MILLISECONDS)
def test_a_millisecond_is_the_same_as_a_datetime(ms: int) -> None:
    moment = datetime_of(ms)
    assert moment.utcoffset() == timedelta(0)
    assert epoch_ms(moment) == ceil_epoch_ms(moment) == ms
    assert datetime.fromisoformat(iso(ms)) == moment


@given(MOMENTS)
def test_a_moment_lies_between_the_millisecond_below_it_and_the_one_above(moment: datetime) -> None:
    below, above = epoch_ms(moment), ceil_epoch_ms(moment)
    assert datetime_of(below) <= moment <= datetime_of(above)
    assert above - below == (moment.microsecond % 1000 > 0)
    assert below <= exact_epoch_ms(moment) <= above
    if moment.year < 2109:  # then a float of milliseconds has no microsecond any more
        assert round(exact_epoch_ms(moment) * 1000) == below * 1000 + moment.microsecond % 1000


@given(st.integers(10**9, 4 * 10**9), st.integers(0, 999))
def test_a_number_is_the_instant_of_so_many_seconds_since_the_epoch(seconds: int, ms: int) -> None:
    moment = datetime_of(seconds * 1000 + ms)
    assert given_instant(moment.timestamp()) == moment
    assert given_instant(seconds) == datetime_of(seconds * 1000)
    assert given_instant(iso(moment)) == moment


@given(st.integers(max_value=10**9 - 1) | st.integers(LAST_MILLISECOND // 1000 + 1) | st.floats(allow_nan=False))
def test_a_number_that_means_a_delay_or_milliseconds_is_no_instant(value: float) -> None:
    if not 10**9 <= value <= LAST_MILLISECOND / 1000:
        with pytest.raises(ValueError, match="seconds since the epoch"):
            given_instant(value)


@given(st.integers(0, MONTH_MS))
def test_seconds_are_as_many_milliseconds_as_they_say(ms: int) -> None:
    assert ceil_ms(ms / 1000) == ms


@given(st.integers(0, MONTH_MS * 1000))
def test_a_part_of_a_millisecond_counts_as_one(microseconds: int) -> None:
    assert ceil_ms(microseconds / 10**6) == -(-microseconds // 1000)


def test_text_is_in_utc_and_no_finer_than_asked_for() -> None:
    assert iso(1_896_080_400_999) == "2030-01-31T09:00:00.999Z"
    assert iso(LAST_MILLISECOND + 1) == iso(10**18) == "9999-12-31T23:59:59.999Z"
    assert iso_of(datetime(2030, 1, 31, 9, 0, 59, 999_999, UTC), "seconds") == "2030-01-31T09:00:59Z"


def test_a_time_has_its_date_only_where_that_is_not_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    now = epoch_ms(datetime(2026, 11, 29, 4, 30, tzinfo=UTC))
    assert [clock(now - hours * 3_600_000, now) for hours in (0, 23, 24)] == [
        "23:30:00", "00:30:00", "2026-11-27 23:30:00",
    ]  # fmt: skip
    assert [clock(now - hours * 3_600_000, now, utc=True) for hours in (4, 5)] == ["00:30:00", "2026-11-28 23:30:00"]
    monkeypatch.undo()
    time.tzset()
