"""The polling consumer: the loop of one launch.

Source: Mark Seemann, "Faking a continuously Polling Consumer with scheduled tasks", 2014. This loop adds to his
recursion: it idles in a blocking wait, reserves and settles messages in pages, and may have several slots.

`consume` is the role of a consumer: a launch, its queues and recurrences, and the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import closing, nullcontext, suppress
from math import inf
from typing import TYPE_CHECKING

from pollconsumer.core.choices import Loop
from pollconsumer.core.durations import Durations
from pollconsumer.core.errors import OF_ANY_QUEUE, NodeLost, PermissionDenied, PollConsumerError, StoreUnreachable
from pollconsumer.core.events import Event, QueueLeftOut, QueueUnknown, QueueUnserved, WindowTooShort
from pollconsumer.core.window import StopReason
from pollconsumer.runtime.handling.executors import Executor
from pollconsumer.runtime.handling.handler import Handler, aliases_among
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.launch_maintenance import announce, end_expired
from pollconsumer.runtime.session.attempts import Attempts
from pollconsumer.runtime.session.bulk_calls import BulkCaller
from pollconsumer.runtime.session.contexts import Deliveries, Predecessors, ProgressReporter
from pollconsumer.runtime.session.exchange import Exchange, ReservedReturner, Wake
from pollconsumer.runtime.session.pace import ConsumerOptions, Pace
from pollconsumer.runtime.session.settlements import Settlements, death_of
from pollconsumer.runtime.system.process import resident_bytes
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import DeadLetter, Reservation
from pollconsumer.store.server import service_of, unknown_queues

if TYPE_CHECKING:
    from pollconsumer.core.recurrence import Recurrence


SERVER_LATE = 0.1
NEVER_ANY_TIME_WITHIN = 0.5
"""Seconds. If a launch ends for lack of time within them, its window is too short to handle anything."""
MEMORY_CHECK_EVERY = 1.0
SHORTEST_WAIT = 0.0001
TAKING_IN_WAIT = 0.05
"""With ``until_empty``: seconds between two looks for messages while those of the spool are enqueued."""
MOST_LOOKED_AT = 100
"""The most queues of other launches that a launch examines at its end."""


class Consumer:
    def __init__(
        self,
        options: ConsumerOptions,
        launch: Launch,
        handlers: Mapping[str, Handler],
        executor: Executor,
        learned: Durations,
        wake: Wake,
        lost: set[str],
    ) -> None:
        """``learned``: handlers' durations so far. ``lost``: queues of lost cluster nodes; the consumer updates it."""
        self.options, self.window, self.clock, self.executor = options, launch.window, launch.clock, executor
        self._launch, self._wake = launch, wake
        reporter = ProgressReporter(launch, options.report_every)
        reserved: deque[Reservation] = deque()
        predecessors = Predecessors(launch, reserved)
        deliveries = Deliveries(launch, handlers, executor.lock(), reporter, predecessors)
        self._settling = Settlements(launch, deliveries.context_of, handlers, predecessors)
        self._pace = Pace(options, launch, executor, learned)
        self.margin = self._pace.margin
        self._exchange = Exchange(launch, options, self._settling, self._pace, reporter, reserved, lost)
        self._handlers, self._stops = handlers, launch.progress.stops
        self._attempts = Attempts(launch, options, handlers, executor, self._exchange, deliveries.context_of)
        self._bulks: BulkCaller | None = None
        if any(each.bulk is not None for each in handlers.values()):
            parts = self._exchange, self._attempts, deliveries.context_of_call
            self._bulks = BulkCaller(launch, options, handlers, *parts)
        self._asked: StopReason | None = None
        """The first reason to stop. It is kept, since a reason such as used memory may be gone at the next look."""
        self._is_closed = False
        """Whether no further message begins, because time was short while others were in flight."""
        self._exhausted = False
        """Whether the last `dequeue` asked all queues and found no message."""
        self._taken_in = False
        """Whether what was spooled before the launch was enqueued before the last `dequeue`."""
        self._empty_since: float | None = None
        self._memory_checked = self.window.start

    def run(self) -> StopReason:
        """Handle messages until there is a reason to stop; return it. LeaseLost, StoreRefused or StoreUnreachable."""
        began = self.clock()
        if self.executor.slots == 1:
            self._launch.progress.stops.called = self._attempts.stopping.interrupt
        gathered = () if self._bulks is None else (self._bulks.overdue,)
        returning = ReservedReturner(self._launch, self._exchange, self._handlers, *gathered)
        with returning if self.options.instances > 1 else nullcontext(), self._attempts.spare_descriptors:
            reason = self.handle_until_stopped()
        if (
            reason is StopReason.NO_TIME_TO_HANDLE
            and self.clock() - began < NEVER_ANY_TIME_WITHIN
            and not self._launch.waited
        ):
            left, plan = self.window.left(began), self._launch.plan
            # A launch that came late for its own window, as just before the next tick, does not show that others have
            # no time.
            whole = max(left, min(plan.timeout, left + (plan.launched_ago or 0.0)))
            if self.margin() >= whole:
                self._launch.emit(WindowTooShort(self.margin(), whole))
        self._attempts.await_quiet()
        self._exchange.release_all()
        self._wake.close()
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
        if self._pace.begun == self.options.max_messages:
            return False
        now = self.clock()
        return now + self.margin() < self._begins_until(now)

    def _begins_until(self, now: float) -> float:
        """The instant until which messages may begin, apart from the margin: the window's end; 0 once time was short,
        or the next launch has called for the lease. While long messages keep the launch alive, it may be later."""
        closes = 0.0 if self._is_closed or self._exchange.called < inf else self.window.stop_before
        if not self.executor.busy or now + self.margin() < closes:
            return closes
        return max(closes, self._launch.end.lasts_until(now, self._exchange.called))

    def has_time_to_idle(self) -> bool:
        """Whether the loop may wait for messages. `Loop.WOKEN` always may, because `idle` ends the wait when the margin
        begins. The loop of Seemann's article may only if the whole idle time fits into the window."""
        return self.options.margin.loop is Loop.WOKEN or self.window.has_time(self.clock(), self.options.idle_time)

    def asked_to_stop(self) -> StopReason | None:
        """The reason to stop, other than lack of time, or None. Before that it checks the lease, and interrupts
        messages in flight that were asked to stop or whose limits have passed. LeaseLost, StoreRefused or
        StoreUnreachable if the lease is lost."""
        if self._launch.check_lease():
            self._exchange.clear()  # others may have recovered what was not begun, and handle it now
        if self._stops.any() or self.executor.busy:
            self._attempts.stopping.attend()
        if self._asked is not None:
            return self._asked
        if self._attempts.leaking:
            self._asked = StopReason.DESCRIPTORS
        elif self._launch.interrupted():
            self._asked = StopReason.INTERRUPTED
        elif self._exchange.called < inf and not self.executor.busy:  # a message in flight may last: others then begin
            self._asked = StopReason.HANDED_OVER
        elif self._pace.begun == self.options.max_messages and not self.executor.busy:  # a call may take its own back
            self._asked = StopReason.MAX_MESSAGES
        elif self.options.memory_limit and self._has_grown_beyond(self.options.memory_limit):
            self._asked = StopReason.MEMORY
        return self._asked

    def _has_grown_beyond(self, memory_limit: int) -> bool:
        """Whether the process uses more than ``memory_limit`` bytes. Measured once a second; False in between."""
        now = self.clock()
        if now - self._memory_checked <= MEMORY_CHECK_EVERY:
            return False
        self._memory_checked = now
        return resident_bytes() > memory_limit

    def nothing_left(self) -> StopReason | None:
        """Why the launch may end before its window, or None. EMPTY after ``linger`` seconds without a message that is
        ready, due, in flight, in an outbox or spooled; HELD_BACK if all ready ones are held back. None if a cluster
        node is lost."""
        if self.executor.busy or not (self._exhausted and self._taken_in):
            return None
        if self._exchange.lost or self._exchange.gathered:
            return None
        if self._exchange.to_repair:
            added = self._exchange.added
            self._exchange.repair()
            if self._exchange.added > added:
                return None
        now = self.clock()
        if self._empty_since is None:
            self._empty_since = now
        if now - self._empty_since < self.options.linger:
            return None
        return StopReason.HELD_BACK if self._exchange.held_back else StopReason.EMPTY

    def dequeue(self) -> bool:
        """Reserve messages if none are. Returns whether `handle` has work: a reserved message, or a due bulk call."""
        if self._exchange.reserved or (self._exchange.gathered and self._bulks is not None and self._bulks.is_due()):
            return True
        self._exhausted = False
        self._taken_in = self.options.taken_in is None or self.options.taken_in.is_set()
        promoted = not self.options.until_empty
        while self.asked_to_stop() is None and self.has_time_to_handle():
            added = self._exchange.added
            if self._exchange.reserve():
                break
            if not promoted:
                self._exchange.promote_next()  # a queue is not empty while one of its messages is due
                promoted = True
            elif self._exchange.more_in != 0 and self._exchange.added == added:
                self._exhausted = True
                break
        if self._settling.watched:
            self._settling.call_hooks()
            if not self.has_time_to_handle():
                return False
        return bool(self._exchange.reserved)

    def handle(self) -> None:
        """Handle the next reserved message, or make the due call of a bulk handler."""
        if self._bulks is not None and self._bulks.handle():
            self._empty_since = None
            return
        reservation = self._exchange.next()
        attempt = None if reservation is None else self._attempts.attempt(reservation)
        if attempt is None:
            return
        self._attempts.settle_before(attempt.handler.name)
        if attempt.handler.at_most_once:
            self._exchange.begin([attempt.reservation])
            if not attempt.reservation.begun:
                return
        self._attempts.begin(attempt, [attempt])
        self._empty_since = None

    def idle(self) -> None:
        """Wait for a message, for idle_time at most, and until the margin begins. Also settle what ends meanwhile."""
        now = self.clock()
        longest = self._longest_idle(now)
        if self.executor.busy:
            if self._wake.wait(min(self.options.longest_wait, longest, self._exchange.due_in()), self.executor):
                self._exchange.promote_next()
            self._attempts.collect()
            return
        until = self.window.wait_until(now, longest)
        last = not self.window.has_time(until, SERVER_LATE)
        while not self._exchange.reserved and self.asked_to_stop() is None and (left := until - self.clock()) > 0:
            wait = min(self.options.longest_wait, left)
            soon = min(self._exchange.due_in(), self._exchange.more_in)
            # This process times the wait if the server, which ends waits late, would miss the window's end or a due
            # time.
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

    def _longest_idle(self, now: float) -> float:
        """Seconds from ``now`` for which `idle` may wait at most."""
        longest = self.options.idle_time
        if self.options.margin.loop is Loop.WOKEN:
            longest = min(longest, self._begins_until(now) - now - self.margin())
        if self.options.until_empty and not self._taken_in:
            longest = min(longest, TAKING_IN_WAIT)
        if self._empty_since is not None:
            longest = min(longest, self._empty_since + self.options.linger - now)
        if self._bulks is not None:
            longest = min(longest, self._bulks.due_in())
        return max(0.0, longest)  # the margin may have begun in between

    def await_slot(self) -> None:
        """Wait until a handler ends, and meanwhile reserve the next messages. If it is called although a slot is free,
        time was too short for another message: then no further message begins, even if the margin shrinks later."""
        if self.executor.busy < self.executor.slots and self._pace.begun != self.options.max_messages:
            self._is_closed = True
        wanted, exchange = self._pace.ahead(), self._exchange
        is_low = len(exchange.reserved) <= wanted // 3 or self._attempts.is_late()
        may_reserve = self.options.max_messages is None and not exchange.is_stuck
        if wanted and is_low and may_reserve and self.has_time_to_handle():
            exchange.reserve()
            if self._settling.watched:
                self._settling.call_hooks()
        self._attempts.await_end()


