"""``python -m tests.simulation --seeds 1000``: a line for each violation, and the command that repeats it in short."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import suppress

from tests.simulation.shrinking import shrink
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
    parser.add_argument("--minutes", type=int, default=3, help="of messages and faults")
    parser.add_argument("--only", metavar="NAMES", help="the faults and acts that happen; the others do not")
    parser.add_argument("--as-is", action="store_true", help="do not shrink what violates an invariant")
    given = parser.parse_args()
    kept = frozenset(given.only.split(",")) if given.only else None
    if given.unit:
        print(speed(30))
        return 0
    began, reports, bad, virtual = time.process_time(), 0, 0, 0.0
    launches = executions = 0
    faults = Counter[str]()
    with suppress(KeyboardInterrupt):  # the summary of those so far
        for seed in range(given.first, given.first + given.seeds):
            report = tell(seed, messages=given.messages, faults=given.faults, minutes=given.minutes, kept=kept)
            if given.story:
                print("\n".join(report.trace))
            for line in report.violations:
                print(f"seed {seed}: {line}", flush=True)
            if report.violations and kept is None and not given.as_is:
                left, short = shrink(seed, messages=given.messages, faults=given.faults, minutes=given.minutes)
                print("\n".join(["", *short.violations, "", *short.trace, ""]))
                options = f"--messages {given.messages} --faults {given.faults} --minutes {given.minutes}"
                repeat = f"--first {seed} --seeds 1 {options} --only {','.join(left)} --story"
                print(f"python -m tests.simulation {repeat}", flush=True)
            reports, bad, virtual = reports + 1, bad + bool(report.violations), virtual + report.virtual_seconds
            launches, executions = launches + report.launches, executions + report.executions
            faults.update(" ".join(word for word in each.split() if not word[:1].isdigit()) for each in report.faults)
    spent = time.process_time() - began
    print(
        f"{reports} seeds, {bad} with violations; {launches} launches of a consumer, {executions} executions, "
        f"{faults.total()} faults in {virtual / 86400:.1f} virtual days; {spent:.0f} s of processor time, "
        f"{launches / spent * 60:.0f} launches a minute"
    )
    print(", ".join(f"{count} {what}" for what, count in sorted(faults.items())))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
