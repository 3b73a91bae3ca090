"""The cost of a message, and of looking, while 1,000 or a million others wait; the floor is that while 1,000 wait."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.place import Figure, handler, marks, place, plain_wire, run, server_seconds, share_one_core, tcp_server

if TYPE_CHECKING:
    from pathlib import Path

BACKLOG, MESSAGES, BULK, LOOKS = 1_000_000, 40_000, 20_000, 5
COMMANDS = {"status": ("status",), "list": ("list", "--state", "ready", "--limit", "100")}


def measure() -> list[Figure]:
    share_one_core()
    few, many = _beside(1_000), _beside(BACKLOG)
    names = ["drain beside a million, client and server", "enqueue beside a million, client and server"]
    units = ["µs", "µs", *("ms" for _ in COMMANDS)]
    names += [f"{name} with a million" for name in COMMANDS]
    return [Figure(*each) for each in zip(names, many, units, few, strict=True)]


def _beside(backlog: int) -> list[float]:
    """All figures, on a server that nothing else has used."""
    with tcp_server() as url, place(url) as directory:
        handler("plain").enqueue_many([{"n": 1}] * MESSAGES)
        run("run", "--until-empty")  # so that as many are forgotten as are completed
        return [*_costs(backlog, url, directory), *_looks()]


def _costs(backlog: int, url: str, directory: Path) -> tuple[float, float]:
    """µs of client and server for a message drained, and for one enqueued, while ``backlog`` others wait."""
    plain, wire = handler("plain"), plain_wire(url)
    plain.enqueue_many([{"n": n} for n in [*range(MESSAGES - 1), -1]])
    for first in range(0, backlog, BULK):
        plain.enqueue_many([{"n": n + 1} for n in range(min(BULK, backlog - first))])
    before = server_seconds(wire)
    run("run", "--until-empty", "--max-messages", str(MESSAGES))
    drained = marks(directory)[1] + server_seconds(wire) - before
    before, cpu = server_seconds(wire), time.process_time()
    plain.enqueue_many([{"n": n + 1} for n in range(MESSAGES)])
    enqueued = time.process_time() - cpu + server_seconds(wire) - before
    return drained / MESSAGES * 1e6, enqueued / MESSAGES * 1e6


def _looks() -> list[float]:
    """ms of each command, the least of several."""
    return [min(_look(command) for _ in range(LOOKS)) for command in COMMANDS.values()]


def _look(command: tuple[str, ...]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "pollconsumer", *command], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000
