"""Whole launches within the test's process: settings, lease, work, ledger; without the heartbeat's fork, signals and
the watchdog. A launch of a fresh process costs twenty times as much."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from pollconsumer.interface.assembly import launch_roles
from pollconsumer.interface.cli import launch_commands
from pollconsumer.runtime.handling import slot_waits
from pollconsumer.runtime.launch import launch
from pollconsumer.runtime.launch.heartbeat import Heartbeat
from pollconsumer.runtime.launch.launch import Host
from pollconsumer.runtime.mover import Mover
from pollconsumer.runtime.system.signals import StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from pollconsumer.runtime.launch.board import LaunchProgress
    from pollconsumer.runtime.launch.heartbeat import OpenStore
    from pollconsumer.runtime.launch.launch_end import LaunchEnd
    from pollconsumer.runtime.launch.pings import Pinger
    from pollconsumer.runtime.system.watchdog import LateAct
    from pollconsumer.store.records.reservations import Claim


class NoHeartbeat(Heartbeat):
    """The lease of a launch that is shorter than it."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def hold(self, claim: Claim, end: LaunchEnd) -> None: ...

    def is_alive(self) -> bool:
        return True

    def stop(self) -> None: ...


class TestsProcess(Host):
    """A process that goes on after its launches."""

    def __init__(self) -> None:
        self.at_ends: list[Callable[[], None]] = []

    def started_at(self) -> float:
        return time.monotonic()

    def leave_by(self, instant: float) -> None: ...

    def before_exit(self, act: LateAct) -> None:
        self.at_ends.append(lambda: act(lambda: 1.0))

    def at_exit(self, act: Callable[[], None]) -> None:
        self.at_ends.append(act)

    def catch_signals(self) -> StopRequest:
        self.interruption = StopRequest()
        return self.interruption

    def start_heartbeat(
        self,
        progress: LaunchProgress,  # noqa: ARG002  of `Host`
        open_store: OpenStore,  # noqa: ARG002  of `Host`
        on_launch_death: Callable[[int], None] | None,  # noqa: ARG002
    ) -> NoHeartbeat:
        return NoHeartbeat()

    def watch(self, end: LaunchEnd, last_act: Callable[[], str]) -> None: ...

    def extend(self, end: LaunchEnd) -> None: ...

    def expect_exit(self) -> None: ...


def run_launch(
    plan: Any, opener: Any, emit: Any, prepare: Any, on_death: Any = None, *, pinger: Pinger | None = None
) -> None:
    host = TestsProcess()

    def stop(*_: object) -> None:
        host.interruption.signal = signal.SIGTERM

    try:
        with mock.patch.object(Mover, "idle", stop):  # a mover ends only with its window
            launch.run_launch(plan, opener, emit, prepare, on_death, host, pinger)
    finally:
        for act in host.at_ends:
            act()
        slot_waits.of_process = None


@contextmanager
def launches_here() -> Iterator[None]:
    """Have the commands ``run`` and ``move`` launch here."""
    with (
        mock.patch.object(launch_roles, "run_launch", run_launch),
        mock.patch.object(launch_commands, "outlast_readers", return_value=list),
        mock.patch.object(launch_commands, "before_exit"),
    ):
        yield
