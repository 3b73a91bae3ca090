"""Process start → handler start with one message ready; the floor is a bare interpreter's life, in turn."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.place import Figure, at, handler, notes, place, start, tcp_server

ROUNDS = 11


def measure() -> list[Figure]:
    with tcp_server() as url, place(url) as directory:
        note, bare = handler("note"), []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            bare.append((time.perf_counter() - began) * 1000)
            # The handler measures from this instant; the message is there before the process starts.
            note.enqueue(since=time.time())
            start("run", "--until-empty").wait()
        ours = notes(directory, ROUNDS)
    return [Figure("cold start → handler", at(ours, 0.5), "ms", at(bare, 0.5))]
