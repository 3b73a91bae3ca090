"""Launches within a test's process: without signals, heartbeat and watchdog, and with a lease that does not lapse."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from mmap import mmap

from pollconsumer.core.news.events import Event, LaunchEnded
from pollconsumer.core.retry import Asleep, Fatal, RetryIn, Yield, is_fatal
from pollconsumer.core.window import StopReason, Window
from pollconsumer.interface.testing.clock import VirtualClock
from pollconsumer.interface.testing.memory import MemoryOpener
from pollconsumer.runtime.handling.executors.executor import Handled
from pollconsumer.runtime.handling.executors.inline import InlineExecutor
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.outcome import Outcome
from pollconsumer.runtime.handling.validation.argument_errors import BadArguments
from pollconsumer.runtime.launch.held import Attendance, LaunchPlan
from pollconsumer.runtime.launch.launch_end import LaunchEnd
from pollconsumer.runtime.launch.launch_run import Work
from pollconsumer.runtime.launch.shared_memory.launch_progress import Identity, LaunchProgress
from pollconsumer.runtime.launch.shared_memory.stops import Stops
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Claim, Reservation

FORESEEN = (Asleep, Fatal, RetryIn, Yield)
ENDS_A_HANDLER = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError, Asleep)
"""Other exceptions of a handler (Ctrl-C, pytest's outcomes) are raised in the test."""


class SandboxLaunch:
    """A launch that begins now, in virtual time, and is interrupted when ``stopped`` is set."""

    def __init__(
        self, opener: MemoryOpener, group: Group, plan: LaunchPlan, clock: VirtualClock, emit: Callable[[Event], None]
    ) -> None:
        self.plan, self.clock, self.emit, self.bare_wire = plan, clock, emit, opener.wire
        self.window = Window(clock(), clock() + plan.timeout)
        self.min_margin, self.waited = 0.0, False
        self.progress = LaunchProgress()
        self.end = LaunchEnd(self.progress.flight, self.window.stop_before, plan.grace, plan.handler_limit)
        self.store = opener.store()
        self.progress.stops = SandboxStops(self.store)
        self.leases = Leases(self.store.wire, opener.namespace)
        self.stopped = False
        self._identity = Identity(secrets.token_hex(8), group.role, group.queues, "testing", 0)
        self.id = self._identity.launch
        acquired = self.leases.acquire(group, self._identity.launch, self._identity.description(), self._entry())
        assert isinstance(acquired, Claim), "one launch at a time"
        self.holder, self.attendance = acquired, Attendance(acquired.at, clock())

    def chance(self) -> float:
        return 0.0

    def interrupted(self) -> bool:
        return self.stopped

    def check_lease(self) -> bool:
        """Return that the launch did not wait for the lease, which cannot be lost."""
        return False

    def lease_is_trusted(self) -> bool:
        return True

    def work(self, work: Work) -> StopReason:
        """Do the work, and finally release the lease."""
        reason = StopReason.DIED
        try:
            reason = work(self)
        finally:
            self.leases.release(self.holder, self._entry())
            ran, counts = self.clock() - self.window.start, self.progress.counts().of_messages()
            self.emit(LaunchEnded(self.holder.role, reason, ran, *counts))
            self.store.wire.close()
        return reason

    def _entry(self) -> str:
        return self._identity.entry(None, 0.0, 0.0, self.progress)


class SandboxStops(Stops):
    """Requests to stop, read from the store in memory instead of a heartbeat."""

    def __init__(self, store: RedisStore) -> None:
        super().__init__(mmap(-1, self.SIZE), 0)
        self._store = store

    def any(self) -> bool:
        return bool(self.standing())

    def asked(self, reservation: Reservation) -> bool:
        key = self._store.keys.queue(reservation.queue, "stops")
        return bool(self._store.wire.command("HEXISTS", key, reservation.id))

    def standing(self) -> set[tuple[str, bytes]]:
        keys = {queue: self._store.keys.queue(queue, "stops") for queue in self._store.queues()}
        return {(queue, each) for queue, key in keys.items() for each in self._store.wire.command("HGETALL", key)[::2]}


class WatchedExecutor(InlineExecutor):
    """Handles messages, and ends the launch when a handler raises an exception for the test, which is then in
    ``raised``."""

    def __init__(self, launch: SandboxLaunch, *, raising: bool) -> None:
        super().__init__(launch.clock)
        self.raised: BaseException | None = None
        self._launch, self._raising = launch, raising

    def finished(self) -> list[Handled]:
        finished = super().finished()
        for handled in finished:
            for outcome in _outcomes(handled):
                if self._is_meant_for_the_test(outcome.error, handled.attempt.handler):
                    self.raised = outcome.error
                    self._launch.stopped = True
        return finished

    def _is_meant_for_the_test(self, error: BaseException | None, handler: Handler) -> bool:
        if error is None or not isinstance(error, ENDS_A_HANDLER):
            return error is not None
        foreseen = isinstance(error, FORESEEN) or is_fatal(error, handler.fatal)
        return self._raising and (not foreseen or isinstance(error, BadArguments))


def _outcomes(handled: Handled) -> Sequence[Outcome]:
    """The outcome of each message of a call."""
    outcomes = handled.outcome.result
    return [handled.outcome] if handled.attempt.handler.bulk is None or outcomes is None else outcomes
