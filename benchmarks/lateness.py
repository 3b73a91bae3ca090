"""Due → handler start, of messages due at random instants: ``run`` alone, and beside ``move``."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime

from benchmarks.place import Figure, at, handler, notes, place, start, tcp_server

MESSAGES = 200
SPREAD = 10.0
LEAD = 2.5


def measure() -> list[Figure]:
    figures = []
    for commands in (["run"], ["move", "run"]):
        late = _late(commands)
        title = "due → handler" + (", beside a mover" if "move" in commands else "")
        if min(late) < 0:
            raise SystemExit(f"{title}: {-min(late):.3f} ms early")
        figures += [Figure(f"{title}, p{share * 100:.0f}", at(late, share), "ms") for share in (0.5, 0.99)]
    return figures


def _late(commands: list[str]) -> list[float]:
    with tcp_server() as url, place(url) as directory:
        processes = [start(command, "--timeout", "60s") for command in commands]
        begin = time.time() + LEAD
        note = handler("note")
        for due in [begin + random.uniform(0, SPREAD) for _ in range(MESSAGES)]:
            note.using(at=datetime.fromtimestamp(due, UTC)).enqueue(since=due)
        late = notes(directory, MESSAGES)
        for process in processes:
            process.terminate()
            process.wait()
    return late
