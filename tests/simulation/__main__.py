"""``python -m tests.simulation --seeds 1000``: a line for each violation; ``--first N --seeds 1 --story`` tells one."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.story import tell
from tests.simulation.unit import speed


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--messages", type=int, default=60)
    parser.add_argument("--faults", type=int, default=6)
    parser.add_argument("--story", action="store_true", help="print what happened")
    parser.add_argument("--unit", action="store_true", help="measure the speed of simulated launches instead")
    given = parser.parse_args()
    if given.unit:
        print(speed(30))
        return 0
    began, bad, launches, executions, virtual = time.process_time(), 0, 0, 0, 0.0
    faults = Counter[str]()
    for seed in range(given.first, given.first + given.seeds):
        report = tell(seed, messages=given.messages, faults=given.faults)
        if given.story:
            print("\n".join(report.trace))
        for line in report.violations:
            print(f"seed {seed}: {line}", flush=True)
        bad += bool(report.violations)
        launches, executions, virtual = (
            launches + report.launches,
            executions + report.executions,
            virtual + report.virtual_seconds,
        )
        faults.update(" ".join(word for word in each.split() if not word[:1].isdigit()) for each in report.faults)
    spent = time.process_time() - began
    print(
        f"{given.seeds} seeds, {bad} with violations; {launches} launches of a consumer, {executions} executions, "
        f"{faults.total()} faults in {virtual / 86400:.1f} virtual days; {spent:.0f} s of processor time, "
        f"{launches / spent * 60:.0f} launches a minute"
    )
    print(", ".join(f"{count} {what}" for what, count in sorted(faults.items())))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
