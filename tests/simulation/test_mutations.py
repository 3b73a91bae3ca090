"""The simulation finds what a guard keeps from happening, once it is taken out."""

from __future__ import annotations

from tests.faults.mutation_table import MUTATIONS
from tests.simulation.mutations import CATALOGUE_RUNS, STORIES_RUN, caught, is_loaded, without_cover

NAMED = {each.name: each for each in MUTATIONS}


def test_a_guard_that_is_taken_out_is_missed() -> None:
    found = caught(NAMED["enqueue: id in memory"], minutes=0.0, faults=0)
    assert found.by == "ids_that_are_remembered"
    assert found.violation == "what is forgotten, repeated: accepted, not known"


def test_what_covers_a_guard_is_taken_out_with_it() -> None:
    edits = NAMED["checkpoint: fence compare"].edits
    [wider] = without_cover(NAMED["checkpoint: fence compare"])
    assert wider.name == "checkpoint: row compare"
    assert wider.edits == (*edits, *NAMED["checkpoint: row compare"].edits)


def test_a_guard_is_hunted_where_its_module_is_loaded() -> None:
    names = "enqueue: id in memory", "runtime/handling/journal: a recorded step", "client/cluster_wire: asking"
    loaded = [[is_loaded(NAMED[name], runs) for runs in (CATALOGUE_RUNS, STORIES_RUN)] for name in names]
    assert loaded == [[True, True], [False, True], [False, False]]
