"""``python -m tests.simulation --seeds 1000``: a line for each violation, and the command that repeats it in short."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from functools import partial

from tests.simulation.many import Tally, stories
from tests.simulation.shrinking import shrink
from tests.simulation.story import tell
from tests.simulation.unit import speed


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--launches", type=int, help="as many seeds as it takes for so many launches of a consumer")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--messages", type=int, default=60)
    parser.add_argument("--faults", type=int, default=6)
    parser.add_argument("--story", action="store_true", help="print what happened")
    parser.add_argument("--unit", action="store_true", help="measure the speed of simulated launches instead")
    parser.add_argument("--minutes", type=int, default=3, help="of messages and faults")
    parser.add_argument("--queues", type=int, choices=(1, 2), default=2)
    parser.add_argument("--only", metavar="NAMES", help="the faults and acts that happen; the others do not")
    parser.add_argument("--as-is", action="store_true", help="do not shrink what violates an invariant")
    given = parser.parse_args()
    kept = frozenset(given.only.split(",")) if given.only else None
    if given.unit:
        print(speed(30))
        return 0
    options = {"messages": given.messages, "faults": given.faults, "minutes": given.minutes, "queues": given.queues}
    last = None if given.launches else given.first + given.seeds - 1
    tally, told = Tally(), 0
    with suppress(KeyboardInterrupt):  # the summary of those so far
        for report in stories(partial(tell, **options, kept=kept), given.first, last, given.processes):
            tally.add(report)
            if given.story:
                print("\n".join(report.trace))
            for line in report.violations:
                print(f"seed {report.seed}: {line}", flush=True)
            if report.violations and kept is None and not given.as_is:
                left, short = shrink(report.seed, **options)
                print("\n".join(["", *short.violations, "", *short.trace, ""]))
                repeat = " ".join(f"--{name} {value}" for name, value in options.items())
                command = f"python -m tests.simulation --first {report.seed} --seeds 1 {repeat}"
                print(f"{command} --only {','.join(left)} --story", flush=True)
            if given.launches:
                if tally.launches >= given.launches:
                    break
                if tally.launches // 1000 > told:
                    told = tally.launches // 1000
                    print(tally, flush=True)
    print(tally)
    for counter in (tally.faults, tally.met):
        print(", ".join(f"{count} {what}" for what, count in sorted(counter.items())))
    return 1 if tally.violated else 0


if __name__ == "__main__":
    sys.exit(main())