def consume(
    launch: Launch,
    options: ConsumerOptions,
    handlers: Mapping[str, Handler],
    recurrences: Sequence[Recurrence],
    executor: Executor,
) -> StopReason:
    """A consumer's work: take over orphans, handle messages until the window closes, close ``executor``."""
    with closing(executor):
        store, named = launch.store, {handler.queue for handler in handlers.values()}
        known = {"default", *named, *(each.queue for each in recurrences)}
        if unnamed := [queue for queue in options.queues if queue not in known]:
            report_unknown(store, unnamed, launch.emit)
        wanted, lost = set(options.queues), set[str]()
        aliases = aliases_among(handlers)
        if aliases:
            store.maintenance.rename(aliases)
        store.part(options.queues)
        learned = launch.leases.learned(launch.claim.group, handlers, aliases)
        durations = Durations(learned, launch.window.length, options.margin.loop)
        offered = {name for name, each in handlers.items() if each.name not in launch.leases.paused_handlers}
        options = options._replace(queues=_announce(launch, options.queues, lost, offered))
        left_out = wanted.difference(options.queues) | lost
        try:
            define(store, launch.claim.group, recurrences, launch.emit, left_out)
        except NodeLost:
            left_out |= store.lost(store.queues())
            define(store, launch.claim.group, recurrences, launch.emit, left_out)

        def markers() -> list[str]:
            here = [queue for queue in options.queues if queue not in lost]
            return [store.keys.queue(queue, name) for name in ("ready_marker", "schedule_marker") for queue in here]

        try:
            wake = Wake(launch.bare_wire(), markers, launch.clock)
            names = {name: each.name for name, each in handlers.items()}
            launch.progress.stops.serve(names, launch.leases.paused_handlers)  # GUARD a handler that was paused before
            reason = Consumer(options, launch, handlers, executor, durations, wake, lost).run()
            end_expired(launch, report_unserved(store, wanted, handlers, launch.emit))
            return reason
        finally:
            launch.leases.learn(launch.claim.group, durations.measured)


