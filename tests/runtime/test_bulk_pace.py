"""How large a call of a bulk handler may be, by what calls of its size and of others took."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.durations import Durations, MarginRule
from pollconsumer.core.window import Window
from pollconsumer.runtime.session.bulk_calls import BulkPace
from tests.runtime.virtual import histogram

WINDOW = Window(0.0, 100.0)
RULE = MarginRule(1.0, 2.0, min_margin=0.0, overrun_target=1.0)


def pace(*calls: tuple[int, float], every: Durations | None = None, slots: int = 1) -> BulkPace:
    """After calls of these sizes, which took these seconds."""
    made = BulkPace(WINDOW, RULE, slots, every or Durations({}), {"index": 200})
    for size, seconds in calls:
        made.add("index", size, seconds)
    return made


def test_a_call_is_judged_by_those_of_its_size() -> None:
    """However many there were of another."""
    after = pace(*[(1, 0.01)] * 1000, (200, 20.0))
    assert (after.margin("index", 1), after.margin("index", 200)) == pytest.approx((0.02, 40.0))


@pytest.mark.parametrize(
    ("known", "size", "margin"),
    [((1, 1.0), 2, 4.0), ((1, 1.0), 8, 16.0), ((16, 8.0), 4, 4.0), ((16, 8.0), 17, 16.0)],
)
def test_a_size_that_was_not_measured_is_judged_in_proportion(
    known: tuple[int, float], size: int, margin: float
) -> None:
    assert pace(known).margin("index", size) == pytest.approx(margin)


def test_a_launch_without_a_call_takes_the_longest_of_earlier_ones_for_a_full_one() -> None:
    earlier = Durations({"index": histogram(8.0, 3), "other": histogram(50.0, 3)})
    assert pace(every=earlier).margin("index", 200) == pytest.approx(16.0, rel=0.05)
    assert pace(every=earlier).margin("index", 64) == pytest.approx(8.0, rel=0.05)


def test_without_any_call_the_estimate_holds() -> None:
    assert pace().margin("index", 200) == 2.0


def test_what_was_not_measured_closes_half_of_the_window_at_most() -> None:
    assert pace((1, 1.0)).margin("index", 200) == 50.0
    assert pace((200, 60.0)).margin("index", 200) == 60.0


@pytest.mark.parametrize(("left", "size"), [(100.0, 200), (40.0, 100), (21.0, 100), (11.0, 50), (0.1, 1)])
def test_a_call_is_halved_until_it_fits(left: float, size: int) -> None:
    assert pace((200, 20.0)).fitting("index", 200, left) == size


@given(
    calls=st.lists(st.tuples(st.integers(1, 200), st.floats(0.001, 100)), max_size=10),
    most=st.integers(1, 200),
    left=st.floats(0, 100),
    slots=st.integers(1, 4),
)
def test_a_call_of_several_has_its_margin(calls: list[tuple[int, float]], most: int, left: float, slots: int) -> None:
    after = pace(*calls, slots=slots)
    size = after.fitting("index", most, left)
    assert 1 <= size <= most
    assert size == 1 or after.margin("index", size) < left
