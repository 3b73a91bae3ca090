"""An installation whose launches and producers are of one of several versions, each by chance."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults import installation
from tests.faults.configuration import mixed
from tests.faults.installation import PASSWORD, Installation

if TYPE_CHECKING:
    from tests.trials.place import Command

ROOT = Path(__file__).parents[2]
SHORTEST_PERIOD, STARTS = 4.0, 8
"""Seconds from launch to launch, and how many times as long as the slowest start that is at least."""
KEPT = """
[queues.default]
keep_completed = "1d/10000000"
[queues.second]
keep_completed = "1d/10000000"
"""


class TwoVersions(Installation):
    """``interpreters``: that of each version, by its name. ``launched`` and ``producing``: the versions of launches and
    producers from now on."""

    def __init__(self, interpreters: dict[str, str], seed: int) -> None:
        super().__init__(slow_loading=False, appendfsync="everysec")
        self.launched: list[str] = []
        self.producing: list[str] = []
        self.started: Counter[str] = Counter()
        self.version_of: dict[int, str] = {}
        """By the number of a process."""
        self._interpreters = interpreters
        self._chance = random.Random(seed)
        self._choosing = threading.Lock()
        ours = self.directory / "ours"
        ours.mkdir()
        (ours / "tests").symlink_to(ROOT / "tests")  # and not our package: that is the version's
        self.environment["PYTHONPATH"] = str(ours)
        self.environment["POLLCONSUMER_STORE"] = f"unix://{self.server.socket}?password={PASSWORD}"
        self._configure(SHORTEST_PERIOD, "handlers.py", "program.py")
        slowest = max(self._start_seconds(version) for version in interpreters)
        self.period = max(SHORTEST_PERIOD, round(STARTS * slowest, 1))
        self._configure(self.period)

    def _configure(self, period: float, *sources: str) -> None:
        self.configure(mixed(self.directory, period) + KEPT, *sources, of=installation.__file__)

    def _start_seconds(self, version: str) -> float:
        """How long a launch of this version takes that has nothing to do."""
        self.launched = [version]
        return self.run("-q", "run", "--until-empty", "--timeout", "60s").seconds

    def start(self, *arguments: str) -> Command:
        return self._start_any(self.launched, "launch", "-m", "pollconsumer", *arguments)

    def start_producer(self, *arguments: str) -> Command:
        return self._start_any(self.producing, "producer", "-m", "tests.upgrade.producing", *arguments)

    def _start_any(self, versions: list[str], role: str, *words: str) -> Command:
        """With the interpreter of one of the versions."""
        with self._choosing:
            version = self._chance.choice(versions)
            self.python = self._interpreters[version]
            command = self.start_python(*words)
        self.started[f"{role} of the {version} version"] += 1
        self.version_of[command.process.pid] = version
        return command
