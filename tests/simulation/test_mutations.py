"""The simulation finds what a guard keeps from happening, once it is taken out."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.faults.mutation_table import MUTATIONS
from tests.simulation.mutations import OUTSIDE, caught, trial, without_cover
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
    # In a process of its own: Python 3.11 can spin where it traces a process that switched greenlets before.
    command = (sys.executable, "-m", "tests.simulation.reaching", "a_paused_queue")
    reached = set(json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["a_paused_queue"])
    in_a_script, in_python = "step: pause", "actions: rights"
    assert {in_a_script, in_python} <= reached
    assert not {"replace: it begins anew", "runtime/handling/journal: a recorded step"} & reached


def test_a_guard_to_which_nothing_comes_is_outside() -> None:
    found = trial(NAMED["rates: most of a rate"], {"a_purge": ["step: pause"]}, minutes=0.0)
    assert (found.found.by, found.remark) == ("", OUTSIDE)
