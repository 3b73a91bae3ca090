"""A few seeds of the simulation: the promises hold, and a seed tells the same story each time."""

from __future__ import annotations

import pytest

from tests.simulation.story import tell


@pytest.mark.parametrize("seed", range(1, 6))
def test_every_promise_holds_in_simulated_minutes_of_faults(seed: int) -> None:
    report = tell(seed)
    assert report.violations == []
    assert report.executions > 0


def test_a_seed_tells_the_same_story_each_time() -> None:
    assert tell(9, messages=10).trace == tell(9, messages=10).trace
