"""Services of the operating system to a launch. A simulated host has its own."""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pollconsumer.runtime.launch.board import LaunchProgress
from pollconsumer.runtime.launch.heartbeat import ForkedHeartbeat, Heartbeat, OpenStore
from pollconsumer.runtime.launch.launch_end import LaunchEnd
from pollconsumer.runtime.system.process import all_gone, birth, namespace, started_at
from pollconsumer.runtime.system.signals import CALL, StopRequest
from pollconsumer.runtime.system.watchdog import (
    WATCHDOG,
    LateAct,
    at_the_end,
    before_exit,
    expect_exit,
    leave_by,
    watch,
)
from pollconsumer.store.client.patience import Clocks, SystemClocks


class Host(Clocks, Protocol):
    """Clocks and processes."""

    def started_at(self) -> float:
        """When this process was started, on the monotonic clock."""

    def new_id(self) -> str:
        """An id for a launch."""

    def chance(self) -> float:
        """A random number in [0, 1)."""

    def processes(self, heartbeat_pid: int) -> dict[str, Any]:
        """Where the launch and its heartbeat run: host, pid, pid namespace, and the births of both processes."""

    def all_gone(self, namespace: str, births: Mapping[str, str]) -> bool:
        """Whether the processes that `processes` described are known to have ended."""

    def leave_by(self, instant: float) -> None:
        """Have this process exit before ``instant`` on the monotonic clock, once it has nothing more to do."""

    def before_exit(self, act: LateAct) -> None:
        """Have ``act`` called before this process exits, within the time that is left."""

    def at_exit(self, act: Callable[[], None]) -> None:
        """Have ``act`` called when this process is about to exit."""

    def catch_signals(self) -> StopRequest:
        """Have the first signal ask the launch to stop."""

    def start_heartbeat(
        self, progress: LaunchProgress, open_store: OpenStore, on_launch_death: Callable[[int], None] | None
    ) -> Heartbeat: ...

    def watch(self, end: LaunchEnd, last_act: Callable[[], str]) -> None:
        """At the hard end of ``end``, call ``last_act`` and end this process with the watchdog's exit code."""

    def extend(self, end: LaunchEnd) -> None:
        """Where the GIL is held, end this process only at the farthest end, which is later than before."""

    def expect_exit(self) -> None:
        """The launch is over: bound this process by the time limit of an exit, instead of the launch's hard end."""


class ThisProcess(SystemClocks):
    started_at = staticmethod(started_at)
    chance = staticmethod(random.random)

    def new_id(self) -> str:
        return os.urandom(8).hex()

    all_gone = staticmethod(all_gone)
    leave_by = staticmethod(leave_by)
    before_exit = staticmethod(before_exit)
    at_exit = staticmethod(at_the_end)
    expect_exit = staticmethod(expect_exit)

    def processes(self, heartbeat_pid: int) -> dict[str, Any]:
        births = {str(pid): birth(pid) or "" for pid in (os.getpid(), heartbeat_pid)}
        return {"host": socket.gethostname(), "pid": os.getpid(), "namespace": namespace(), "births": births}

    def catch_signals(self) -> StopRequest:
        interruption = StopRequest(os.environ.get("WEBJOBS_SHUTDOWN_FILE") or None)
        interruption.install()
        return interruption

    def start_heartbeat(
        self, progress: LaunchProgress, open_store: OpenStore, on_launch_death: Callable[[int], None] | None
    ) -> Heartbeat:
        gc.freeze()  # a collection would visit all modules, and write to memory that both processes share
        gc.enable()
        signal.signal(CALL, lambda *_: progress.stops.called())
        return ForkedHeartbeat(progress, open_store, on_launch_death)

    def watch(self, end: LaunchEnd, last_act: Callable[[], str]) -> None:
        self.leave_by(end.hard_end())
        watch(end.hard_end, last_act)

    def extend(self, end: LaunchEnd) -> None:
        WATCHDOG.bound(end.farthest() + end.grace - self.monotonic())
