"""How many real launches of a minute still hold the lease when the next one comes for it.

Four distributions with 1 and 4 slots, all at the same time, each with a backlog in a namespace of its own; their
launches start half a second apart, so as not to delay one another: ``python -m benchmarks.overruns --launches 8
--target 0.01``. Coverage is the share of time in which the lease was held.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from itertools import product

from benchmarks.place import handler, place, start, tcp_server
from tests.forecast.distributions import draw
from tests.simulation.overruns import BEYOND, DISTRIBUTIONS, MEAN, SLOTS

OFFSET = 1.0
"""Seconds from the minute to the first cell's start of a launch."""
APART = 0.5
"""Seconds from one cell's start to that of the next."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.overruns")
    parser.add_argument("--launches", type=int, default=8)
    parser.add_argument("--target", type=float, default=0.01)
    parser.add_argument("--cell", nargs=4, metavar=("STORE", "DISTRIBUTION", "SLOTS", "OFFSET"), help="one of them")
    given = parser.parse_args()
    if given.cell:
        store, name, slots, offset = given.cell
        measure(store, name, int(slots), float(offset), given.launches, given.target)
        return
    with tcp_server() as url:
        options = ["--launches", str(given.launches), "--target", str(given.target)]
        running = []
        for number, (name, slots) in enumerate(product(DISTRIBUTIONS, SLOTS)):
            cell = ["--cell", url, name, str(slots), str(OFFSET + APART * number)]
            running.append(subprocess.Popen([sys.executable, "-m", "benchmarks.overruns", *options, *cell]))
        for process in running:
            process.wait()


def measure(store: str, name: str, slots: int, offset: float, launches: int, target: float) -> None:
    os.environ["POLLCONSUMER_NAMESPACE"] = f"{name}-{slots}"
    with place(store):
        chance, count = random.Random(1), int((launches + 1) * 60 * slots / MEAN * BEYOND)
        durations = (draw(DISTRIBUTIONS[name], chance) for _ in range(count))
        handler("sleep").enqueue_many({"n": 1, "seconds": seconds} for seconds in durations)
        flags = ["--schedule", "* * * * *", "--concurrency", str(slots), "--overrun-target", str(target)]
        running = []
        for _ in range(launches + 1):
            time.sleep(60 - (time.time() - offset) % 60)
            running.append(start("run", *flags))
        for process in running:
            process.wait()
        command = [sys.executable, "-m", "pollconsumer", "launches", "--json", "--limit", str(launches + 1)]
        entries = [each for each in json.loads(subprocess.check_output(command)) if each["role"] == "consumer"]
        margins = [f"{each['margin_seconds']:.1f}" for each in reversed(entries)]
        gaps = [after["gap_seconds"] for after in entries[-2::-1]]
        overran, coverage = sum(gap < 0.05 for gap in gaps), 1 - sum(gaps) / 60 / len(gaps)
        shown = " ".join(f"{gap:.1f}" for gap in gaps)
        print(
            f"{name:12} {slots} slots: {overran} of {len(gaps)} overran, coverage {coverage:.1%}; "
            f"gaps {shown}; margins {' '.join(margins)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
