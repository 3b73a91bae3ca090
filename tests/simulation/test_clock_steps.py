"""A clock that is set by a second, an hour, two days, either way, under a launch or between two."""

from __future__ import annotations

import random

import pytest

from tests.leaving_out import long
from tests.simulation.stepping import Step, Stepping

HOUR, DAY = 3600.0, 86400.0
STEPS = [by * way for by in (1.0, HOUR, 2 * DAY) for way in (1, -1)]


@pytest.mark.parametrize("seed", [1, 2, *map(long, range(3, 41))])
@pytest.mark.parametrize("seconds", STEPS)
def test_all_goes_on_when_a_clock_is_set(seconds: float, seed: int) -> None:
    chance = random.Random(f"{seed} {seconds}")
    under, alone = seed % 2 == 0, seed % 4 in (1, 2)
    at = 120.0 + (chance.uniform(5.0, 50.0) if under else chance.uniform(-1.0, 1.0))
    assert Stepping(seed, Step(seconds, at, alone)).run().judge() == []
