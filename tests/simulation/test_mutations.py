"""The simulation finds what a guard keeps from happening, once it is taken out."""

from __future__ import annotations

from tests.faults.mutation_table import MUTATIONS
from tests.simulation.exploring import explore
from tests.simulation.mutations import OUTSIDE, caught, trial, without_cover
from tests.simulation.reaching import Reached
from tests.simulation.taking_over import a_paused_queue
from tests.simulation.unseen import UNSEEN

NAMED = {each.name: each for each in MUTATIONS}


def test_a_guard_that_is_taken_out_is_missed() -> None:
    found = caught(NAMED["enqueue: id in memory"], ["a_purge", "ids_that_are_remembered"], minutes=0.0, faults=0)
    assert found.by == "ids_that_are_remembered"
    assert found.violation == "what is forgotten, repeated: accepted, not known"


def test_reasons_are_given_for_guards_that_there_are() -> None:
    assert UNSEEN.keys() <= NAMED.keys()


def test_what_covers_a_guard_is_taken_out_with_it() -> None:
    edits = NAMED["checkpoint: fence compare"].edits
    [wider] = without_cover(NAMED["checkpoint: fence compare"])
    assert wider.name == "checkpoint: row compare"
    assert wider.edits == (*edits, *NAMED["checkpoint: row compare"].edits)


def test_it_is_known_which_guards_a_scenario_comes_to() -> None:
    reached = Reached()
    with reached.watching():
        explore(a_paused_queue, faults=0)
    in_a_script, in_python = "step: pause", "actions: rights"
    assert {in_a_script, in_python} <= reached.names
    assert not {"replace: it begins anew", "runtime/handling/journal: a recorded step"} & reached.names


def test_a_guard_to_which_nothing_comes_is_outside() -> None:
    found = trial(NAMED["rates: most of a rate"], {"a_purge": ["step: pause"]}, minutes=0.0)
    assert (found.found.by, found.remark) == ("", OUTSIDE)
