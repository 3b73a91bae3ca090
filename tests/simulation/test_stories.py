"""A few seeds of the simulation: the promises hold, and a seed tells the same story each time."""

from __future__ import annotations

import gc
import weakref

import pytest

from pollconsumer.interface.testing.simulation.world import World
from tests.simulation import installation
from tests.simulation.story import tell


@pytest.mark.parametrize("seed", range(1, 6))
def test_every_promise_holds_in_simulated_minutes_of_faults(seed: int) -> None:
    report = tell(seed)
    assert report.violations == []
    assert report.executions > 0


def test_a_seed_tells_the_same_story_each_time() -> None:
    assert tell(9, messages=10).trace == tell(9, messages=10).trace


def test_nothing_of_a_story_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[weakref.ref[World]] = []

    def world(seed: int) -> World:
        made = World(seed)
        told.append(weakref.ref(made))
        return made

    monkeypatch.setattr(installation, "World", world)
    tell(2, messages=10)
    gc.collect()
    assert [made() for made in told] == [None]
