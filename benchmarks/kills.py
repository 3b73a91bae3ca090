"""kill -9 of a launch → the next one, on the same host, handles again what was in flight.

It is killed alone, or together with its heartbeat, as where a container ends. The next one waits for the lease already,
or is started when the other is killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from itertools import product

from redis import Redis

from benchmarks.place import Figure, at, handler, notes, place, tcp_server

ROUNDS = 7


def measure() -> list[Figure]:
    figures = []
    for together, waiting in product((True, False), repeat=2):
        killed = "with its heartbeat" if together else "alone"
        title = f"killed {killed} → again, successor {'waiting' if waiting else 'starting'}"
        seconds = _until_again(together=together, waiting=waiting)
        figures += [Figure(f"{title}, p50", at(seconds, 0.5), "s"), Figure(f"{title}, longest", max(seconds), "s")]
    return figures


def _until_again(*, together: bool, waiting: bool) -> list[float]:
    seconds = []
    with tcp_server() as url, place(url) as directory, Redis.from_url(url) as client:
        for number in range(ROUNDS):
            handler("hang").enqueue()
            first = _launch()
            notes(directory, 2 * number + 1)
            second = _launch("--until-empty") if waiting else None
            while waiting and not client.keys("*}:next:consumer:*"):
                time.sleep(0.01)
            time.sleep(random.uniform(0, 1))  # it looks after the holder now and then
            killed = time.time()
            if together:
                os.killpg(first.pid, signal.SIGKILL)
            else:
                first.kill()
            second = second or _launch("--until-empty")
            seconds.append(notes(directory, 2 * number + 2)[-1] - killed)
            first.wait()
            second.wait()
    return seconds


def _launch(*flags: str) -> subprocess.Popen[bytes]:
    """In a process group of its own, with its heartbeat; silent, as it warns of each death."""
    command = [sys.executable, "-m", "pollconsumer", "run", "--timeout", "10m", *flags]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
