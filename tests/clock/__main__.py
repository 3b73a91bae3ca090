"""Real launches while the wall clock is set: by a second, an hour, two days, forward or backward, and back again.

Run in the repository::

    python -m tests.clock [--only +3600]

Under launches and between them; the clock of the machine, or that of the server alone. A line for each; exit code 1 if
a promise does not hold, 2 when this machine cannot run it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

from tests.clock.judging import judge
from tests.clock.stepped import SOURCE, Seen, Step, Stepped

SECONDS = [by * way for by in (1.0, 3600.0, 172_800.0) for way in (1, -1)]
AT_ONCE = 3
"""A launch mostly waits."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clock", description="launches while the wall clock is set")
    parser.add_argument("--only", metavar="SECONDS", type=float, help="by which the clock is set first")
    only = parser.parse_args().only
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        sys.stderr.write("tests.clock: needs Linux and a C compiler, for a clock of its own\n")
        return 2
    steps = [Step(*each) for each in product(SECONDS if only is None else [only], (True, False), (True, False))]
    broken = 0
    with tempfile.TemporaryDirectory(prefix="pc-clock-") as place, ThreadPoolExecutor(AT_ONCE) as pool:
        clock = Path(place, "wall_clock.so")
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(clock), str(SOURCE), "-ldl"], check=True)
        for seen in pool.map(partial(_run, clock), steps):
            problems = judge(seen)
            broken += bool(problems)
            skipped = sum(each["skipped"] for each in seen.recurrences.values())
            print(f"{seen.step}: {len(seen.begun)} begun, {skipped} skipped, {len(seen.ledger)} launches", flush=True)
            for problem in problems:
                print(f"  {problem}", flush=True)
    print(f"{len(steps)} steps and back, {broken} of them broke a promise")
    return 1 if broken else 0


def _run(clock: Path, step: Step) -> Seen:
    return Stepped(step, clock).run()


if __name__ == "__main__":
    sys.exit(main())
