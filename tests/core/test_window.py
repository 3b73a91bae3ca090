"""The window of a launch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.choices import HandOff
from pollconsumer.core.window import Window, predict_stop, why_stopped

INSTANTS = st.floats(-1e9, 1e9)
SPANS = st.floats(0, 1e6)
LAUNCHES = st.none() | st.tuples(INSTANTS, SPANS).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(INSTANTS, INSTANTS, SPANS)
def test_there_is_time_only_for_what_ends_before_the_window_does(now: float, stop_before: float, span: float) -> None:
    assert Window(0.0, stop_before).has_time(now, span) == (now + span < stop_before)


def test_what_would_end_exactly_with_the_window_has_no_time() -> None:
    window = Window(0.0, 60.0)
    assert window.has_time(50.0, 9.5)
    assert not window.has_time(50.0, 10.0)
    assert not window.has_time(60.0, 0.0)


@given(INSTANTS, INSTANTS)
def test_what_is_left_is_never_negative(now: float, stop_before: float) -> None:
    assert Window(0.0, stop_before).left(now) == max(0.0, stop_before - now)


@given(INSTANTS, SPANS, LAUNCHES)
def test_a_launch_is_gone_by_the_next_one_and_within_its_timeout(
    start: float, timeout: float, launches: tuple[float, float] | None
) -> None:
    stop = predict_stop(start, timeout, launches, HandOff.DEADLINE)
    assert stop <= start + timeout
    assert stop in (start + timeout, *(launches or ())[:1])
    if launches is not None:
        assert stop <= launches[0]


@given(INSTANTS, SPANS, LAUNCHES)
def test_under_the_baton_a_launch_outlives_one_that_was_skipped_and_no_more(
    start: float, timeout: float, launches: tuple[float, float] | None
) -> None:
    stop = predict_stop(start, timeout, launches, HandOff.BATON)
    assert stop <= start + 2 * timeout
    assert stop in (start + 2 * timeout, *(launches or ())[1:])
    assert stop >= predict_stop(start, timeout, launches, HandOff.DEADLINE)


def test_a_launch_that_the_platform_started_late_still_makes_way_in_time() -> None:
    assert predict_stop(7.0, 60.0, (60.0, 120.0), HandOff.DEADLINE) == 60.0
    assert predict_stop(7.0, 30.0, (60.0, 120.0), HandOff.DEADLINE) == 37.0
    assert predict_stop(7.0, 60.0, (60.0, 120.0), HandOff.BATON) == 120.0


def test_the_next_launch_counts_from_when_it_starts_and_not_from_its_time() -> None:
    assert predict_stop(1.8, 60.0, (60.0, 120.0), HandOff.DEADLINE, late=1.8) == 61.8
    assert predict_stop(1.8, 50.0, (60.0, 120.0), HandOff.DEADLINE, late=1.8) == 51.8
    assert predict_stop(0.3, 60.0, (60.0, 120.0), HandOff.DEADLINE, late=-11.5) == 48.5


def test_each_end_of_a_window_is_window_over_for_people() -> None:
    reasons = (None, "no_time_to_handle", "no_time_to_idle", "lease_held", "newer")
    assert [*map(why_stopped, reasons)] == ["running", "window over", "window over", "lease held", "newer"]
