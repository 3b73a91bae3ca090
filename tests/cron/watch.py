"""Which launches there were, as the kernel saw them: the ledger is what a launch says of itself."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOOK_EVERY = 0.05
TICKS = os.sysconf("SC_CLK_TCK")
ROLES = {"run": "consumer", "move": "mover"}


@dataclass
class Process:
    """A launch's own process. Times in seconds since the epoch; ``ended`` is when it was first missed, late by
    at most one look; None while it is there."""

    role: str
    pid: int
    started: float
    ended: float | None = None

    @property
    def running_seconds(self) -> float:
        return (self.ended or time.time()) - self.started


class Watch(threading.Thread):
    """Looks at /proc from time to time. The namespace has no launches but the scenario's."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.processes: list[Process] = []
        self._there: dict[int, Process] = {}
        self._companions: set[int] = set()
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(LOOK_EVERY):
            self.look()

    def stop(self) -> None:
        """Look no more, and forget whoever is still there."""
        self._stopped.set()
        self.join()

    def alive(self, role: str | None = None) -> list[Process]:
        """Launches that run now, the oldest first."""
        return [process for process in self.processes if process.ended is None and role in (None, process.role)]

    def of_role(self, role: str) -> list[Process]:
        """All launches of a role, in the order in which they were started."""
        return sorted((p for p in self.processes if p.role == role), key=lambda process: process.started)

    def look(self) -> None:
        """Once."""
        now = time.time()
        roles: dict[int, str] = {}
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
            with suppress(OSError):
                role = _role_of(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
                if role is not None:
                    roles[pid] = role
        for pid in self._there.keys() - roles.keys():
            self._there.pop(pid).ended = now
        self._companions &= roles.keys()
        for pid in roles.keys() - self._there.keys() - self._companions:
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
                parent, started = int(fields[1]), int(fields[19]) / TICKS
                if parent in roles:
                    self._companions.add(pid)  # the heartbeat, a fork of its launch
                    continue
                age = time.clock_gettime(time.CLOCK_BOOTTIME) - started
                self._there[pid] = process = Process(roles[pid], pid, time.time() - age)
                self.processes.append(process)


def _role_of(words: list[bytes]) -> str | None:
    """The role of a launch by its command line; None for another process. Launches on demand have ``-m``."""
    command = words[2:] if words[1:2] == [b"-m"] else words[1:]
    if len(command) > 1 and command[0].rpartition(b"/")[2] == b"pollconsumer":
        return ROLES.get(command[1].decode())
    return None
