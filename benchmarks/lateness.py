"""Due → handler start, of messages due at random instants: ``run`` alone, and beside ``move``.

The floor is a bare timer, in another process: ``select`` until each of as many instants, at the same time.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from datetime import UTC, datetime

from benchmarks.place import Figure, at, handler, notes, place, start, tcp_server

MESSAGES = 300
SPREAD = 20.0
LEAD = 2.5
BARE = """
import select, sys, time
for due in map(float, sys.argv[1:]):
    while (left := due - time.time()) > 0:
        select.select([], [], [], left)
    print((time.time() - due) * 1000)
"""


def measure() -> list[Figure]:
    figures = []
    for commands in (["run"], ["move", "run"]):
        late, bare = _late(commands)
        title = "due → handler" + (", beside a mover" if "move" in commands else "")
        if min(late) < 0:
            raise SystemExit(f"{title}: {-min(late):.3f} ms early")
        figures += [
            Figure(f"{title}, p{share * 100:.0f}", at(late, share), "ms", at(bare, share)) for share in (0.5, 0.99)
        ]
    return figures


def _late(commands: list[str]) -> tuple[list[float], list[float]]:
    with tcp_server() as url, place(url) as directory:
        processes = [start(command, "--timeout", "60s") for command in commands]
        begin = time.time() + LEAD
        note = handler("note")
        for due in _instants(begin):
            note.using(at=datetime.fromtimestamp(due, UTC)).enqueue(since=due)
        dues = map(str, sorted(_instants(begin)))
        bare = subprocess.run([sys.executable, "-c", BARE, *dues], check=True, stdout=subprocess.PIPE, text=True)
        late = notes(directory, MESSAGES)
        for process in processes:
            process.terminate()
            process.wait()
    return late, [float(line) for line in bare.stdout.splitlines()]


def _instants(begin: float) -> list[float]:
    return [begin + random.uniform(0, SPREAD) for _ in range(MESSAGES)]