def report_unknown(store: RedisStore, queues: Sequence[str], emit: Callable[[Event], None]) -> None:
    """Report those ``queues`` that the store does not know. The caller leaves out queues that a handler names. Each is
    reported once: the launch then announces itself there, and makes it known."""
    for queue in unknown_queues(store.wire, store.keys, queues):
        emit(QueueUnknown(queue))


def report_unserved(
    store: RedisStore, wanted: Set[str], handlers: Mapping[str, Handler], emit: Callable[[Event], None]
) -> list[str]:
    """Report each queue that has ready messages, is not paused, and that no launch has served lately. Returns all
    queues with messages, ready or not, that no launch has served lately, paused ones too. The queues in ``wanted`` are
    left out: this launch serves them. At most `MOST_LOOKED_AT` queues are examined, those of ``handlers`` first.

    Called at a launch's end, when other launches that the platform started at the same time have announced themselves.
    Errors of the store are ignored."""
    named, unserved = {handler.queue for handler in handlers.values()} - wanted, list[str]()
    with suppress(StoreUnreachable, PermissionDenied):
        queues = [*sorted(named), *sorted({*store.queues()} - named - wanted)][:MOST_LOOKED_AT]
        for queue, service in service_of(store.wire, store.keys, queues).items() if queues else ():
            if service.lately or not (service.ready or service.waits):
                continue
            unserved.append(queue)
            if service.ready and not service.paused:
                names = tuple(sorted({handler.name for handler in handlers.values() if handler.queue == queue}))
                emit(QueueUnserved(queue, names, service.ready))
    return unserved


