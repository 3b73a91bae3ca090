"""A launcher in a simulation: it starts and kills processes as its rule says, on a host with a time zone."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from functools import partial

from pollconsumer.runtime.launch.next_launches import launched_ago, next_launches
from tests.forecast.launchers import SEEN_FOR, Decision, LaunchedProcess, Outage, Platform, looks, ticks
from tests.simulation.hosts.process import Process
from tests.simulation.hosts.server import BEGINS
from tests.simulation.hosts.world import World

LONGER_THAN_ANY = 1e9


class Host:
    """Where a launcher runs. ``begins``: the time that its clock shows when true time is 0, in seconds since the
    epoch."""

    def __init__(self, world: World, zone: tzinfo = UTC, begins: float = BEGINS) -> None:
        self._world, self.zone, self.begins = world, zone, begins

    def next_launches(self, schedule: str, wrong: float = 0.0) -> tuple[float, float]:
        """Seconds until the next two, as a launch computes them by a clock that is so many seconds ahead."""
        return next_launches(schedule, self._now(wrong), self.zone)

    def launched_ago(self, schedule: str, ahead: tuple[float, float], wrong: float = 0.0) -> float | None:
        """Seconds since the time of its own launch, as a launch computes them."""
        return launched_ago(schedule, ahead, self._now(wrong), self.zone)

    def _now(self, wrong: float) -> datetime:
        return datetime.fromtimestamp(self.begins + self._world.now + wrong, UTC)


class Launching:
    """One line of a crontab, or what corresponds to it, until an instant."""

    def __init__(
        self,
        world: World,
        host: Host,
        platform: Platform,
        start: Callable[[], Process],
        until: float,
        outages: Sequence[Outage] = (),
    ) -> None:
        self.dropped = 0
        self.processes: list[Process] = []
        """Those alive, and the last ones that have ended."""
        self._world, self._start_process, self._until = world, start, until
        self._kill_after = platform.kill_after
        self._launcher = platform.launcher(world.stream("launcher"))
        due = (at - host.begins for at in ticks(platform.schedule, host.begins + world.now - 1, host.zone))
        self._looks = looks(due, self._launcher.offset, outages)
        self._await_next()

    def stop(self) -> None:
        """Start nothing from now on."""
        self._until = self._world.now

    def _await_next(self) -> None:
        at, missed = next(self._looks)
        if at < self._until:
            self._world.at(at, partial(self._look, missed))

    def _look(self, missed: tuple[float, ...]) -> None:
        self._await_next()
        self._apply(self._launcher.look(self._world.now, missed, self._seen()))

    def _seen(self) -> list[LaunchedProcess]:
        now = self._world.now
        self.processes = [each for each in self.processes if each.alive or each.ended > now - SEEN_FOR]
        return [LaunchedProcess(each.began, None if each.alive else each.ended) for each in self.processes]

    def _apply(self, decision: Decision) -> None:
        self.dropped += decision.dropped
        if decision.kills:
            for each in self.processes:
                self._kill(each)
        for at in decision.starts:
            self._world.at(at, self._start)

    def _start(self) -> None:
        if self._world.now >= self._until:
            return
        process = self._start_process()
        self.processes.append(process)
        self._world.start(f"launcher of {process.name}", partial(self._await_end, process))

    def _await_end(self, process: Process) -> None:
        process.wait_for_end(LONGER_THAN_ANY)
        self._apply(self._launcher.ended(self._world.now, self._seen()))

    def _kill(self, process: Process) -> None:
        """SIGTERM; the group is killed after the platform's grace."""
        process.signal(signal.SIGTERM)

        def kill() -> None:
            if process.alive:
                if process.heartbeat is not None:
                    process.heartbeat.stop()
                process.end()

        self._world.after(self._kill_after, kill)
