"""Going through a million completed messages, in Python and by ``list``: seconds, and the most memory of the process.
The floor of the memory is that for ten of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.place import Figure, handler, place, plain_wire, share_one_core, tcp_server
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.records.steps import QueueStep

if TYPE_CHECKING:
    from pollconsumer.store.client.wire import Wire

COMPLETED, BULK, FEW = 1_000_000, 20_000, 10
COUNT = "import handlers; print(sum(1 for _ in handlers.app.messages(state='completed')))"
LIST = "import sys; from pollconsumer.__main__ import main; sys.argv[0] = 'pollconsumer'; main()"
PEAK = """
import atexit, os
from pathlib import Path
def note():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    os.write(2, line.split()[1].encode())
atexit.register(note)
"""
"""Tells the most kilobytes of this process; its `getrusage` counts those of the process that has started it, too."""


def measure() -> list[Figure]:
    share_one_core()
    with tcp_server() as url, place(url) as directory:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(directory), os.environ.get("PYTHONPATH")]))
        wire = plain_wire(url)
        _complete(wire, FEW)
        few = {name: _spent(*words) for name, words in _ways().items()}
        _complete(wire, COMPLETED - FEW)
        many = {name: _spent(*words) for name, words in _ways().items()}
    figures = []
    for name, (seconds, megabytes) in many.items():
        figures += [Figure(f"{name}, time", seconds, "s"), Figure(f"{name}, memory", megabytes, "MB", few[name][1])]
    return figures


def _ways() -> dict[str, tuple[str, ...]]:
    words = (LIST, "list", "--state", "completed", "--limit")
    return {
        "app.messages": (COUNT,),
        "list": (*words, str(COMPLETED)),
        "list --json": (*words, str(COMPLETED), "--json"),
        "list --limit 100": (*words, "100"),
    }


def _complete(wire: Wire, count: int) -> None:
    """Complete messages as launches do, which would forget all but 10,000 of them."""
    plain, store = handler("plain"), RedisStore(wire, "pollconsumer")
    claim = Claim("consumer:default:0", "1", "consumer:default")
    store.maintenance.announce(claim, "default")
    for first in range(0, count, BULK):
        plain.enqueue_many([{"n": n + 1} for n in range(min(BULK, count - first))])
        share = QueueStep("default", 500)
        while reserved := store.step(claim, [share], lasts_ms=60_000, now=time.monotonic).reserved:
            share = QueueStep("default", 500)
            now = time.monotonic()
            share.complete([(reservation, now, now, None) for reservation in reserved])


def _spent(code: str, *words: str) -> tuple[float, float]:
    """Seconds, and megabytes at most, of a Python process that runs this."""
    began = time.perf_counter()
    command = [sys.executable, "-c", PEAK + code, *words]
    done = subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return time.perf_counter() - began, int(done.stderr) / 1024
