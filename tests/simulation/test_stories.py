"""A few seeds of the simulation: the promises hold, and a seed tells the same story each time."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest

from pollconsumer.runtime.handling import bulk
from pollconsumer.runtime.handling.handler import CallOutcomes
from tests.leaving_out import long
from tests.simulation import installation
from tests.simulation.hosts.world import World
from tests.simulation.many import Tally, stories
from tests.simulation.story import GATHERED, acts_named, tell


@pytest.mark.parametrize("seed", [1, 2, *map(long, range(3, 11))])
def test_every_promise_holds_in_simulated_minutes_of_faults(seed: int) -> None:
    report = tell(seed)
    assert report.violations == []
    assert report.executions > 0


def test_a_launch_has_as_much_longer_to_end_as_its_machine_slept() -> None:
    """A mover that slept for 100 s was once said to be stuck."""
    assert tell(1534, messages=20, faults=4, minutes=2, queues=1, kept=frozenset({"fault-1"})).violations == []


def test_a_launch_that_does_not_exit_in_time_is_killed_by_its_heartbeat() -> None:
    """The heartbeat of such a launch once ended the simulation."""
    report = tell(481)
    assert report.violations == []
    assert any(
        line.endswith("launch killed, it had ended but its process did not exit in time") for line in report.trace
    )


def test_a_story_goes_on_until_a_launch_has_dropped_what_was_cancelled_while_ready() -> None:
    """One that was cancelled last, while nothing ran, was once said to stand in two places."""
    kept = frozenset({"p0-0", "p0-3"})
    assert tell(73732, messages=10, faults=3, minutes=1, queues=1, kept=kept).violations == []


def test_what_is_refused_when_it_is_repeated_may_have_been_done_before() -> None:
    """The reply to a reschedule was lost, and its repetition came too late: its message was once said to be early."""
    kept = frozenset({"fault-0", "fault-2", "p0-0", "p1-0", "p0-1", "p0-2", "p0-3"})
    assert tell(91349, messages=10, faults=3, minutes=1, queues=1, kept=kept).violations == []


def test_ends_that_reach_the_wrong_messages_of_a_call_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = frozenset(name for name in acts_named(60, 0) if name.startswith(GATHERED))
    told = tell(1, faults=0, kept=kept)
    assert told.violations == []
    assert "messages called together in bulk" in told.met
    monkeypatch.setattr(bulk, "CallOutcomes", lambda outcomes: CallOutcomes(outcomes[::-1]))
    violated = {line.partition(":")[0] for line in tell(1, faults=0, kept=kept).violations}
    assert "messages_of_a_call_end_as_it_says" in violated


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


def test_several_processes_tell_the_stories_that_one_does() -> None:
    story = partial(tell, messages=6, faults=2, minutes=1)
    alone, together = list(stories(story, 1, 2, 1)), list(stories(story, 1, 2, 2))
    assert [each.trace for each in together] == [each.trace for each in alone]


def test_launches_and_faults_are_summed() -> None:
    tally = Tally()
    for seed in (1, 2):
        report = tell(seed, messages=6, faults=2, minutes=1)
        tally.add(report._replace(launches=3, violations=["one"], faults=["server gone for 3.0 s", "run 7 killed"]))
    assert (tally.seeds, tally.violated, tally.launches) == (2, 2, 6)
    assert tally.faults == {"server gone for s": 2, "run killed": 2}
