"""Launchers that no recorded launch is replayed under, each by its own rule; and the outages of any launcher."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from pollconsumer.tuning.forecast.distributions import Chance
from pollconsumer.tuning.forecast.launchers import Decision, LaunchedProcess, Launcher, alive


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
