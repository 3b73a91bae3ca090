"""``python -m tests.interruptions --times 100000``: interrupts a producer's calls so often, at random instants."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pollconsumer.runtime.embedded.server import EmbeddedServer
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from tests.short_directory import short_directory

PROGRAM = Path(__file__).with_name("program.py")
EXPECTED = {"Thrown", "Late", "in a finaliser", "swallowed"}
SELDOM = 5000
"""Of so many interruptions one may be lost in the interpreter, as in a `float` that fails and so replaces what a signal
handler has raised."""
PART = 5000
"""Interruptions of one process: many processes, since one that crashes or hangs is the finding."""


def interruptions(url: str, times: int, seed: int) -> dict[str, Any]:
    """What one process prints. CalledProcessError, with its stacks, if it crashed or hung."""
    command = [sys.executable, "-P", str(PROGRAM), url, str(times), str(seed)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise AssertionError(f"{command} ended with {ended.returncode}\n{ended.stderr[-8000:]}")
    printed: dict[str, Any] = json.loads(ended.stdout)
    unexpected = printed["surfaced"].keys() - EXPECTED
    assert not unexpected, f"{command}: {printed}\n{ended.stderr[-8000:]}"
    assert printed["surfaced"].get("swallowed", 0) * SELDOM <= max(times, SELDOM), printed
    return printed


def evict(url: str) -> None:
    """From now on every first connection of an application logs a warning, and each ``logged`` kind enqueues then."""
    wire = Wire(url, lambda: Budget(10))
    wire.command("CONFIG", "SET", "maxmemory", "2gb", "maxmemory-policy", "volatile-lru")
    wire.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    directory = short_directory()
    server = EmbeddedServer(directory / "pollconsumer")
    interrupted, surfaced = Counter[str](), Counter[str]()
    try:
        server.ensure_running(budget=10.0)
        evict(server.url)
        while (left := given.times - interrupted.total()) > 0:
            printed = interruptions(server.url, min(PART, left), given.seed)
            interrupted.update(printed["interrupted"])
            surfaced.update(printed["surfaced"])
            print(f"seed {given.seed}: {interrupted.total()} interruptions", file=sys.stderr)
            given.seed += 1
        print(json.dumps({"interrupted": interrupted, "surfaced": surfaced, "crashed": 0, "hung": 0}, indent=1))
    finally:
        server.stop()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