def _announce(launch: Launch, queues: Sequence[str], lost: set[str], handlers: Collection[str]) -> tuple[str, ...]:
    """Announce the launch in ``queues``. Returns those that it can serve, including queues whose cluster node is lost
    for now, which are added to ``lost``. If it can serve none, the first error is raised."""

    def emit_death(dead_letter: DeadLetter) -> None:
        launch.emit(death_of(dead_letter))

    refused = dict[str, PollConsumerError]()
    for queue in queues:
        if queue in lost:
            continue
        try:
            announce(launch, queue, emit_death, handlers)
        except NodeLost:
            lost |= {queue, *launch.store.lost(queues)}
        except OF_ANY_QUEUE:
            raise
        except PollConsumerError as error:  # GUARD a queue whose keys cannot be used
            refused[queue] = error
    if len(refused) == len(queues):
        raise next(iter(refused.values()))
    for queue, reason in refused.items():
        launch.emit(QueueLeftOut(queue, str(reason)))
    return tuple(queue for queue in queues if queue not in refused)


def define(
    store: RedisStore,
    owner: str,
    recurrences: Sequence[Recurrence],
    emit: Callable[[Event], None],
    left_out: Set[str] = frozenset(),
) -> None:
    """Register the recurrences that a launch's modules and configuration define, and remove those that they no longer
    define.

    ``owner``: the launch's group. ``left_out``: queues whose keys are unusable, or whose cluster node is lost. A later
    launch registers their recurrences. The code for this is imported here, since most launches define no
    recurrences."""
    if not recurrences and not store.maintenance.owns_recurrences(owner):
        return
    from pollconsumer.store.recurrences import LaunchRecurrences

    queues = {*store.queues(), *(recurrence.queue for recurrence in recurrences)} - left_out
    if recurrences:
        store.maintenance.own_recurrences(owner, queues)
    LaunchRecurrences(store.wire, store.keys.namespace).define(owner, sorted(queues), recurrences, emit)
    if not recurrences and not left_out:
        store.maintenance.disown_recurrences(owner)  # last: if a launch dies before, the next one repeats it
