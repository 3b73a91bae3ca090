"""What launches expect of the next one's start where the platform starts a pod first: the time that it takes varies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.launcher import Found
from pollconsumer.core.window import StopReason
from pollconsumer.runtime.launch.launch import Launch
from tests.forecast.launchers import Decision, LaunchedProcess, Launcher, Platform, alive
from tests.simulation.hosts.process import Process
from tests.simulation.installation import Installation

MINUTE = 60.0
LOOKS = 1.0
"""Seconds after the tick."""


class Pods(Launcher):
    """The process of launch n begins ``takes[n]`` seconds after it was decided. Where launches ``queue``, that is when
    the one before has ended."""

    def __init__(self, takes: Sequence[float], *, queue: bool) -> None:
        super().__init__(LOOKS)
        self._takes, self._queue, self._numbers = takes, queue, count()
        self._starting_until, self._unmet = 0.0, False

    def look(self, now: float, ticks: Sequence[float], launches: Sequence[LaunchedProcess]) -> Decision:  # noqa: ARG002  others look at them
        if self._queue and (alive(launches) or now < self._starting_until):
            self._unmet = True
            return Decision()
        return self._start(now)

    def ended(self, now: float, launches: Sequence[LaunchedProcess]) -> Decision:  # noqa: ARG002  others look at them
        return self._start(now) if self._unmet else Decision()

    def _start(self, now: float) -> Decision:
        self._unmet = False
        self._starting_until = now + self._takes[next(self._numbers) % len(self._takes)]
        return Decision((self._starting_until,))


class Starts(Installation):
    """``windows``: of each launch, seconds from its tick to its start, and from the next tick to its window's end."""

    def __init__(self, rule: LauncherRule, takes: Sequence[float]) -> None:
        pods = Pods(takes, queue=rule is LauncherRule.QUEUE)
        super().__init__(1, Platform(lambda _: pods, found=Found("kubernetes", rule)))
        self.rules = self.rules._replace(timeout=4 * MINUTE, min_margin=None)
        self.windows: list[tuple[float, float]] = []

    def work(self, launch: Launch, process: Process) -> StopReason:
        offset, left = process.began % MINUTE, launch.window.left(launch.clock())
        until_tick = MINUTE - (self.world.now - process.began + offset)
        self.windows.append((offset, left - until_tick))
        process.sleep(left - launch.min_margin)
        return StopReason.NO_TIME_TO_HANDLE

    def run(self, minutes: int) -> None:
        self.launch_until(minutes * MINUTE, "run")
        self.world.run_until((minutes + 1) * MINUTE)


def test_a_launch_works_until_the_promptest_start_known_its_own_included() -> None:
    installation = Starts(LauncherRule.PARALLEL, [17.0, 4.0, 9.0, 3.0, 8.0])
    installation.run(5)
    offsets, ends = zip(*installation.windows, strict=True)
    assert offsets == pytest.approx((18.0, 5.0, 10.0, 4.0, 9.0), abs=0.1)
    assert ends == pytest.approx((0.0, 5.0, 5.0, 4.0, 4.0), abs=0.1)


def test_where_launches_queue_those_that_waited_do_not_have_each_window_end_later_than_the_one_before() -> None:
    installation = Starts(LauncherRule.QUEUE, [6.0])
    installation.run(40)
    assert len(installation.windows) == 40
    assert max(end for _, end in installation.windows) < LOOKS + 6.1
