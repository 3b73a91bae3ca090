"""What launchers do at a tick while an earlier launch may still be alive, each by its own rule; and how long launches
take to start and to exit under them.

A launcher looks ``offset`` seconds after a tick, and is told when a launch has ended. It is pure: instants are passed
in, in seconds of one clock, and what varies (offsets, a lock that fails) is drawn by whoever makes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, tzinfo
from itertools import groupby, islice
from typing import NamedTuple

from pollconsumer.core.launcher import UNKNOWN, Found
from pollconsumer.core.notation.cron_expression import Cron
from tests.forecast.distributions import Chance, Distribution, lognormal_between

SEEN_FOR = 60.0
"""Seconds for which a launcher is shown launches that have ended."""


class LaunchedProcess(NamedTuple):
    """A launch's process as its launcher knows it; ``ended`` is None while it lives."""

    started: float
    ended: float | None = None


class Decision(NamedTuple):
    """What a launcher does. ``starts``: the instants at which to start a launch. ``kills``: launches that are alive get
    SIGTERM first, and SIGKILL after the platform's grace. ``dropped``: ticks for which no launch will ever be
    started."""

    starts: tuple[float, ...] = ()
    kills: bool = False
    dropped: int = 0


class Launcher(ABC):
    """A launcher. ``offset``: seconds from a tick until it looks."""

    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset

    @abstractmethod
    def look(self, now: float, ticks: Sequence[float], launches: Sequence[LaunchedProcess]) -> Decision:
        """Look at ``ticks`` that fell due since the last look: one, or more after a stall."""

    def ended(self, now: float, launches: Sequence[LaunchedProcess]) -> Decision:  # noqa: ARG002  some look at them
        """Decide what follows from the end of a launch, just now, which is still among ``launches``."""
        return Decision()


def alive(launches: Sequence[LaunchedProcess]) -> bool:
    return any(each.ended is None for each in launches)


class CronDaemon(Launcher):
    """Debian's cron and cronie: a process more at each tick. After a stall of at most five minutes one for every missed
    minute, ten seconds apart; after a longer one a single one."""

    MADE_UP_FOR = 5
    APART = 10.0

    def look(self, now: float, ticks: Sequence[float], launches: Sequence[LaunchedProcess]) -> Decision:  # noqa: ARG002  others look at them
        starts = len(ticks) if len(ticks) <= self.MADE_UP_FOR else 1
        return Decision(tuple(now + self.APART * n for n in range(starts)), dropped=len(ticks) - starts)


class BusyboxCrond(Launcher):
    """Skips a tick while it thinks that the launch before runs. It reaps on wake-ups, each ten seconds while it has a
    process, and tests whether a tick is due before it reaps: what ends from :50 on still counts as running at :00."""

    WAKES_EVERY = 10.0

    def look(self, now: float, ticks: Sequence[float], launches: Sequence[LaunchedProcess]) -> Decision:
        reaped_until = now - self.WAKES_EVERY
        if any(each.ended is None or each.ended > reaped_until for each in launches):
            return Decision(dropped=len(ticks))
        return Decision((now,), dropped=len(ticks) - 1)


class TickDropper(Launcher):
    """supercronic, Nomad, and Debian's cron with ``flock -n``: a tick during a launch is dropped."""

    def look(self, now: float, ticks: Sequence[float], launches: Sequence[LaunchedProcess]) -> Decision:
        if alive(launches):
            return Decision(dropped=len(ticks))
        return Decision((now,), dropped=len(ticks) - 1)


class SystemdTimer(Launcher):
    """Leaves a running unit alone. Its next elapse counts from the last trigger, so one elapse that fell while the unit
    ran restarts it the moment it ends; later ones are dropped."""

    def __init__(self, offset: float = 0.0) -> None:
        super().__init__(offset)
        self._elapsed = False

    def look(self, now: float, ticks: Sequence[float], launches: Sequence[LaunchedProcess]) -> Decision:
        if not alive(launches):
            return Decision((now,), dropped=len(ticks) - 1)
        dropped = len(ticks) - (not self._elapsed)
        self._elapsed = True
        return Decision(dropped=dropped)

    def ended(self, now: float, launches: Sequence[LaunchedProcess]) -> Decision:
        if not self._elapsed or alive(launches):
            return Decision()
        self._elapsed = False
        return Decision((now,))


class _CronJob(Launcher):
    """A Kubernetes CronJob starts the latest of the ticks that it has missed, if that is within the deadline."""

    def __init__(self, offset: float = 1.0, starting_deadline: float = 120.0) -> None:
        super().__init__(offset)
        self._deadline = starting_deadline

    def _latest(self, now: float, ticks: Sequence[float]) -> Decision:
        in_time = now - ticks[-1] <= self._deadline
        return Decision((now,) if in_time else (), dropped=len(ticks) - in_time)


