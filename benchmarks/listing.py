"""Going through a million completed messages, in Python and by ``list``: seconds, and the most memory of the process.
The floor of the memory is that for ten of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.place import Figure, handler, place, plain_wire, share_one_core, tcp_server
from pollconsumer.store.redis_store import RedisStore
from pollconsumer.store.reservations import Holder, Share

if TYPE_CHECKING:
    from pollconsumer.store.wire import Wire

COMPLETED, BULK, FEW = 1_000_000, 20_000, 10
COUNT = "import handlers; print(sum(1 for _ in handlers.app.messages(state='completed')))"
LIST = ("-m", "pollconsumer", "list", "--state", "completed", "--limit")


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
    every = str(COMPLETED)
    return {
        "app.messages": ("-c", COUNT),
        "list": (*LIST, every),
        "list --json": (*LIST, every, "--json"),
        "list --limit 100": (*LIST, "100"),
    }


def _complete(wire: Wire, count: int) -> None:
    """Complete messages as launches do, which would forget all but 10,000 of them."""
    plain, store = handler("plain"), RedisStore(wire, "pollconsumer")
    holder = Holder("consumer:default:0", "1", "consumer:default")
    store.announce(holder, "default")
    for first in range(0, count, BULK):
        plain.enqueue_many([{"n": n + 1} for n in range(min(BULK, count - first))])
        share = Share("default", 500)
        while reserved := store.step(holder, [share], lasts_ms=60_000, now=time.monotonic).reserved:
            share = Share("default", 500)
            now = time.monotonic()
            share.complete((reservation, now, now, None) for reservation in reserved)


def _spent(*words: str) -> tuple[float, float]:
    """Seconds, and megabytes at most, of a Python process with these arguments."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return time.perf_counter() - began, usage.ru_maxrss / 1024
