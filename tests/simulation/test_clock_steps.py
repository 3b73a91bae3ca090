"""A clock that is set by a second, an hour, two days, either way, under a launch or between two."""

from __future__ import annotations

import random

import pytest

from tests.leaving_out import long
from tests.simulation.stepping import Step, Stepping

HOUR, DAY = 3600.0, 86400.0
STEPS = [by * way for by in (1.0, HOUR, 2 * DAY) for way in (1, -1)]


BRIEFLY = {(seconds, 1 + (at + at // 2) % 2) for at, seconds in enumerate(STEPS)}
"""Of each length, one way between two launches, and the other under one."""
TRIED = [(seconds, seed) for seed in range(1, 41) for seconds in STEPS]


@pytest.mark.parametrize(("seconds", "seed"), [each if each in BRIEFLY else long(*each) for each in TRIED])
def test_all_goes_on_when_a_clock_is_set(seconds: float, seed: int) -> None:
    chance = random.Random(f"{seed} {seconds}")
    under, alone = seed % 2 == 0, seed % 4 in (1, 2)
    at = 120.0 + (chance.uniform(5.0, 50.0) if under else chance.uniform(-1.0, 1.0))
    assert Stepping(seed, Step(seconds, at, alone)).run().judge() == []