class Allow(_CronJob):
    def look(self, now: float, ticks: Sequence[float], launches: Sequence[LaunchedProcess]) -> Decision:  # noqa: ARG002  others look at them
        return self._latest(now, ticks)


class Replace(_CronJob):
    def look(self, now: float, ticks: Sequence[float], launches: Sequence[LaunchedProcess]) -> Decision:
        decision = self._latest(now, ticks)
        return decision._replace(kills=bool(decision.starts) and alive(launches))


class Forbid(_CronJob):
    """A tick during a launch stays unmet: if the launch ends within the deadline, the next one starts at once."""

    def __init__(self, offset: float = 1.0, starting_deadline: float = 120.0) -> None:
        super().__init__(offset, starting_deadline)
        self._unmet: list[float] = []

    def look(self, now: float, ticks: Sequence[float], launches: Sequence[LaunchedProcess]) -> Decision:
        self._unmet += ticks
        return Decision() if alive(launches) else self._start_for_unmet(now)

    def ended(self, now: float, launches: Sequence[LaunchedProcess]) -> Decision:
        return Decision() if alive(launches) or not self._unmet else self._start_for_unmet(now)

    def _start_for_unmet(self, now: float) -> Decision:
        ticks, self._unmet = self._unmet, []
        return self._latest(now, ticks)


class Kudu(Launcher):
    """A triggered Azure WebJob: the tick of a launch that is alive waits for the next one, that is, is dropped. While
    its lock file is broken, each tick kills the launch that is alive instead, until it finds none."""

    def __init__(self, offset: float = 0.0, *, lock_broken: bool = False) -> None:
        super().__init__(offset)
        self.lock_broken = lock_broken

    def look(self, now: float, ticks: Sequence[float], launches: Sequence[LaunchedProcess]) -> Decision:
        if not alive(launches):
            self.lock_broken = False
        elif not self.lock_broken:
            return Decision(dropped=len(ticks))
        return Decision((now,), kills=alive(launches), dropped=len(ticks) - 1)


class CloudRun(Launcher):
    """A job started by Cloud Scheduler, or on ECS by EventBridge: in parallel, and now and then in duplicate."""

    def __init__(self, chance: Chance, offset: float = 0.0, duplicates: float = 0.001) -> None:
        super().__init__(offset)
        self._chance, self._duplicates = chance, duplicates

    def look(self, now: float, ticks: Sequence[float], launches: Sequence[LaunchedProcess]) -> Decision:  # noqa: ARG002  others look at them
        starts = 2 if self._chance.random() < self._duplicates else 1
        return Decision((now,) * starts, dropped=len(ticks) - 1)


def ticks(schedule: str, after: float, zone: tzinfo) -> Iterator[float]:
    """Instants of a cron expression in the zone of the launcher's host; in seconds since the epoch."""
    for instant in Cron(schedule).instants(int(after * 1000), zone):
        yield instant / 1000


class Outage(NamedTuple):
    """The launcher does not look from ``begins`` to ``ends``. A stalled one sees the missed ticks afterwards; one that
    was restarted never does."""

    begins: float
    ends: float
    restarted: bool = False


def looks(
    due: Iterable[float], offset: float, outages: Sequence[Outage] = ()
) -> Iterator[tuple[float, tuple[float, ...]]]:
    """When a launcher looks, and at which ticks."""

    def outage_of(tick: float) -> Outage | None:
        return next((each for each in outages if each.begins <= tick + offset < each.ends), None)

    for outage, together in groupby(due, outage_of):
        if outage is None:
            for tick in together:
                yield tick + offset, (tick,)
        elif not outage.restarted:
            yield outage.ends, tuple(together)


START_UP = lognormal_between(0.3, 0.8)
"""Seconds from the start of the process until it asks for the lease."""
EXIT = lognormal_between(0.1, 0.4)
"""Seconds from the end of its lease until the process has ended."""


class Platform(NamedTuple):
    """A platform. ``launcher`` draws what is constant for a launcher's life; ``found`` is what its launches take it
    for. ``kill_after``: seconds from SIGTERM to SIGKILL."""

    launcher: Callable[[Chance], Launcher]
    start_up: Distribution = START_UP
    exit: Distribution = EXIT
    schedule: str = "* * * * *"
    kill_after: float = 30.0
    found: Found = UNKNOWN

    @property
    def period(self) -> float:
        """Seconds between two ticks."""
        first, second = islice(ticks(self.schedule, 0.0, UTC), 2)
        return second - first
