"""Takes the store's guards out, one by one, and says what the simulation violates then.

``python -m tests.simulation.mutations``. The guards are those of `tests.faults.mutation_table`; each is taken out of a
copy. Scenarios are tried that come to a guard's line, and stories if any does; a guard to which nothing comes is
outside. Prints a line for each, or with ``--table`` a table of all. Ends with 1 if one was not caught that should be.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, NamedTuple

from tests.faults.covering import GUARDS
from tests.faults.covering_table import COVERING
from tests.faults.mutation_table import MUTATIONS, Mutation
from tests.faults.mutations import copy_with
from tests.simulation.catalogue import CATALOGUE
from tests.simulation.hunting import STORIES, Found
from tests.simulation.unseen import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[2]
STORE = ROOT / "pollconsumer/store"
"""Files of mutations are relative to it."""
OUTSIDE = "outside: neither stories nor scenarios come to it"
NICE = 10
FEW = 8
MOST_SAID = 110
"""Characters of a violation that are printed."""


class Trial(NamedTuple):
    """``remark``: what else was taken out, or why it cannot be seen."""

    mutation: Mutation
    found: Found
    remark: str = ""

    def cells(self) -> list[str]:
        found = self.found
        if not found.by:
            return [self.mutation.name, "" if self.remark else "NOTHING", "", "", "", self.remark]
        after = [f"{found.minutes:.1f}", f"{found.runs:,}", f"{found.seconds:.1f}"]
        said = shorten(found.violation, MOST_SAID, placeholder=" …")
        return [self.mutation.name, found.by, *after, f"{self.remark} {said}".strip()]

    def row(self) -> str:
        cells = (cell.replace("|", r"\|") for cell in self.cells())
        return f"| {' | '.join(cells)} |"

    def line(self, width: int) -> str:
        name, by, minutes, runs, seconds, says = self.cells()
        return f"{name:{width}}  {by:36} {minutes:>6} min {runs:>6} runs {seconds:>5} s  {says}"


def reached(chosen: Sequence[Mutation]) -> Mapping[str, Collection[str]]:
    """The names of mutations by what comes to their lines: scenarios, and `STORIES`. For a few it is taken for granted
    that all do: to look takes longer than to hunt."""
    if len(chosen) <= FEW:
        names = frozenset(each.name for each in MUTATIONS)
        return dict.fromkeys([STORIES, *(each.__name__ for each in CATALOGUE)], names)
    command = [sys.executable, "-m", "tests.simulation.reaching"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return dict(json.loads(found))


def caught(mutation: Mutation, hunted: Collection[str], minutes: float, faults: int = 1) -> Found:
    """By what, on a copy without its guard. ``hunted``: names of scenarios, and `STORIES`."""
    with tempfile.TemporaryDirectory(prefix="pc-mutant-") as place:
        copy_with(mutation, Path(place))
        command = [sys.executable, "-m", "tests.simulation.hunting", f"--minutes={minutes}", f"--faults={faults}"]
        environment = os.environ | {"PYTHONPATH": place, "PYTHONDONTWRITEBYTECODE": "1"}
        nice = ["nice", "-n", str(NICE), *command, *hunted]
        done = subprocess.run(nice, cwd=place, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != -signal.SIGPROF:
            done.check_returncode()
        return Found(**json.loads(done.stdout.splitlines()[-1]))


def without_cover(mutation: Mutation) -> Iterator[Mutation]:
    """It together with the guards that cover it."""
    for guards in dict.fromkeys(each for sets in COVERING.values() for each in sets if mutation.name in each):
        others = [GUARDS[name] for name in guards if name != mutation.name]
        names = " and ".join(each.name for each in others)
        yield Mutation(names, (*mutation.edits, *(edit for each in others for edit in each.edits)))


def trial(mutation: Mutation, reached_by: Mapping[str, Collection[str]], minutes: float) -> Trial:
    """Alone, if that can be seen; otherwise with the guards that cover it.

    What is covered is tried alone in a shorter hunt: without faults in the catalogue.
    """

    def hunted(names: Collection[str]) -> list[str]:
        return [what for what, reached in reached_by.items() if not set(reached).isdisjoint(names)]

    reason, covered = UNSEEN.get(mutation.name), list(without_cover(mutation))
    own = hunted([mutation.name])
    if not own:
        reason = reason or OUTSIDE
    if reason is None and (found := caught(mutation, own, minutes, 0 if covered else 1)).by:
        return Trial(mutation, found)
    for wider in covered:
        if (found := caught(wider, hunted([mutation.name, *wider.name.split(" and ")]), minutes)).by:
            return Trial(mutation, found, f"covered by {wider.name}; without both:")
    return Trial(mutation, Found("", 0.0, 0, 0.0, ""), reason or "")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation.mutations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="parts of the mutations' names")
    parser.add_argument("--minutes", type=float, default=60.0, help="of stories, in virtual time, for each")
    parser.add_argument("--processes", type=int, default=1, help="at once")
    parser.add_argument("--table", action="store_true", help="print a table of all")
    given = parser.parse_args()
    chosen = [each for each in MUTATIONS if any(name in each.name for name in given.only)]
    if not chosen:
        print(f"no such mutation: {' '.join(given.only)}")
        return 2
    missed, reached_by = 0, reached(chosen)
    width = max(len(each.name) for each in chosen)
    if given.table:
        print("| Taken out | Caught by | Virtual minutes | Runs | Seconds | As |\n|---|---|--:|--:|--:|---|")
    with ThreadPoolExecutor(given.processes) as pool:
        for each in pool.map(partial(trial, reached_by=reached_by, minutes=given.minutes), chosen):
            missed += not (each.found.by or each.remark)
            print(each.row() if given.table else each.line(width), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
