"""A warning that goes on is printed often enough, and no oftener; its end is printed once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.repeats import (
    FORGOTTEN_AFTER,
    HOUR,
    MET_AGAIN_WITHIN,
    MOST_CHARACTERS,
    MOST_STREAKS,
    PRINTED_AT,
    RESUMED_WITHIN,
    Streaks,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

NOON = 1_700_000_000.0
MINUTE = 60.0
KINDS = ("failure", "standing", "met")


class Launches:
    """Launches one after another, each of which keeps what it knows as the next one finds it."""

    def __init__(self) -> None:
        self.now, self.kept, self.number = NOON, b"", 0

    def fail(self, *texts: str, kind: str = "failure") -> list[str]:
        """A launch that meets ``texts``; what it prints."""
        streaks, launch = Streaks.decode(self.kept), self._begin()
        printed = [streaks.meet(text, kind, text, launch, self.now) for text in texts]
        self.kept = streaks.encode(self.now)
        return [text for text in printed if text is not None]

    def succeed(self, *met: str, worked: bool = True) -> list[str]:
        streaks, launch = Streaks.decode(self.kept), self._begin()
        for text in met:
            streaks.meet(text, "standing", text, launch, self.now)
        lines = streaks.end(launch, self.now, worked=worked)
        self.kept = streaks.encode(self.now)
        return lines

    def _begin(self) -> str:
        self.number += 1
        return str(self.number)


def printed_at(launches: Iterable[list[str]]) -> list[int]:
    return [number for number, lines in enumerate(launches, 1) if lines]


def fail_each(seconds: float, times: int, launches: Launches, kind: str = "failure") -> list[list[str]]:
    lines = []
    for _ in range(times):
        lines.append(launches.fail("store down", kind=kind))
        launches.now += seconds
    return lines


@pytest.mark.parametrize("kind", KINDS)
def test_a_launch_a_minute_prints_at_1_2_5_15_60_and_hourly(kind: str) -> None:
    lines = fail_each(MINUTE, 60 * 24, Launches(), kind)
    assert printed_at(lines)[:8] == [1, 2, 5, 15, 60, 120, 180, 240]
    assert len(printed_at(lines)) == 4 + 24


def test_what_a_launch_that_began_before_a_change_may_meet_is_printed_from_the_second_in_a_row_on() -> None:
    launches = Launches()
    assert launches.fail("queue unserved", kind="lasting") == []
    assert launches.succeed() == []
    assert launches.fail("queue unserved", kind="lasting") == [], "not in a row"
    launches.now += 3 * FORGOTTEN_AFTER
    assert launches.fail("queue unserved", kind="lasting") == ["queue unserved (2 launches in 3d)"]
    assert launches.succeed() == ["resolved: queue unserved (seen in 2 launches, for 3d)"]
    assert printed_at(fail_each(MINUTE, 60, Launches(), "lasting")) == [2, 5, 15, 60]


def test_a_day_of_failures_at_intervals_of_an_hour_prints_each() -> None:
    assert len(printed_at(fail_each(3600.0 - 1, 24, Launches()))) == 24


def test_what_is_printed_again_says_for_how_long_it_has_gone_on() -> None:
    lines = fail_each(MINUTE, 5, Launches())
    assert lines == [["store down"], ["store down (2 launches in 1m)"], [], [], ["store down (5 launches in 4m)"]]


def test_the_end_is_printed_once_and_without_the_advice() -> None:
    launches = Launches()
    for _ in range(16):
        launches.fail("store: refused; start it")
        launches.now += MINUTE
    assert launches.succeed() == ["resolved: store: refused (failed in 16 launches, for 15m)"]
    assert launches.succeed() == []


@pytest.mark.parametrize(
    ("kind", "at_the_lease", "worked", "later"),
    [("failure", True, True, True), ("standing", False, True, True), ("met", False, False, True)],
)
def test_only_a_launch_that_can_know_ends_a_streak(kind: str, at_the_lease: bool, worked: bool, later: bool) -> None:
    for expected, does_work, wait in (
        (at_the_lease, False, MINUTE),
        (worked, True, MINUTE),
        (later, True, MET_AGAIN_WITHIN),
    ):
        launches = Launches()
        fail_each(MINUTE, 2, launches, kind)
        launches.now += wait - MINUTE
        assert bool(launches.succeed(worked=does_work)) is expected


def test_what_this_launch_met_is_not_over() -> None:
    launches = Launches()
    launches.fail("a", "b", kind="standing")
    assert launches.succeed("a") == ["resolved: b (seen in 1 launch)"]


def test_the_end_of_what_had_two_remedies_is_printed_once() -> None:
    launches = Launches()
    launches.fail("handlers: x; write a list", kind="failure")
    launches.fail("handlers: x; no such module", kind="failure")
    assert launches.succeed() == ["resolved: handlers: x (failed in 1 launch)"]


def test_what_one_launch_met_by_chance_ends_without_a_word() -> None:
    launches = Launches()
    launches.fail("hook raised", kind="met")
    launches.now += 2 * MET_AGAIN_WITHIN
    assert launches.succeed() == []
    assert launches.fail("hook raised", kind="met") == ["hook raised (2 launches in 4m)"]


def test_what_comes_back_within_an_hour_goes_on_where_it_was() -> None:
    launches = Launches()
    lines = []
    for _ in range(12):
        lines += [*launches.fail("store down"), *launches.succeed()]
        launches.now += MINUTE
    assert lines == [
        "store down", "resolved: store down (failed in 1 launch)",
        "store down (2 launches in 1m)", "resolved: store down (failed in 2 launches, for 1m)",
        "store down (5 launches in 4m)", "resolved: store down (failed in 5 launches, for 4m)",
    ]  # fmt: skip
    launches.now += RESUMED_WITHIN
    assert launches.fail("store down") == ["store down"]


def test_a_streak_is_forgotten_after_a_day() -> None:
    launches = Launches()
    fail_each(MINUTE, 20, launches)
    launches.now += FORGOTTEN_AFTER
    assert launches.fail("store down") == ["store down"]


def test_each_thing_that_a_launch_meets_is_a_streak_of_its_own() -> None:
    launches = Launches()
    for _ in range(3):
        launches.fail("a", kind="met")
    assert launches.fail("a", "b", kind="met") == ["b"]


def test_a_launch_counts_once_and_prints_all_or_nothing_of_what_it_meets_several_times() -> None:
    launches = Launches()
    told = []
    for _ in range(3):
        told.append(launches.fail("a", "a", "a", kind="met"))
        launches.now += MINUTE
    assert told == [["a", "a", "a"], ["a (2 launches in 1m)", "a", "a"], []]


def test_what_is_kept_is_bounded() -> None:
    launches = Launches()
    for number in range(3 * MOST_STREAKS):
        launches.fail(f"{number}" + "x" * 10_000)
        launches.now += 1
    assert len(json.loads(launches.kept)) == MOST_STREAKS
    assert len(launches.kept) < MOST_STREAKS * (2 * MOST_CHARACTERS + 200)
    assert launches.fail(f"{3 * MOST_STREAKS - 1}" + "x" * 10_000) != [], "the latest is kept"


@given(st.lists(st.tuples(st.booleans(), st.floats(1, 4000)), max_size=200))
def test_nothing_is_silent_for_long_and_nothing_said_too_often(story: list[tuple[bool, float]]) -> None:
    """Launches at any distance, of which some fail."""
    launches, said, began = Launches(), [], NOON
    ends = fails = 0
    for fails_now, pause in story:
        if fails_now:
            fails += 1
            if launches.fail("store down"):
                said.append(launches.now)
            assert launches.now - said[-1] < HOUR, "a launch that fails an hour after the last word is heard"
        else:
            ends += len(launches.succeed())
        launches.now += pause
    hours = (launches.now - began) / HOUR
    pauses = sum(pause >= RESUMED_WITHIN for _, pause in story)
    assert ends <= len(said) <= fails
    assert len(said) <= len(PRINTED_AT) * (1 + hours + pauses)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(KINDS), st.floats(0, 1e5)), max_size=20))
def test_what_is_kept_is_found_again(story: list[tuple[str, str, float]]) -> None:
    streaks, now = Streaks(), NOON
    for name, kind, pause in story:
        now += pause
        streaks.meet(name, kind, "text", str(now), now)
    kept = streaks.encode(now)
    assert Streaks.decode(kept).encode(now) == kept


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()), st.floats(0, 1e12))
def test_garbage_is_taken_for_nothing(stored: bytes, now: float) -> None:
    streaks = Streaks.decode(stored)
    assert streaks.meet("a", "failure", "text", "launch", now) == "text"
    streaks.end("another", now, worked=True)
    streaks.encode(now)


@pytest.mark.parametrize("launches", ["14", "0", "-3", "9" * 4300])
@pytest.mark.parametrize("began", ["940.0", "-1e400", "1e400", "1e300"])
def test_no_number_in_what_is_kept_ends_a_launch(launches: str, began: str) -> None:
    stored = f'{{"a": ["failure", {launches}, {began}, 990.0, 980.0, true, false, "text", "before"]}}'.encode()
    over = Streaks.decode(stored).end("now", 1000.0, worked=True)
    assert over == (["resolved: text (failed in 14 launches, for 50s)"] if (launches, began) == ("14", "940.0") else [])
    said = [Streaks.decode(stored).meet("a", "failure", "text", "now", now) for now in (1000.0, 9000.0)]
    assert all(text is None or text.startswith("text") for text in said)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_a_clock_that_is_set_silences_nothing_for_longer(steps: list[float]) -> None:
    launches, said = Launches(), 0.0
    for step in [0.0] * 20 + steps:
        launches.now = max(0.0, launches.now + step)
        if launches.fail("store down"):
            said = launches.now
        assert 0 <= launches.now - said < HOUR
