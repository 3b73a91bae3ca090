"""The process that renews a lease while its launch works, and releases it if the launch dies without releasing it.

It is not a thread, because a handler may hold the GIL: a regular expression that ran for 4.8 s kept a thread from
renewing for 4.9 s. It is forked before the launch has a connection or a second thread, the only moment at which a fork
is safe, and costs a millisecond instead of another interpreter.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from pollconsumer.core.errors import LeaseLost
from pollconsumer.runtime.launch.shared_memory.launch_progress import EMPTIED, Identity, LaunchProgress
from pollconsumer.runtime.launch.tenure import RETRY_EVERY, Tenure, give_back, keep
from pollconsumer.runtime.system import standard_error
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.runtime.system.process import is_stopped
from pollconsumer.runtime.system.signals import SIGNALS
from pollconsumer.store.client.own_descriptors import Opened
from pollconsumer.store.client.patience import SYSTEM_CLOCKS
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.leases import TRUSTED_FOR, Leases
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Claim

STILL_RUNNING_EVERY = 60.0
"""Seconds. Azure kills a WebJob that neither prints nor computes for WEBJOBS_IDLE_TIMEOUT, 120 s by default."""
TELL_WITHIN = 0.2
"""Seconds for which a line, and the renewal after it, waits for a reader."""
GONE = "the heartbeat process is gone; the next launch goes on"

OpenStore = Callable[[], "tuple[Leases, RedisStore, Wire]"]
"""Opens the store in the heartbeat's process. The last connection is for commands that block."""


class Heartbeat(Protocol):
    """A launch's heartbeat process, as the launch sees it."""

    @property
    def pid(self) -> int: ...

    def hold(self, tenure: Tenure) -> None:
        """Have the heartbeat renew the lease. LeaseLost if it is dead: it may be killed while the user's modules are
        imported."""

    def is_alive(self) -> bool:
        """Whether the heartbeat is alive and not suspended."""

    def stop(self) -> None:
        """End the heartbeat at once: the launch holds no lease, or has released it."""


class ForkedHeartbeat:
    def __init__(
        self, progress: LaunchProgress, open_store: OpenStore, on_launch_death: Callable[[int], None] | None = None
    ) -> None:
        """Fork. The new process, which shares only the progress, calls ``open_store`` once the launch has its lease,
        and ``on_launch_death`` with the launch's pid when the launch dies, before its lease is released."""
        orders, inlet = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                _beat((orders, inlet), parent, progress, open_store, on_launch_death)
                code = 0
            finally:
                os._exit(code)
        os.close(orders)
        self._inlet, self._outlet = Opened.now(inlet), orders
        self._progress = progress
        self._stopped = False

    def hold(self, tenure: Tenure) -> None:
        self._progress.trust_until(tenure.asked + TRUSTED_FOR)
        order = json.dumps(tenure)
        try:
            if not self._inlet.is_open():  # a module closed it; the heartbeat has it open, too
                self._inlet = Opened.now(os.open(f"/proc/{self.pid}/fd/{self._outlet}", os.O_WRONLY))
            os.write(self._inlet.number, order.encode() + b"\n")
        except OSError:
            raise LeaseLost("lease not renewed", None, GONE) from None

    def is_alive(self) -> bool:
        if not self._stopped:
            try:
                self._stopped = os.waitpid(self.pid, os.WNOHANG)[0] != 0
            except ChildProcessError:  # a handler reaped it
                self._stopped = True
        return not self._stopped and not is_stopped(self.pid)

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            os.kill(self.pid, signal.SIGKILL)
            self._inlet.close()
            with suppress(OSError):  # a handler may have reaped it
                os.waitpid(self.pid, 0)


def _beat(
    pipe: tuple[int, int],
    parent: int,
    progress: LaunchProgress,
    open_store: OpenStore,
    on_launch_death: Callable[[int], None] | None,
) -> None:
    for number in SIGNALS:
        # A terminal or a platform signals the whole group: the launch decides.
        signal.signal(number, signal.SIG_IGN)
    if "WEBJOBS_RUN_ID" in os.environ:
        # Not by the launch, whose handlers may hold the GIL; by a thread, as whoever reads the output may be slow.
        with suppress(RuntimeError):
            start_thread("output", _tell_that_it_runs)
    orders, inlet = pipe
    # Processes that modules or handlers fork keep the pipe open, and they may close it: so the launch itself is watched
    # by pidfd, if the system has them.
    ends = [orders]
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):
            ends = [os.pidfd_open(parent)]
    if orders in ends:
        os.close(inlet)
    order = _await_order(orders, ends)
    if not order and progress.ended()[0] is None and _leaves(parent):
        _pass_on()
        tell("error: launch died: before it had the lease, while importing modules or waiting")
    if order:
        from pollconsumer.runtime.launch.stop_listener import Parent, StopListener  # the launch does not wait for it

        identity, held, *times = json.loads(order)
        tenure = Tenure(Identity(*identity), Claim(*held), *times)
        leases, store, wire = open_store()
        fence, queues = tenure.held.fence, tenure.identity.queues
        listening = StopListener(parent, progress, wire, store.keys, fence, queues, tell)
        keep(Parent(parent, ends, listening), progress, leases, tenure, SYSTEM_CLOCKS, tell)
        _pass_on()
        try:
            if on_launch_death is not None:
                on_launch_death(parent)
        finally:
            if progress.trusted_until() != EMPTIED:
                give_back(progress, leases, store, tenure, SYSTEM_CLOCKS, tell, standard_error.leave)


def _await_order(orders: int, ends: list[int]) -> bytes:
    """The launch's order when it has the lease; empty if it dies before."""
    order = b""
    while not order.endswith(b"\n"):
        if orders not in select.select([orders, *ends], [], [])[0] or not (part := os.read(orders, 65536)):
            return b""
        order += part
    return order


def _leaves(parent: int) -> bool:
    """Whether the launch, whose pipe is closed, is exiting; otherwise a module closed it."""
    until = time.monotonic() + RETRY_EVERY
    while os.getppid() == parent:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _tell_that_it_runs() -> None:
    seconds = 0.0
    while True:
        time.sleep(STILL_RUNNING_EVERY)
        seconds += STILL_RUNNING_EVERY
        tell(f"info: still running after {seconds:g}s", output=1)


def tell(line: str, output: int | None = None) -> None:
    with suppress(OSError):
        standard_error.write(f"pollconsumer: {line}\n".encode(), output, TELL_WITHIN)


def _pass_on() -> None:
    with suppress(OSError):
        standard_error.pass_on(TELL_WITHIN)
