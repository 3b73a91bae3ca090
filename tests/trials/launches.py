"""Launches of an installation on trial, one after the other."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.trials.place import Command, Place

LOOKS_EVERY = 0.05
"""Seconds."""


class Launches:
    """Keeps each of ``lines`` running, from now until `stop`: when the command of one has ended, the next begins."""

    def __init__(self, place: Place, lines: Sequence[Sequence[str]]) -> None:
        self._place, self._lines = place, lines
        self._running: dict[int, Command] = {}
        self._over = threading.Event()
        self.started: list[Command] = []
        self._thread = threading.Thread(target=self._keep_running)
        self._thread.start()

    def _keep_running(self) -> None:
        while not self._over.is_set():
            for number, line in enumerate(self._lines):
                if number not in self._running or not self._running[number].is_running():
                    self._running[number] = self._place.start(*line)
                    self.started.append(self._running[number])
            self._over.wait(LOOKS_EVERY)

    def running(self, role: str = "run") -> list[Command]:
        return [each for each in [*self._running.values()] if role in each.arguments and each.is_running()]

    def stop(self) -> None:
        """Ask all to end, wait until they have, and start none again."""
        self._over.set()
        self._thread.join()
        for command in self._running.values():
            command.process.terminate()
            command.process.wait()

    def exits(self) -> Counter[int]:
        """Exit codes of those that have ended."""
        return Counter(each.process.returncode for each in self.started if not each.is_running())


def kill(command: Command, *, with_heartbeat: bool = False) -> None:
    """A launch, which may have ended."""
    children = heartbeats(command) if with_heartbeat else []
    command.process.kill()
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def heartbeats(command: Command) -> list[int]:
    """Children of a launch: its heartbeat, or none, when it begins or ends."""
    pid = command.process.pid
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
