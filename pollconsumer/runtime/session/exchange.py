"""A launch's exchange with the store: in one round trip it settles outcomes and reserves the next messages. A second
connection waits for messages.

If a cluster has lost a node, the launch goes on with the queues of the other nodes. Outcomes for the lost node's queues
are kept until it is back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from math import inf
from threading import Lock

from pollconsumer.core.errors import OF_ANY_QUEUE, NodeLost, PollConsumerError, StoreUnreachable
from pollconsumer.core.events import NewerMessagesFound, QueueLeftOut, ReservationsLost
from pollconsumer.runtime.handling.executors import Executor
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.launch.board import Counts
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.launch_maintenance import EVERY, announce, repair, send_on, tick
from pollconsumer.runtime.session.contexts import ProgressReporter
from pollconsumer.runtime.session.pace import ConsumerOptions, Pace
from pollconsumer.runtime.session.settlements import Settlements
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Reservation
from pollconsumer.store.records.rows import id_text
from pollconsumer.store.records.steps import Promoted, QueueStep, Retention, Settlement, Stepped
from pollconsumer.store.server import unreachable

TRIM_EVERY = 150
"""At least so many messages are completed between two deletions of old ones."""
PROMOTE_EVERY = 0.01
"""Seconds between two promotions of a busy launch, which may not know of a due time that was scheduled since."""
FULL_STEP_FOR = 10.0
"""Seconds after a message with options was found in a queue, during which a full step reserves the queue's messages.
Only a full step knows options. A wrong guess costs a round trip."""
SKIPPED_FOR = 1.0
"""Seconds for which the queues of a lost node are skipped before the node is asked again."""
LOOK_EVERY = 0.02
"""Seconds between looks of `ReservedReturner`. Two looks, a step and a wake-up delay a message by less than 50 ms."""
BLOCK = 5.0
"""Seconds that a blocking read lasts in the server. Until then the read of a vanished client may take a marker."""
Seen = tuple["Sequence[Reservation]", "Reservation"]
"""What `ReservedReturner` saw: the messages in flight, and the first message that is reserved behind them."""


class Turns:
    """The order in which queues are asked for messages. Without ``weights`` it is always the same. With them, queues
    get shares in proportion to their weights: a message adds 1/weight to its queue's count, and the queue with the
    lowest count comes first (stride scheduling; Waldspurger and Weihl, 1995)."""

    def __init__(self, queues: Sequence[str], weights: Mapping[str, int] | None = None) -> None:
        self.queues = tuple(queues)
        self._strides = {queue: 1 / weights.get(queue, 1) for queue in queues} if weights else {}
        self._virtual_times = dict.fromkeys(queues, 0.0)
        self._now = 0.0

    def order(self) -> Sequence[str]:
        """The queues, the first to ask first."""
        return sorted(self.queues, key=self._virtual_times.__getitem__) if self._strides else self.queues

    def served(self, queue: str, messages: int) -> None:
        """Count ``messages`` that ``queue`` handed out. An empty queue does not save up its share."""
        if self._strides:
            self._now = max(self._virtual_times[queue], self._now)
            self._virtual_times[queue] = self._now + messages * self._strides[queue]


class Exchange:
    """A launch's exchange with the store. ``reserved``: messages that are reserved and not begun, in order.
    ``gathered``: further reserved messages, which will share calls of bulk handlers."""

    def __init__(
        self,
        launch: Launch,
        options: ConsumerOptions,
        settling: Settlements,
        pace: Pace,
        reporter: ProgressReporter,
        reserved: deque[Reservation],
        lost: set[str],
    ) -> None:
        """``lost``: queues that are skipped because their cluster node is lost. The exchange updates this set."""
        self._launch, self.settling, self.pace, self.lost = launch, settling, pace, lost
        self._turns, self._keeping = Turns(options.queues, options.weights), options.keeping
        self.reporter, self.reserved, self.gathered = reporter, reserved, deque[Reservation]()
        self._store, self._flight, self._emit = launch.store, launch.progress.flight, launch.emit
        self._limits = {queue: limits.packed() for queue, limits in options.limits.items()}
        self.lock = Lock()
        """Held to take a reserved message, or to return it to its queue, since another thread returns some."""
        self.returned, self.is_stuck = 0, False
        """``returned``: how many messages `ReservedReturner` has returned. ``is_stuck``: it returned some, and no
        handler has ended since."""
        self._look_at = -inf
        """When to ask again whether lost nodes are back, on the launch's clock."""
        self._unbegun: list[Reservation] = []
        """At-most-once messages of lost queues. They could not be recorded as begun, so they are not handled yet."""
        self._untrimmed = 0
        self._to_trim: set[str] = set()
        """Queues whose next step also deletes old messages."""
        self._full_step_until: dict[str, float] = {}
        """Until when each queue's messages are reserved by full steps, on the launch's clock: see FULL_STEP_FOR."""
        self.called = inf
        """When the next launch first called for the lease, on the launch's clock. Infinity if it has not, or if the
        hand-off is no baton."""
        self.more_in = inf
        """Seconds from the last reservation until a queue's limit allows more messages. Infinity if unknown."""
        self.held_back = False
        """Whether the last reservation got nothing from a queue with ready messages: limit, pause or key held them."""
        self.added = 0
        """How many messages repairs, outboxes and recurrences have made ready."""
        self._due_at = inf
        """When the next message or occurrence is due, on the launch's clock, as the last promotion found."""
        self._promoted = -inf
        """When the last promotion was, on the launch's clock."""
        self.to_repair: list[str] = []
        """Queues in which the last promotion found something to repair. They are repaired before a later step, to start
        the messages just reserved without delay."""
        self._repaired = launch.clock()
        self._left_out = set[str]()
        """Queues that are not served any more, since their keys are corrupt."""

    def next(self) -> Reservation | None:
        """Take the next reserved message; None if there is none."""
        with self.lock:
            return self.reserved.popleft() if self.reserved else None

    def queues(self) -> Sequence[str]:
        """The launch's queues, except those of lost nodes."""
        return [queue for queue in self._turns.queues if queue not in self.lost]

    def due_in(self) -> float:
        """Seconds until the next message or occurrence of the launch's queues is due. Infinity if none is known."""
        return max(0.0, self._due_at - self._launch.clock())

    def hear_call(self) -> None:
        """Record that the next launch calls for the lease, if the hand-off is a baton."""
        if self._launch.plan.handoff.on_call:
            self.called = min(self.called, self._launch.clock())

    def promote_next(self) -> None:
        """Let the next step promote, whether or not anything is known to be due."""
        self._promoted = -inf

    def reserve(self, only: str | None = None, wanted: int | None = None) -> bool:
        """Promote due messages, settle outcomes, and reserve as many messages as should soon begin, from the first
        queue that has any: for a bulk call ``wanted`` at most, from the queue ``only``. Returns whether any were
        reserved."""
        if self.lost:
            self._look()
            if only in self.lost:
                return False
        if self.to_repair and self._promoted - self._repaired >= EVERY:
            self.repair()
        steps, self.more_in, self.held_back = self.settling.take(), inf, False
        promotes = self._launch.clock() >= min(self._due_at, self._promoted + PROMOTE_EVERY)
        for queue in self._turns.order() if only is None else [only]:
            if queue in self.lost:
                continue
            step = steps.pop(queue, None) or QueueStep(queue)
            step.wanted = self.pace.page_size(len(self.reserved), wanted)
            stepped = self._send([step, *steps.values()], promoting=self._turns.queues if promotes else ())
            self._flight.settled()
            steps, promotes = {}, False
            if stepped.reserved:
                self._turns.served(queue, len(stepped.reserved))
                self.pace.measure(stepped.reserved)
                return True
        for step in steps.values():  # all queues are lost
            self.settling.keep(step)
        return False

    def reserve_when_woken(self, wait: float) -> None:
        """Wait at most ``wait`` seconds for a message in any queue, and reserve it.

        If none came, promote. A message that wakes an idle launch is not delayed by a promotion."""
        if self.lost:
            self._look()
        self.settle()  # outcomes must not wait
        self.more_in, self.held_back = inf, False
        steps = [QueueStep(queue) for queue in self.queues()]
        now = self._launch.clock()
        for step in steps:
            step.wanted = self.pace.page_size(len(self.reserved))
            step.single = step.queue not in self._limits and now >= self._full_step_until.get(step.queue, -inf)
        stepped = self._send(steps, wait)
        if stepped.needs_full_step:
            steps = [step for step in steps if step.queue in stepped.needs_full_step]
            for step in steps:
                step.single = False
                self._full_step_until[step.queue] = self._launch.clock() + FULL_STEP_FOR
            self._send(steps)
        for reservation in self.reserved:
            self._turns.served(reservation.common.queue, 1)
        if not self.reserved:
            self._send([], promoting=self._turns.queues)

    def settle(self) -> None:
        """Settle outcomes, and reserve nothing."""
        if steps := self.settling.take():
            self._send([*steps.values()])
            self._flight.settled()

    def report(self) -> None:
        """Pass the launch's counts to its heartbeat, which writes them to the ledger."""
        settling, pace = self.settling, self.pace
        released = settling.released + self.returned
        average, longer = pace.durations.mean or 0.0, pace.durations.longer_than_window
        counts = Counts(settling.handled, settling.failed, released, settling.yielded, average, pace.margin(), longer)
        self._launch.progress.count(counts)

    def begin(self, reservations: Sequence[Reservation]) -> None:
        """Record that ``reservations``, all of one queue, are begun, since they are delivered at most once. A message
        is not `Reservation.begun` afterwards if it is stale, waits for a lost node, or its queue is left out."""
        queue = reservations[0].queue
        while queue not in self.lost:
            try:
                if stale := self._store.begin(self._launch.claim, reservations):
                    self._report_stale(stale)
            except NodeLost:
                self._skip_lost()
                continue
            except PollConsumerError as error:
                self._leave_out(error)
            return
        self._unbegun += reservations

    def repair(self) -> None:
        launch, queues = self._launch, [queue for queue in self.to_repair if queue not in self.lost]
        self._repaired, self.to_repair = launch.clock(), []
        live = launch.leases.live_fences()
        for queue in queues:
            with self._leaving_out():
                self.added += repair(launch, queue, live, self.settling.add_dead_letter)

    def clear(self) -> None:
        """Release messages that were not begun. Settle these releases, and outcomes."""
        self._release_reserved()
        self.settle()

    def release_all(self) -> None:
        """Release messages that were not begun, then those whose handlers yielded. Settle everything, and delete old
        messages. StoreUnreachable if a queue's node is still lost at the end."""
        self._release_reserved()
        self.settling.release_held_over()
        self.settle()
        if self.lost:  # try to settle what waits for lost nodes while patience lasts, unless a successor waits
            lost = self._store.lost(self.lost)
            self._store.part(())
            with suppress(StoreUnreachable):
                for queue in sorted(self.lost):
                    if queue not in lost or (self.called == inf and self.settling.ids(queue)):
                        self._go_on_with(queue)
                self.clear()
        self.report()
        for queue in self.queues():
            with self._leaving_out():
                self._store.maintenance.trim(queue, self._keeping.get(queue, Retention()))
        if self.lost:
            raise unreachable(self.lost)

    def _release_reserved(self) -> None:
        with self.lock:
            # the last one first, since each goes to the head
            released = [*reversed(self.reserved), *reversed(self.gathered)]
            self.reserved.clear()
            self.gathered.clear()
        for reservation in released:
            self.settling.release(reservation)

    def _send(self, steps: list[QueueStep], wait: float = 0.0, promoting: Sequence[str] = ()) -> Stepped:
        """Send ``steps``, and promote due messages of the queues ``promoting``. With ``wait``, the store waits so many
        seconds for a message; the steps then settle nothing, since that would delay the message."""
        self.report()
        if self.lost or self._left_out:
            steps, served = self._served(steps), self.queues()
            promoting = [queue for queue in promoting if queue in served]
            if not steps and not promoting:
                return Stepped()
        for step in steps:
            step.limits = self._limits.get(step.queue, "")  # even if none is wanted, since a settlement makes room
            if step.queue in self._to_trim and not wait:
                self._to_trim.remove(step.queue)
                step.trims = self._keeping.get(step.queue, Retention())
        launch = self._launch
        sent = launch.clock()
        # Handlers go on while a step waits. Their reports would wait with it, and newer ones be stored before them.
        carries = self.reporter.has_reported and not wait
        try:
            with self.reporter.carried(self.lost | self._left_out) if carries else nullcontext() as reports:
                stepped = self._store.step(
                    launch.claim,
                    steps,
                    lasts_ms=int((max(sent, launch.end.farthest()) - sent + launch.end.grace) * 1000),
                    now=launch.clock,
                    wait=wait,
                    promoting=promoting,
                    reports=reports,
                    keep=self.held,
                )
        except PollConsumerError as error:
            return self._send_without(error, steps, promoting)
        self._take(stepped)
        if not wait:
            self._settled(steps)
        if promoting:
            self._look_after(promoting, stepped.promoted, sent)
        return stepped

    def _take(self, stepped: Stepped) -> None:
        """Keep the messages that a step has reserved, and what it reports."""
        self.reserved += self.settling.named(stepped.reserved)
        if stepped.successor:
            self.hear_call()
        self.held_back = self.held_back or stepped.held_back
        self.more_in = min(self.more_in, stepped.more_in)
        for queue in stepped.newer:
            self._emit(NewerMessagesFound(queue))
        for dead_letter in stepped.dead_letters:
            self.settling.add_dead_letter(dead_letter)
        if stepped.stale:
            self._report_stale(stepped.stale)

    def _settled(self, steps: list[QueueStep]) -> None:
        for step in steps:
            self._untrimmed += step.completed
            if (step.group_effects or step.reports_ends) and step.has_outgoing():
                with self._leaving_out():
                    self.added += send_on(self._launch, step.queue)
        if self._untrimmed >= TRIM_EVERY:
            self._untrimmed = 0
            self._to_trim.update(step.queue for step in steps)

    def _report_stale(self, stale: list[bytes]) -> None:
        self.settling.watched = [each for each in self.settling.watched if each[0] not in stale]  # no hook of theirs
        self._emit(ReservationsLost(tuple(map(id_text, stale))))

    def _look_after(self, queues: Sequence[str], promoted: Sequence[Promoted], sent: float) -> None:
        """Act on ``promoted``, one answer for each of ``queues``. ``sent``: when the launch asked, on its clock."""
        self._promoted, self._due_at, self.to_repair = self._launch.clock(), inf, []
        for queue, each in zip(queues, promoted, strict=True):
            # Counted from the sending of the promotion, since the next one will take as long to reach the server.
            self._due_at = min(self._due_at, sent + each.next_due)
            if each.to_repair:
                self.to_repair.append(queue)
            if each.recurring:
                with self._leaving_out():
                    self.added += tick(self._launch, queue)
        if self.to_repair and not self.reserved and self._promoted - self._repaired >= EVERY:
            self.repair()

    @contextmanager
    def _leaving_out(self) -> Iterator[None]:
        try:
            yield
        except PollConsumerError as error:
            self._leave_out(error)

    def _leave_out(self, error: PollConsumerError) -> None:
        """Go on without the queues that caused ``error``: with a lost node, until it is back; with corrupt keys, for
        the rest of the launch, so that the next launch recovers their reservations. Raises ``error`` if it has another
        reason, or if no queue would be left."""
        if isinstance(error, NodeLost):
            self._skip_lost()
            return
        queue = self._store.keys.queue_of(error.key)
        if queue is None or isinstance(error, OF_ANY_QUEUE) or {queue}.issuperset(self._turns.queues):
            raise error
        if queue in self._left_out:
            return
        self._left_out.add(queue)
        self._turns.queues = tuple(each for each in self._turns.queues if each != queue)
        with self.lock:
            for waiting in (self.reserved, self.gathered, self.settling.held_over):
                kept = [each for each in waiting if each.queue != queue]
                waiting.clear()
                waiting.extend(kept)
        self._emit(QueueLeftOut(queue, str(error)))

    def _send_without(self, error: PollConsumerError, steps: Sequence[QueueStep], promoting: Sequence[str]) -> Stepped:
        """Send the ``steps`` that failed with ``error`` again, without the queues that caused it."""
        self._leave_out(error)
        steps, claim = self._served(steps), self._launch.claim
        try:
            self._store.release_unanswered(claim, steps, self.held)  # GUARD what was reserved beside a refusal
        except NodeLost as lost:
            return self._send_without(lost, steps, promoting)
        return self._send(steps, promoting=promoting)

    def _served(self, steps: Sequence[QueueStep]) -> list[QueueStep]:
        """The ``steps`` of queues that can be served. Settlements for lost queues are kept for later."""
        for step in steps:
            if step.queue in self.lost:
                self.settling.keep(step)
        served = self.queues()
        return [step for step in steps if step.queue in served]

    def _skip_lost(self) -> None:
        """Skip the queues of lost nodes; but skip none if all are lost, so that the next call waits for the nodes."""
        lost = self._store.lost(self._turns.queues) | self.lost
        if not lost.issuperset(self._turns.queues):
            self.lost |= lost
            self._look_at = self._launch.clock() + SKIPPED_FOR

    def _look(self) -> None:
        """Serve the queues whose nodes, or replicas in their places, are back. Asks at most once in `SKIPPED_FOR`."""
        if self._launch.clock() < self._look_at:
            return
        for queue in sorted(self.lost - self._store.lost(self.lost)):
            with self._leaving_out():
                self._go_on_with(queue)
        self._look_at = self._launch.clock() + SKIPPED_FOR

    def _go_on_with(self, queue: str) -> None:
        """Serve ``queue`` again. Announce the launch there, since a replica may not have its announcement. Release what
        a step without an answer may have reserved."""
        announce(self._launch, queue, self.settling.add_dead_letter)
        self._store.unreserve(self._launch.claim, queue, self.held(queue))
        self.lost.discard(queue)
        with self.lock:
            self.reserved += [each for each in self._unbegun if each.queue == queue]
            self._unbegun = [each for each in self._unbegun if each.queue != queue]

    def held(self, queue: str) -> set[bytes]:
        """Ids of the queue's messages that this launch has reserved, and has not settled yet."""
        with self.lock:
            unstarted = *self.gathered, *self.reserved, *self.settling.held_over, *self._unbegun
            held = {reservation.id for reservation in unstarted if reservation.queue == queue}
            return held.union(self._flight.ids(queue), self.settling.ids(queue))


