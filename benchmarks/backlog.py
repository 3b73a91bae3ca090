"""The cost of a message, and of looking, while 1,000 or a million others wait; the floor is that while 1,000 wait.

Two servers take turns within seconds, since a machine's speed changes from one to the next.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.place import (
    Figure,
    handler,
    marks,
    move_to,
    place,
    plain_wire,
    run,
    server_seconds,
    share_one_core,
    tcp_server,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FEW, BACKLOG, LOOKS = 1_000, 1_000_000, 5
BLOCK, BLOCKS = 20_000, 8
"""Messages that are drained, then enqueued, at a time; medians are taken. The first after a million enqueues cost more,
since the allocator has much to sort."""
COMMANDS = {"status": ("status",), "list": ("list", "--state", "ready", "--limit", "100")}


def measure() -> list[Figure]:
    share_one_core()
    with _backlog(FEW) as few, _backlog(BACKLOG) as many:
        costs = [[side.drained_and_enqueued() for side in (few, many)] for _ in range(BLOCKS)]
        looks = [[side.looks() for side in (few, many)] for _ in range(LOOKS)]
    beside_few, beside_many = (
        [*map(median, zip(*blocks, strict=True)), *map(min, zip(*times, strict=True))]
        for blocks, times in zip(zip(*costs, strict=True), zip(*looks, strict=True), strict=True)
    )
    names = ["drain beside a million, client and server", "enqueue beside a million, client and server"]
    names += [f"{name} with a million" for name in COMMANDS]
    units = ["µs", "µs", *("ms" for _ in COMMANDS)]
    return [Figure(*each) for each in zip(names, beside_many, units, beside_few, strict=True)]


class _Side:
    """A server of its own, with so many messages behind the block that is to be drained."""

    def __init__(self, url: str, directory: Path, backlog: int) -> None:
        self._directory, self._plain, self._wire = directory, handler("plain"), plain_wire(url)
        self._enqueued = 0
        self._plain.enqueue_many([{"n": 1}] * BLOCK * 2)
        run("run", "--until-empty")  # so that as many are forgotten as are completed
        for waiting in range(0, backlog + BLOCK, BLOCK):
            self._enqueue(min(BLOCK, backlog + BLOCK - waiting))

    def _enqueue(self, count: int) -> None:
        """The first and the last of each block are marked."""
        numbers = [number % BLOCK for number in range(self._enqueued, self._enqueued + count)]
        self._plain.enqueue_many([{"n": -1 if number == BLOCK - 1 else number} for number in numbers])
        self._enqueued += count

    def drained_and_enqueued(self) -> tuple[float, float]:
        """µs of client and server for a message drained, and for one enqueued, while as many wait as before."""
        move_to(self._directory)
        before = server_seconds(self._wire)
        run("run", "--until-empty", "--max-messages", str(BLOCK))
        drained = marks(self._directory)[1] + server_seconds(self._wire) - before
        before, cpu = server_seconds(self._wire), time.process_time()
        self._enqueue(BLOCK)
        enqueued = time.process_time() - cpu + server_seconds(self._wire) - before
        return drained / BLOCK * 1e6, enqueued / BLOCK * 1e6

    def looks(self) -> list[float]:
        """ms of each command."""
        move_to(self._directory)
        return [_look(command) for command in COMMANDS.values()]


def _look(command: tuple[str, ...]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "pollconsumer", *command], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


@contextlib.contextmanager
def _backlog(messages: int) -> Iterator[_Side]:
    with tcp_server() as url, place(url) as directory:
        yield _Side(url, directory, messages)
