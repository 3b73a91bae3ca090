"""Services of the operating system to a launch. A simulated host has its own."""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
from collections.abc import Callable
from typing import Any

from pollconsumer.runtime.launch.board import LaunchProgress
from pollconsumer.runtime.launch.heartbeat import Heartbeat, OpenStore
from pollconsumer.runtime.launch.launch_end import LaunchEnd
from pollconsumer.runtime.system.process import all_gone, birth, namespace, started_at
from pollconsumer.runtime.system.signals import CALL, StopRequest
from pollconsumer.runtime.system.watchdog import WATCHDOG, at_the_end, before_exit, expect_exit, leave_by, watch
from pollconsumer.store.client.patience import Clocks


class Host(Clocks):
    """Clocks and processes: those of this machine, and this process."""

    started_at = staticmethod(started_at)
    """When this process was started, on the monotonic clock."""
    chance = staticmethod(random.random)
    """A random number in [0, 1)."""
    all_gone = staticmethod(all_gone)
    """Whether the processes that `processes` described are known to have ended."""
    leave_by = staticmethod(leave_by)
    """Have this process exit before an instant on the monotonic clock, once it has nothing more to do."""
    before_exit = staticmethod(before_exit)
    """Have an act called before this process exits, within the time that is left."""
    at_exit = staticmethod(at_the_end)
    """Have an act called when this process is about to exit."""
    expect_exit = staticmethod(expect_exit)
    """The launch is over: bound this process by the time limit of an exit, instead of the launch's hard end."""

    def new_id(self) -> str:
        """An id for a launch."""
        return os.urandom(8).hex()

    def processes(self, heartbeat_pid: int) -> dict[str, Any]:
        """Where the launch and its heartbeat run: host, pid, pid namespace, and the births of both processes."""
        births = {str(pid): birth(pid) or "" for pid in (os.getpid(), heartbeat_pid)}
        return {"host": socket.gethostname(), "pid": os.getpid(), "namespace": namespace(), "births": births}

    def catch_signals(self) -> StopRequest:
        """Have the first signal ask the launch to stop."""
        interruption = StopRequest(os.environ.get("WEBJOBS_SHUTDOWN_FILE") or None)
        interruption.install()
        return interruption

    def start_heartbeat(
        self, progress: LaunchProgress, open_store: OpenStore, on_launch_death: Callable[[int], None] | None
    ) -> Heartbeat:
        gc.freeze()  # a collection would visit all modules, and write to memory that both processes share
        gc.enable()
        signal.signal(CALL, lambda *_: progress.stops.called())
        return Heartbeat(progress, open_store, on_launch_death)

    def watch(self, end: LaunchEnd, last_act: Callable[[], str]) -> None:
        """At the hard end of ``end``, call ``last_act`` and end this process with the watchdog's exit code."""
        self.leave_by(end.hard_end())
        watch(end.hard_end, last_act)

    def extend(self, end: LaunchEnd) -> None:
        """Where the GIL is held, end this process only at the farthest end, which is later than before."""
        WATCHDOG.bound(end.farthest() + end.grace - self.monotonic())
