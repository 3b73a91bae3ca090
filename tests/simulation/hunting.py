"""Scenarios and seeds, likely ones first, until one of them violates an invariant.

``python -m tests.simulation.hunting --minutes 120 stories a_redrive`` prints JSON lines: what is tried next, then what
was found. A trial that does not end is killed by SIGPROF.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.catalogue import CATALOGUE
from tests.simulation.exploring import explore
from tests.simulation.story import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from tests.simulation.exploring import Scenario

MESSAGES, FAULTS, STORY_MINUTES = 60, 6, 3
LONGEST = 150.0
"""Seconds of processor time for a trial: three times the longest of the untouched tree. Without a guard that removes,
who goes on until nothing is left never ends."""
DOES_NOT_END = "does not end"
STORIES = "stories"
"""What stands for all stories among the names of scenarios."""


class Found(NamedTuple):
    """``by`` is empty if nothing was. Until then: virtual ``minutes``, ``runs`` of scenarios, ``seconds`` of processor
    time."""

    by: str
    minutes: float
    runs: int
    seconds: float
    violation: str


class Trial(NamedTuple):
    """``run`` returns virtual seconds, runs of a scenario, and what the invariants have against them."""

    name: str
    run: Callable[[], tuple[float, int, list[str]]]


class Hunt:
    """``minutes``: of virtual time, for stories; scenarios are gone through without faults, then with ``faults``.
    ``hunted``: names of scenarios, and `STORIES`."""

    def __init__(
        self, minutes: float, hunted: Collection[str], faults: int = 1, about: Callable[[Found], None] = lambda _: None
    ) -> None:
        """``about`` is told what is tried next, as if that found something."""
        self._minutes, self._faults, self._about = minutes if STORIES in hunted else 0.0, faults, about
        self._scenarios = [each for each in CATALOGUE if each.__name__ in hunted]
        self._virtual, self._told, self._runs = 0.0, 0.0, 0

    def found(self) -> Found:
        began = time.process_time()
        for trial in self._trials():
            seconds = time.process_time() - began
            self._about(Found(trial.name, self._virtual / 60, self._runs, seconds, DOES_NOT_END))
            try:
                seconds, runs, violations = trial.run()
            except Exception as error:  # without its guard, a script may fail in any way
                seconds, runs, violations = 0.0, 0, [f"{type(error).__name__}: {error}"]
            self._virtual, self._runs = self._virtual + seconds, self._runs + runs
            if violations:
                return Found(trial.name, self._virtual / 60, self._runs, time.process_time() - began, violations[0])
        return Found("", self._virtual / 60, self._runs, time.process_time() - began, "")

    def _trials(self) -> Iterator[Trial]:
        yield from self._stories(range(1, 2))  # one finds half of what is found, in a sixth of the catalogue's time
        yield from self._catalogue(0)
        yield from self._stories(count(2))
        if self._faults:  # it takes ten times as long as all that was tried before
            yield from self._catalogue(self._faults)

    def _stories(self, seeds: Iterable[int]) -> Iterator[Trial]:
        for seed in seeds:
            if self._told >= self._minutes * 60:
                return
            before = self._virtual
            yield _story(seed)
            self._told += self._virtual - before

    def _catalogue(self, faults: int) -> Iterator[Trial]:
        for scenario in self._scenarios:

            def run(scenario: Scenario = scenario) -> tuple[float, int, list[str]]:
                found = explore(scenario, faults=faults)
                return found.seconds, found.runs + found.cut, [line for lines, _ in found.violations for line in lines]

            yield Trial(f"{scenario.__name__}{f', {faults} fault' * (faults > 0)}", run)


def _story(seed: int) -> Trial:
    def run() -> tuple[float, int, list[str]]:
        report = tell(seed, messages=MESSAGES, faults=FAULTS, minutes=STORY_MINUTES)
        return report.virtual_seconds, 0, report.violations

    return Trial(f"seed {seed}", run)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation.hunting", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="of stories, in virtual time")
    parser.add_argument("--faults", type=int, default=1, help="at most so many in a run of the catalogue")
    parser.add_argument("hunted", nargs="+", help=f"names of scenarios, and {STORIES!r}")
    given = parser.parse_args()
    print(json.dumps(Hunt(given.minutes, given.hunted, given.faults, _begin).found()._asdict()))
    return 0


def _begin(trial: Found) -> None:
    print(json.dumps(trial._asdict()), flush=True)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)


if __name__ == "__main__":
    sys.exit(main())
