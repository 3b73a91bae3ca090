"""The platform: a launch of the consumer and one of the mover each period, whatever became of those before.

But for one thing that cron would not do: on a machine that is too slow for its launches, there are not more and more.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.trials.place import Command, Place


MOST_LIVING = 4
"""Launches of a role: one that holds the lease, one that waits for it, one that is about to leave, one suspended."""


class Platform:
    """``groups`` are the options of a launch of each group of consumers; ``move``: a mover is launched, too."""

    def __init__(
        self, installation: Place, period: float, groups: Sequence[Sequence[str]], *, move: bool = True
    ) -> None:
        self._installation, self._period = installation, period
        self._lines = [("run", *options) for options in groups] + ([("move",)] if move else [])
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._launch)
        self.launches: list[Command] = []
        self._thread.start()

    def _launch(self) -> None:
        while True:
            for line in self._lines:
                alive = sum(launch.arguments[1:] == line for launch in self.living(line[0]))
                if alive < MOST_LIVING:
                    self.launches.append(self._installation.start("-q", *line))
            if self._over.wait(self._period):
                return

    def living(self, role: str) -> list[Command]:
        """Launches under way, the earliest first; ``role`` is run or move."""
        return [launch for launch in self.launches if role in launch.arguments and launch.is_running()]

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
