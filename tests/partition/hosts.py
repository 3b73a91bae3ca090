"""A host on which cron starts launches."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from tests.network import Host, Network

PERIOD = 3.0
"""Seconds between launches of a host."""
TIMEOUT = "6s"
MOST_LIVING = 3


class Ended(NamedTuple):
    """A launch. ``harmed``: something was done to its host while it ran. ``said``: what it printed."""

    code: int
    harmed: bool
    said: str


class LaunchingHost(Host):
    """Starts a launch each PERIOD, as cron would. Its processes have its name, and numbers of their own."""

    def __init__(self, network: Network, directory: Path, url: str) -> None:
        super().__init__(network)
        self._directory = directory
        self._environment = {
            "HOME": str(directory),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "PARTITION_HOST": self.name,
            "POLLCONSUMER_STORE": url,
            "XDG_STATE_HOME": str(directory / self.name),
        }
        self._over = threading.Event()
        self._still = False
        self._harmed = False
        self._lock = threading.Lock()
        self._launches: list[subprocess.Popen[str]] = []
        self._in_harm: set[int] = set()
        """Places, among all launches, of those that ran while something was done to the host."""
        self._thread = threading.Thread(target=self._launch)
        self.ended: list[Ended] = []
        """Once it is stopped."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No further launches; and wait for all."""
        self._over.set()
        if self._thread.is_alive():
            self.thaw()
            self._thread.join()

    def cut(self) -> None:
        self._harm()
        super().cut()

    def freeze(self) -> None:
        self._harm()
        self._still = True
        super().freeze()

    def vanish(self) -> None:
        """As when its power fails, until `heal`."""
        self.cut()
        self._still = True
        self.kill()

    def recover(self) -> None:
        """End what `freeze`, `cut` or `vanish` began: it runs, and others reach it."""
        self.thaw()
        self.heal()
        with self._lock:
            self._still = self._harmed = False

    def _harm(self) -> None:
        with self._lock:
            self._harmed = True
            self._in_harm |= {at for at, launch in enumerate(self._launches) if launch.poll() is None}

    def _launch(self) -> None:
        words = [*self.enter_apart, sys.executable, "-m", "pollconsumer", "-q", "run", "--timeout", TIMEOUT]
        while True:
            living = [launch for launch in self._launches if launch.poll() is None]
            if not self._still and len(living) < MOST_LIVING:
                launch = subprocess.Popen(
                    words,
                    cwd=self._directory,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                with self._lock:
                    if self._harmed:
                        self._in_harm.add(len(self._launches))
                    self._launches.append(launch)
            if self._over.wait(PERIOD):
                break
        for at, launch in enumerate(self._launches):
            _, said = launch.communicate()
            self.ended.append(Ended(launch.returncode, at in self._in_harm, said))
