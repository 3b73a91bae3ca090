"""The polling consumer: the loop of one launch.

Source: Mark Seemann, "Faking a continuously Polling Consumer with scheduled tasks", 2014. What is added to his
recursion: idling is a blocking wait, messages are reserved and settled in pages, and there may be several slots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

from pollconsumer.core import durations
from pollconsumer.core.choices import Loop
from pollconsumer.core.queue_order import Turns
from pollconsumer.core.window import StopReason
from pollconsumer.runtime.handling.executors.executor import Executor
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.session.attempt_opener import AttemptOpener
from pollconsumer.runtime.session.call_starter import CallStarter
from pollconsumer.runtime.session.collector import Collector
from pollconsumer.runtime.session.consumer_options import ConsumerOptions
from pollconsumer.runtime.session.contexts import Deliveries
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.runtime.session.message_stopper import MessageStopper
from pollconsumer.runtime.session.pace import Pace
from pollconsumer.runtime.session.predecessors import Predecessors
from pollconsumer.runtime.session.progress_reporter import ProgressReporter
from pollconsumer.runtime.session.settlements import Settlements
from pollconsumer.runtime.session.wake import Wake
from pollconsumer.runtime.system.process import resident_bytes
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    from pollconsumer.runtime.session import bulk_calls

SERVER_LATE = 0.1
NEVER_ANY_TIME_WITHIN = 0.5
"""Seconds within which a stop for lack of time means that there never was any."""
MEMORY_CHECK_EVERY = 1.0
SHORTEST_WAIT = 0.0001


class Consumer:
    def __init__(
        self,
        options: ConsumerOptions,
        launch: Launch,
        handlers: Mapping[str, Handler],
        executor: Executor,
        learned: durations.Durations,
        wake: Wake,
        lost: set[str],
    ) -> None:
        """``lost``: queues whose node of a cluster is lost, kept up to date here."""
        self.options, self.window, self.clock, self.executor = options, launch.window, launch.clock, executor
        self._launch, self._wake = launch, wake
        reporter = ProgressReporter(launch, options.report_every)
        reserved: deque[Reservation] = deque()
        predecessors = Predecessors(launch, reserved)
        deliveries = Deliveries(launch, handlers, executor.lock(), reporter, predecessors)
        context_of = deliveries.context_of
        self._settling = Settlements(launch, context_of, handlers, predecessors)
        self._pace = Pace(options, launch, executor, learned)
        self.margin = self._pace.margin
        turns = Turns(options.queues, options.weights)
        self._exchange = Exchange(
            launch, self._settling, turns, options.limits, self._pace, reporter, reserved, options.keeping
        )
        self._exchange.lost = lost
        self._handlers, self._stops = handlers, launch.progress.stops
        calls = self._bulk_calls()
        self._stopping = MessageStopper(
            launch, executor, self._exchange, options.queues, *(() if calls is None else (calls.stoppable, calls.known))
        )
        parts = launch, executor, learned, self._exchange, self._settling, self._stopping
        self._collecting = Collector(*parts, None if calls is None else calls.each_of)
        self._opening = AttemptOpener(
            launch, handlers, self._settling, context_of, self._collecting.settle, options.new_monitors
        )
        self._starter = CallStarter(
            launch, executor, learned, self._exchange, self._settling, self._collecting, self._pace
        )
        self._bulks = self._bulk_caller(deliveries, calls)
        self._asked: StopReason | None = None
        """The first reason to stop; what was seen, as memory, may not be seen again."""
        self._is_closed = False
        """Whether there was no time for a message while others were in flight."""
        self._exhausted = False
        """Whether the last attempt to dequeue found no message, in any queue."""
        self._empty_since: float | None = None
        self._memory_checked = self.window.start

    def _bulk_calls(self) -> bulk_calls.BulkCalls | None:
        """The calls of bulk handlers in hand, if there are such handlers."""
        if all(each.bulk is None for each in self._handlers.values()):
            return None
        from pollconsumer.runtime.session.bulk_calls import BulkCalls  # few launches have any

        return BulkCalls(self._launch, self._handlers, self.options, self.executor.slots, self._pace)

    def _bulk_caller(self, deliveries: Deliveries, calls: bulk_calls.BulkCalls | None) -> bulk_calls.BulkCaller | None:
        if calls is None:
            return None
        from pollconsumer.runtime.session.bulk_calls import BulkCaller

        parts = self._exchange, self._pace, self._opening, self._starter, calls, deliveries.context_of_call
        return BulkCaller(self.options, self._launch, *parts)

    def run(self) -> StopReason:
        """Handle messages until the window closes. Raises LeaseLost, StoreUnreachable."""
        began = self.clock()
        if self.executor.slots == 1:
            self._launch.progress.stops.answer_by(self._stopping.interrupt)
        returner = None
        if self.options.instances > 1:
            from pollconsumer.runtime.session.reserved_returner import (
                ReservedReturner,  # few launches share their queues
            )

            gathered = () if self._bulks is None else (self._bulks.overdue,)
            returner = ReservedReturner(self._launch, self._exchange, self._handlers, *gathered)
            returner.begin()
        try:
            with self._collecting.spare_descriptors:
                reason = self.handle_until_stopped()
        finally:
            if returner is not None:
                returner.end()
        if (
            reason is StopReason.NO_TIME_TO_HANDLE
            and self.clock() - began < NEVER_ANY_TIME_WITHIN
            and not self._launch.waited
        ):
            self._pace.warn_unless_late(self.window.left(began))
        self.finish()
        return reason

    def handle_until_stopped(self) -> StopReason:
        while (reason := self.asked_to_stop()) is None:
            if self.executor.busy == self.executor.slots:
                self.await_slot()
            elif not self.has_time_to_handle():
                if not self.executor.busy:
                    return StopReason.NO_TIME_TO_HANDLE
                self.await_slot()
            elif self.dequeue():
                self.handle()
            elif self.options.until_empty and (nothing_left := self.nothing_left()) is not None:
                return nothing_left
            elif self.has_time_to_idle():
                self.idle()
            else:
                return StopReason.NO_TIME_TO_IDLE
        return reason

    def has_time_to_handle(self) -> bool:
        if self._has_begun_all():
            return False
        now, margin = self.clock(), self.margin()
        in_window = now + margin < self._closes()
        return in_window or (self.executor.busy > 0 and now + margin < self._begins_until(now))

    def _closes(self) -> float:
        """When the window closes; 0 if it has: there was no time, or the next launch has called."""
        return 0.0 if self._is_closed or self._exchange.called < inf else self.window.stop_before

    def _begins_until(self, now: float) -> float:
        """When messages begin no more, but for the margin: when the window closes; later, if another slot goes on."""
        return max(self._closes(), self._launch.end.lasts_until(now, self._exchange.called))

    def _has_begun_all(self) -> bool:
        """Whether as many messages have begun as ``max_messages`` allows."""
        return self._pace.begun == self.options.max_messages

    def has_time_to_idle(self) -> bool:
        """Whether the loop may idle. That of the article may if its whole idle time fits into the window; the other
        one always may, since `idle` ends its wait when the margin begins."""
        return self.options.loop is Loop.WOKEN or self.window.has_time(self.clock(), self.options.idle_time)

    def asked_to_stop(self) -> StopReason | None:
        """The reason to stop, other than time: a permanent one; None to go on. Before that the lease is checked, and
        messages are interrupted that are to stop."""
        self._await_trusted_lease()
        self._interrupt_messages()
        if self._asked is None:
            self._asked = self._reason_to_stop()
        return self._asked

    def _await_trusted_lease(self) -> None:
        """Raise LeaseLost, StoreRefused or StoreUnreachable if the lease is lost. If it was in doubt, release what was
        not begun: others may have recovered it, and be handling it."""
        if self._launch.check_lease():
            self._exchange.clear()

    def _interrupt_messages(self) -> None:
        """Interrupt messages in flight that are to stop, or whose limits have passed."""
        if self._stops.any() or self.executor.busy:
            self._stopping.attend()

    def _reason_to_stop(self) -> StopReason | None:
        """The first reason to stop that holds now."""
        if self._collecting.leaking:
            return StopReason.DESCRIPTORS
        if self._launch.interrupted():
            return StopReason.INTERRUPTED
        if self._exchange.called < inf and not self.executor.busy:  # a message in flight may last: others then begin
            return StopReason.HANDED_OVER
        if self._has_begun_all() and not self.executor.busy:  # a call in flight may take its messages back
            return StopReason.MAX_MESSAGES
        if self.options.memory_limit and self._has_grown_beyond(self.options.memory_limit):
            return StopReason.MEMORY
        return None

    def _has_grown_beyond(self, memory_limit: int) -> bool:
        """Whether the process has more than ``memory_limit`` bytes. Looks once a second: False in between."""
        now = self.clock()
        if now - self._memory_checked <= MEMORY_CHECK_EVERY:
            return False
        self._memory_checked = now
        return resident_bytes() > memory_limit

    def nothing_left(self) -> StopReason | None:
        """EMPTY if no message is ready, due, in hand or in an outbox, HELD_BACK if all ready ones are held back. None
        until that has been the case for ``linger`` seconds, and while the node of a queue is lost."""
        if self.executor.busy or not self._exhausted or self._exchange.lost or self._exchange.gathered:
            return None
        if self._exchange.to_repair:
            brought = self._exchange.brought
            self._exchange.repair()
            if self._exchange.brought > brought:
                return None
        now = self.clock()
        if self._empty_since is None:
            self._empty_since = now
        if now - self._empty_since < self.options.linger:
            return None
        return StopReason.HELD_BACK if self._exchange.held_back else StopReason.EMPTY

    def dequeue(self) -> bool:
        """Whether messages are reserved: ahead, or now; or a bulk call is due."""
        if self._exchange.reserved or (self._exchange.gathered and self._bulks is not None and self._bulks.is_due()):
            return True
        self._exhausted = False
        promoted = not self.options.until_empty
        while self.asked_to_stop() is None and self.has_time_to_handle():
            brought = self._exchange.brought
            if self._exchange.reserve():
                break
            if not promoted:
                self._exchange.promote_next()  # a queue is not empty while anything is due
                promoted = True
            elif self._exchange.more_in != 0 and self._exchange.brought == brought:
                self._exhausted = True
                break
        if self._settling.watched:
            self._settling.call_hooks()
            if not self.has_time_to_handle():
                return False
        return bool(self._exchange.reserved)

    def handle(self) -> None:
        """Handle the next reserved message, or those of a bulk call."""
        if self._bulks is not None and self._bulks.handle():
            self._empty_since = None
            return
        reservation = self._exchange.next()
        attempt = None if reservation is None else self._opening.attempt(reservation)
        if attempt is not None and self._starter.start(attempt):
            self._empty_since = None

    def idle(self) -> None:
        """Wait for a message, at most idle_time or until the margin begins; while any are in flight, for one of
        these."""
        now = self.clock()
        longest = self.options.idle_time
        if self.options.loop is Loop.WOKEN:
            longest = min(longest, self._begins_until(now) - now - self.margin())
        if self._empty_since is not None:
            longest = min(longest, self._empty_since + self.options.linger - now)
        if self._bulks is not None:
            longest = min(longest, self._bulks.due_in())
        longest = max(0.0, longest)  # the margin may have begun since it was looked at
        if self.executor.busy:
            if self._wake.wait(min(self.options.longest_wait, longest, self._exchange.due_in()), self.executor):
                self._exchange.promote_next()
            self._collecting.collect()
            return
        until = self.window.wait_until(now, longest)
        last = not self.window.has_time(until, SERVER_LATE)
        while not self._exchange.reserved and self.asked_to_stop() is None and (left := until - self.clock()) > 0:
            wait, more_in = min(self.options.longest_wait, left), self._exchange.more_in
            soon = min(self._exchange.due_in(), inf if more_in is None else more_in)
            # Timed here where the server, which ends waits late, would outlast the window or a due time.
            if last or soon < wait or self._wake.pending:
                woken = self._wake.wait(min(left, max(SHORTEST_WAIT, min(soon, wait))))
                if woken:
                    self._exchange.promote_next()
                if woken or soon < wait:
                    self._exchange.reserve()
            else:
                self._exchange.reserve_when_woken(wait)
        if self._settling.watched:
            self._settling.call_hooks()

    def await_slot(self) -> None:
        """Wait until a handler ends, and reserve the next messages meanwhile. If a slot is free already, there was no
        time for another message: the window closes, even if the margin shrinks later."""
        if self.executor.busy < self.executor.slots and not self._has_begun_all():
            self._is_closed = True
        self._reserve_ahead()
        self._collecting.await_end()

    def _reserve_ahead(self) -> None:
        """Reserve the next messages of the slots, and settle the last ones, while all slots are busy."""
        wanted, bounded = self._pace.ahead(), self.options.max_messages is not None
        if not wanted or not self.has_time_to_handle() or bounded or self._exchange.is_stuck:
            return
        if len(self._exchange.reserved) <= wanted // 3 or self._collecting.is_late():
            self._exchange.reserve()
            if self._settling.watched:
                self._settling.call_hooks()

    def finish(self) -> None:
        """Wait for messages in hand, release the ones not started, settle all."""
        self._collecting.await_quiet()
        self._exchange.release_all()
        self._wake.close()