class ReservedReturner:
    def __init__(
        self,
        launch: Launch,
        exchange: Exchange,
        handlers: Mapping[str, Handler],
        overdue: Callable[[], Sequence[Reservation]] = tuple,
    ) -> None:
        """``overdue``: returns the gathered messages whose bulk calls should have begun."""
        self._launch, self._exchange, self._overdue = launch, exchange, overdue
        self._once = {name for name, handler in handlers.items() if handler.at_most_once}
        self._ended = threading.Event()
        self._seen: Seen | None = None
        self._steps: dict[str, QueueStep] = {}
        """For each queue, the releases to send."""
        self._store: RedisStore | None = None

    def __enter__(self) -> None:
        with suppress(RuntimeError):  # no thread can be started: messages wait, as with one instance
            start_thread("returner", self._serve)

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _serve(self) -> None:
        while not self._ended.wait(LOOK_EVERY):
            self.look()

    def look(self) -> None:
        """Return the reserved messages to their queues if no handler has ended since the last look: the same messages
        are in flight, and the same one is next."""
        exchange = self._exchange
        with exchange.lock:
            in_flight, before = self._launch.progress.flight.in_flight(), self._seen
            overdue = self._overdue() if in_flight else ()
            behind = [*overdue[:1], *[*exchange.reserved][:1]]
            self._seen = (in_flight, behind[0]) if in_flight and behind else None
            if self._seen is not None and self._seen == before:
                # The last one first, since each goes to the head of its queue. A message that is handled at most once
                # may be recorded as begun at this moment. So it stays, and so do those before it.
                while exchange.reserved and exchange.reserved[-1].handler not in self._once:
                    self._release(exchange.reserved.pop())
                for each in reversed(overdue):
                    exchange.gathered.remove(each)  # one by one: the launch's thread may count the others in between
                    self._release(each)
                exchange.is_stuck = True
        if not self._steps:
            return
        if self._store is None:
            self._store = RedisStore(self._launch.bare_wire(), self._launch.store.keys.namespace)
        try:
            # A row that has changed meanwhile stays as it is.
            if self._store.release(self._launch.claim, [*self._steps.values()]):
                exchange.hear_call()
            self._steps.clear()
        except PollConsumerError:  # the store is away: the next look tries again
            self._store.wire.close()

    def _release(self, reservation: Reservation) -> None:
        step = self._steps.setdefault(reservation.queue, QueueStep(reservation.queue))
        step.settlements.append(Settlement.released(reservation))
        self._exchange.returned += 1


class Wake:
    """Waits for a marker, a key that is set when a queue gets messages. It times the wait itself, since a server may
    end it 0.1 s late."""

    def __init__(self, wire: Wire, markers: Callable[[], Sequence[str]], clock: Callable[[], float]) -> None:
        self._wire, self._markers, self._clock = wire, markers, clock
        self.pending = False

    def wait(self, seconds: float, executor: Executor | None = None) -> bool:
        """Wait at most ``seconds``. Returns True if a marker was set or the connection was lost; False after the time
        or, with ``executor``, when a handler has ended. Without a descriptor of the connection, the wait is shorter."""
        until = self._clock() + seconds
        try:
            if not self.pending:
                self._wire.send([("BLPOP", *self._markers(), BLOCK)])
                self.pending = True
            left = max(0.0, until - self._clock())  # connecting may have taken time
            if executor is not None:
                executor.wait(min(left, self._wire.look_every), self._wire.fileno())
                left = 0.0
            if not self._wire.readable(left):
                return False
            self.pending = False
            return self._wire.receive([()])[0] is not None
        except Unanswered:
            self.close()
            if executor is None:
                self._wire.patience().pause(min(seconds, 0.2))
            return True

    def close(self) -> None:
        self._wire.close()
        self.pending = False
