"""Launches and the mover within a test's process: without signals, heartbeat and watchdog, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from math import inf
from mmap import mmap
from signal import SIGTERM
from typing import Any, cast

from pollconsumer.core.news.events import Event
from pollconsumer.core.retry import Asleep, Fatal, RetryIn, Yield, is_fatal
from pollconsumer.core.window import StopReason
from pollconsumer.interface.assembly.launch_roles import MOVER
from pollconsumer.interface.testing.memory import MemoryOpener, VirtualClock
from pollconsumer.runtime.handling.executors.executor import Handled
from pollconsumer.runtime.handling.executors.inline import InlineExecutor
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.outcome import Outcome
from pollconsumer.runtime.handling.validation.argument_errors import BadArguments
from pollconsumer.runtime.launch.host import ThisProcess
from pollconsumer.runtime.launch.launch import Attendance, Launch, LaunchPlan, Work
from pollconsumer.runtime.launch.shared_memory.stops import Stops
from pollconsumer.runtime.mover import Mover, MoverOptions
from pollconsumer.runtime.store_opener import StoreOpener
from pollconsumer.runtime.system.signals import StopRequest
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Claim, Reservation

FORESEEN = (Asleep, Fatal, RetryIn, Yield)
ENDS_A_HANDLER = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError, Asleep)
"""Other exceptions of a handler (Ctrl-C, pytest's outcomes) are raised in the test."""


class SandboxHost(ThisProcess):
    """The test's process: its clocks are virtual, and it goes on after its launches."""

    def __init__(self, clock: VirtualClock) -> None:
        self.stop, self._clock = StopRequest(), clock

    def monotonic(self) -> float:
        return self._clock()

    started_at = boot_time = monotonic

    def chance(self) -> float:
        return 0.0

    def catch_signals(self) -> StopRequest:
        return self.stop

    def place(self, _: int) -> dict[str, Any]:
        return {"host": "testing", "pid": 0}


class SandboxLaunch(Launch):
    """A launch that begins now, in virtual time."""

    def __init__(
        self, opener: MemoryOpener, group: Group, plan: LaunchPlan, clock: VirtualClock, emit: Callable[[Event], None]
    ) -> None:
        host = SandboxHost(clock)
        super().__init__(plan._replace(min_margin=0.0), cast("StoreOpener", opener), emit, host)
        self._stop, self.store = host.stop, opener.store()
        self.progress.stops = SandboxStops(self.store)
        self.leases = Leases(self.store.wire, opener.namespace)
        self.progress.facts = self._facts(group, 0)
        claim = self.leases.acquire(group, self.id, self.progress.description(), self.progress.entry(None, 0.0))
        assert isinstance(claim, Claim), "one launch at a time"
        self.claim, self.attendance = claim, Attendance(claim.at, clock())
        self.progress.trust_until(inf)

    def stop(self) -> None:
        self._stop.signal = SIGTERM

    def run(self, work: Work) -> StopReason:
        """Do the work, and finally release the lease."""
        reason = StopReason.FAILED
        try:
            reason = work(self)
        finally:
            self.leases.release(self.claim, self.progress.entry(None, 0.0))
            self._tell_end(self.claim.role, reason, self.clock() - self.window.start, 0)
            self.store.wire.close()
        return reason


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
                    self._launch.stop()
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


FOREVER = 1e12


class SandboxMover:
    def __init__(
        self, opener: MemoryOpener, clock: VirtualClock, emit: Callable[[Event], None], options: MoverOptions
    ) -> None:
        moving = SandboxLaunch(opener, MOVER, LaunchPlan(FOREVER, 0.0), clock, emit)
        self._mover, self._store, self._clock = Mover(moving, options), moving.store, clock

    def tick(self) -> float | None:
        """Do all that is due now. Returns the seconds until there is more to do, for the mover or a launch; or None."""
        while True:
            self._mover.look_afresh()
            more_in = [*self._more_in()]
            moved, next_due = self._mover.promote()
            self._mover.maintain()
            if not moved and 0 not in more_in:
                return min([*more_in, *([] if next_due is None else [next_due])], default=None)

    def _more_in(self) -> Iterator[float]:
        """Seconds until there is more than due messages and recurrences: 0 for what an outbox has; until the instants
        of batches, and until pauses end. Launches of the sandbox serve all queues: the mover leaves to them what
        expires."""
        keys, now = self._store.keys, self._clock.now_ms
        for queue in self._mover.queues():
            outbox, pause, batches, _ = self._store.wire.all(
                [
                    ("EXISTS", keys.queue(queue, "outbox")),
                    ("GET", keys.queue(queue, "paused")),
                    ("ZRANGE", keys.queue(queue, "batch_instants"), 0, 0, "WITHSCORES"),
                    ("SET", keys.queue(queue, "served"), 1),
                ]
            )
            yield from [0.0] * outbox
            yield from (max(0.0, float(at) - now) / 1000 for at in batches[1:] if float(at) < inf)
            # A key outlasts its end by a millisecond.
            yield from ((int(end) + 1 - now) / 1000 for end in (pause or b"").split()[1:])
