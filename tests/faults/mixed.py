"""``python -m tests.faults.mixed --seeds 200 --messages 300 --faults 8``: the long form, two installations at a time.

Every seed is an installation of its own. A line for each violation, with its seed; the directory of such an
installation is kept, and named: what was recorded, what every command printed, the server's files. ``--first N
--seeds 1`` does what seed N did: the same options, operations and faults in the same order, if not at the same moments.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TYPE_CHECKING, NamedTuple

from tests.faults.checker import violations
from tests.faults.history import History
from tests.faults.storm import Storm

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_ONCE = 2


class Report(NamedTuple):
    seed: int
    violations: list[str]
    directory: str
    executions: int
    faults: list[str]


def run(seed: int, messages: int, faults: int | Sequence[str]) -> Report:
    """One seed. The installation is gone after it, unless it violates an invariant."""
    storm = Storm(seed, messages, faults)
    found, history = ["the run itself ended with an error"], History()
    try:
        history = storm.run()
        found = violations(history)
    finally:
        storm.close(keep=bool(found))
    return Report(seed, found, str(storm.installation.directory), len(history.executions), history.faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--faults", type=int, default=8)
    given = parser.parse_args()
    bad, faults, executions = 0, Counter[str](), 0
    with ProcessPoolExecutor(AT_ONCE, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        runs = [pool.submit(run, given.first + number, given.messages, given.faults) for number in range(given.seeds)]
        for done in as_completed(runs):
            report = done.result()
            for line in report.violations:
                print(f"seed {report.seed}: {line}", flush=True)
            if report.violations:
                print(f"seed {report.seed}: kept in {report.directory}", flush=True)
            bad += bool(report.violations)
            faults.update(report.faults)
            executions += report.executions
    print(
        f"{given.seeds} seeds, {bad} with violations; {executions} executions; {faults.total()} faults: {dict(faults)}"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
