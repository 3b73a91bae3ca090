"""The polling consumer: the loop of one launch.

Source: Mark Seemann, "Faking a continuously Polling Consumer with scheduled tasks", 2014. What is added to his
recursion: idling is waiting to be woken, messages are reserved and settled in batches, and there may be several slots.
"""

from __future__ import annotations

import random
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pollconsumer.core import durations
from pollconsumer.core.events import ReservationsLost, WindowTooShort
from pollconsumer.core.message import Malformed, decode_payload
from pollconsumer.core.window import StopReason, Window
from pollconsumer.runtime.executor import Attempt
from pollconsumer.runtime.process import resident_bytes
from pollconsumer.runtime.progress import Counts
from pollconsumer.runtime.settling import Settling
from pollconsumer.store.reservations import Share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pollconsumer.core.events import Event
    from pollconsumer.runtime.context import Context
    from pollconsumer.runtime.executor import Executor
    from pollconsumer.runtime.handlers import Handler
    from pollconsumer.runtime.progress import Progress
    from pollconsumer.runtime.wake import Wake
    from pollconsumer.store.redis_store import RedisStore
    from pollconsumer.store.reservations import Holder, Reservation

SLICE = 0.8
"""Longest wait in seconds before signals and lease are looked at; the server may end it SERVER_LATE later."""
SERVER_LATE = 0.1
HORIZON = 0.01
"""Seconds for which messages are reserved ahead, and for which the outcome of one may stay unsettled."""
BATCH = 128
TRIM_EVERY = 500
MOST_CRASHES = 3
AT_ONCE = 0.5
"""Seconds within which a launch that found no time to handle anything found none from the beginning."""
MEMORY_CHECK_EVERY = 1.0


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Durations in seconds, memory in bytes."""

    queues: tuple[str, ...]
    idle_time: float
    estimated_duration: float
    tolerance_factor: float
    min_margin: float
    grace: float
    baton: bool = False
    until_empty: bool = False
    max_messages: int | None = None
    memory_limit: int | None = None


class Consumer:
    def __init__(
        self,
        options: ConsumerOptions,
        window: Window,
        store: RedisStore,
        holder: Holder,
        handlers: Mapping[str, Handler],
        executor: Executor,
        learned: durations.Durations,
        *,
        wake: Wake,
        progress: Progress,
        interrupted: Callable[[], bool],
        check_lease: Callable[[], None],
        context_of: Callable[[Reservation], Context],
        emit: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``check_lease`` returns when the lease can be trusted, and raises LeaseLost when it is another's."""
        self.options, self.window, self.executor, self.clock = options, window, executor, clock
        self._store, self._holder, self._handlers, self._durations = store, holder, handlers, learned
        self._wake, self._progress, self._interrupted, self._check_lease = wake, progress, interrupted, check_lease
        self._context_of, self._emit = context_of, emit
        self._settling = Settling(emit, chance)
        self._reserved: deque[Reservation] = deque()
        self._flight = progress.flight
        self._taken = self._untrimmed = 0
        self._successor = False
        self._memory_checked = window.start
        self._half = (window.stop_before - window.start) / 2

    def run(self) -> StopReason:
        """Handle messages until the window closes. Raises LeaseLost, StoreUnreachable."""
        began = self.clock()
        reason = self.handle_until_stopped()
        if reason is StopReason.NO_TIME_TO_HANDLE and self.clock() - began < AT_ONCE:
            self._emit(WindowTooShort(self.margin(), self.window.left(began)))
        self.finish()
        return reason

    def handle_until_stopped(self) -> StopReason:
        while (reason := self.asked_to_stop()) is None:
            if self.executor.busy() == self.executor.slots:
                self.await_slot()
            elif not self.window.has_time(self.clock(), self.margin()):
                return StopReason.NO_TIME_TO_HANDLE
            elif attempt := self.dequeue():
                self.handle(attempt)
            elif self.options.until_empty and not self.executor.busy():
                return StopReason.EMPTY
            elif self.window.has_time(self.clock(), self.options.idle_time):
                self.idle()
            else:
                return StopReason.NO_TIME_TO_IDLE
        return reason

    def margin(self) -> float:
        margin = durations.margin(
            self._durations.overall.mean,
            estimated_duration=self.options.estimated_duration,
            tolerance_factor=self.options.tolerance_factor,
            min_margin=self.options.min_margin,
            concurrency=self.executor.slots,
        )
        if self._durations.remembered_only:
            # What earlier launches learned may have changed since: one message at least is handled, and measured.
            margin = min(margin, max(self.options.min_margin, self._half))
        return margin

    def asked_to_stop(self) -> StopReason | None:
        """A reason that has nothing to do with time."""
        self._check_lease()
        if self._interrupted():
            return StopReason.INTERRUPTED
        if self._successor and self.options.baton:
            return StopReason.HANDED_OVER
        if self._taken == self.options.max_messages:
            return StopReason.MAX_MESSAGES
        if self.options.memory_limit and self.clock() - self._memory_checked > MEMORY_CHECK_EVERY:
            self._memory_checked = self.clock()
            if resident_bytes() > self.options.memory_limit:
                return StopReason.MEMORY
        return None

    def dequeue(self) -> Attempt | None:
        """The next message that can be handled: reserved ahead, or reserved now."""
        while self._reserved or self._reserve():
            reservation = self._reserved.popleft()
            handler = self._handlers.get(reservation.handler)
            if handler is None:
                self._settling.park(reservation)
            elif reservation.crashes >= MOST_CRASHES or reservation.attempt > handler.max_attempts:
                self._bury(
                    reservation, f"crashed: its process died while it was in flight, {reservation.crashes} times"
                )
            else:
                try:
                    payload = decode_payload(reservation.payload)
                except Malformed as error:
                    self._bury(reservation, str(error))
                else:
                    context = self._context_of(reservation) if handler.takes_context else None
                    return Attempt(reservation, handler, payload, context)
        return None

    def _reserve(self) -> bool:
        if self.asked_to_stop() is not None or not self.window.has_time(self.clock(), self.margin()):
            return False
        self._step(claim=True)
        return bool(self._reserved)

    def handle(self, attempt: Attempt) -> None:
        reservation = attempt.reservation
        expected = self._durations.expected(attempt.handler.name)
        if self._settling.since is not None and (expected is None or expected > HORIZON):
            self._step(claim=False)  # what is done must not wait for something long
        self._taken += 1
        if reservation.crashes:
            self._await_quiet()  # what may have killed its process is handled alone, so that no other is blamed
        self._flight.enter(reservation.id)
        self.executor.start(attempt)
        self._collect()
        if reservation.crashes:
            self._await_quiet()

    def idle(self) -> None:
        """Wait for a message, at most idle_time, in slices; or for one in flight, while there are any."""
        if self.executor.busy():
            self._wake.wait(min(SLICE, self.options.idle_time), self.executor)
            self._collect()
            return
        until = self.clock() + self.options.idle_time
        last = not self.window.has_time(until, SERVER_LATE)
        while not self._reserved and self.asked_to_stop() is None and (left := until - self.clock()) > 0:
            if last:
                if self._wake.wait(min(SLICE, left)):  # timed here: no wait outlasts the window
                    self._step(claim=True)
            elif self._wake.pending:
                self._wake.close()
                self._step(claim=True)
            else:
                self._step(claim=True, wait=min(SLICE, left))

    def await_slot(self) -> None:
        """A slot is taken before a message is: what is reserved can be started."""
        self.executor.wait(SLICE if self._settling.since is None else HORIZON)
        self._collect()

    def finish(self) -> None:
        """Wait for what is in hand, give back what was not started, settle all of it."""
        self._await_quiet()
        while self._reserved:
            self._settling.release(self._reserved.pop())  # each goes before the one released before it
        self._step(claim=False)
        self._wake.close()
        for queue in self.options.queues:
            self._store.trim(queue)

    def _await_quiet(self) -> None:
        while self.executor.busy():
            self.await_slot()

    def _bury(self, reservation: Reservation, problem: str) -> None:
        self._settling.bury(reservation, problem, reservation.reserved_at, reservation.server_ms(self.clock()))

    def _collect(self) -> None:
        for handled in self.executor.finished():
            self._flight.leave(handled.attempt.reservation.id)
            self._durations.add(handled.attempt.handler.name, handled.ended - handled.started)
            self._settling.settle(handled)
        if self._settling.since is not None and self.clock() - self._settling.since > HORIZON:
            self._step(claim=False)

    def _step(self, *, claim: bool, wait: float = 0.0) -> None:
        """Settle what is done; with ``claim``, reserve what is expected to fit, from the first queue that has any."""
        shares = self._settling.take()
        self._report()
        if shares and (wait or not claim):
            self._send(list(shares.values()))  # what is done must not wait with us
        if wait:
            self._send([Share(queue, self._batch()) for queue in self.options.queues], wait)
        elif claim:
            for queue in self.options.queues:
                share = shares.pop(queue, None) or Share(queue)
                share.claim = self._batch()
                self._send([share, *shares.values()])
                shares = {}
                if self._reserved:
                    break

    def _send(self, shares: list[Share], wait: float = 0.0) -> None:
        lasts = self.window.left(self.clock()) + self.options.grace
        stepped = self._store.step(
            self._holder, shares, lasts_ms=int(lasts * 1000), now=self.clock, wait=wait, known=self._known
        )
        self._reserved += stepped.reserved
        self._successor = self._successor or stepped.successor
        if stepped.stale:
            self._emit(ReservationsLost(tuple(name.decode("utf-8", "backslashreplace") for name in stepped.stale)))
        self._untrimmed += sum(len(share.completed) for share in shares)
        if self._untrimmed >= TRIM_EVERY:
            self._untrimmed = 0
            for share in shares:
                self._store.trim(share.queue)

    def _batch(self) -> int:
        size = durations.batch_size(
            self._durations.overall.mean,
            horizon=HORIZON,
            left=self.window.left(self.clock()) - self.margin(),
            concurrency=self.executor.slots,
            most=BATCH,
        )
        if self.options.max_messages is not None:
            size = min(size, self.options.max_messages - self._taken)
        return max(1, size - self.executor.busy())

    def _known(self) -> set[bytes]:
        return self._flight.ids() | {reservation.id for reservation in self._reserved}

    def _report(self) -> None:
        settling = self._settling
        average = self._durations.overall.mean or 0.0
        self._progress.count(Counts(settling.handled, settling.failed, settling.released, average, self.margin()))
