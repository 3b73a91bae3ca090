"""Shrinking a story to what is needed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.shrinking import smallest
from tests.simulation.story import acts_named, faults_named, tell

NAMES = [f"n{number}" for number in range(20)]


@given(st.sets(st.sampled_from(NAMES), min_size=1))
def test_what_is_left_is_what_the_violation_needs(needed: set[str]) -> None:
    assert set(smallest(NAMES, lambda kept: needed <= set(kept))) == needed


def test_of_two_sufficient_causes_one_is_left() -> None:
    assert smallest(NAMES, lambda kept: "n3" in kept or "n12" in kept) in (["n3"], ["n12"])


def test_what_is_left_out_does_not_happen() -> None:
    quiet = tell(2, messages=6, minutes=1, kept=frozenset(["p0-0", "fault-1"]))
    assert [line.split()[1:] for line in quiet.trace if ": enqueue" in line] == [
        ["p0:", "enqueue", "p0-0"],
        ["p0:", "enqueue", "p0-0:", "ok"],
    ]
    assert len(quiet.faults) <= 1
    assert quiet.violations == []


def test_what_is_left_happens_as_in_the_whole_story() -> None:
    everything = frozenset([*faults_named(6), *acts_named(6, 6)])
    assert tell(2, messages=6, minutes=1, kept=everything).trace == tell(2, messages=6, minutes=1).trace
