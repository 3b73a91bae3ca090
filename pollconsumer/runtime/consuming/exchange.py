"""A launch's exchange with the store: settles outcomes and reserves the next messages, in one round trip."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from math import inf
from threading import Lock

from pollconsumer.core.errors import NodeLost, StoreUnreachable
from pollconsumer.core.events import ConflictDropped, NewerMessagesFound, ReservationsLost
from pollconsumer.core.queue_order import Turns
from pollconsumer.runtime.consuming.away import Away
from pollconsumer.runtime.consuming.reporting import Reporting
from pollconsumer.runtime.consuming.settling import Settling
from pollconsumer.runtime.launch.held import Launch
from pollconsumer.runtime.upkeep import EVERY, announce, repair, tick
from pollconsumer.store import outbox
from pollconsumer.store.id_text import id_text
from pollconsumer.store.limits import Limits
from pollconsumer.store.reservations import DeadLetter, Reservation
from pollconsumer.store.server import unreachable
from pollconsumer.store.steps import Promoted, Share, Stepped

TRIM_EVERY = 500
PROMOTE_EVERY = 0.01
"""Seconds for which an earlier due time, scheduled while the launch is busy, may stay unknown to it."""


class Exchange:
    """``batch`` returns the number of messages to reserve."""

    def __init__(
        self,
        launch: Launch,
        settling: Settling,
        turns: Turns,
        limits: Mapping[str, Limits],
        batch: Callable[[], int],
        reporting: Reporting,
        away: Away,
    ) -> None:
        self._reporting, self.away = reporting, away
        self._launch, self._settling, self._turns, self._batch = launch, settling, turns, batch
        self._store, self._flight, self._emit = launch.store, launch.progress.flight, launch.emit
        self._limits = {queue: limits[queue].packed() for queue in limits}
        self.reserved: deque[Reservation] = deque()
        """In their order, and not started."""
        self.passing = Lock()
        """Held by a slot while it takes one of these: it is then among those in flight."""
        self._put_off: list[Reservation] = []
        self._untrimmed = 0
        self._newer: set[str] = set()
        self.successor = False
        """Whether the next launch waits for the lease."""
        self.more_in: float | None = None
        """Seconds from the last claim until limits allow more; None if unknown."""
        self.held_back = False
        """Whether the last claim left ready messages."""
        self.brought = 0
        """Messages that repairs, outboxes and recurrences have made ready."""
        self._looked, self._due_at = -inf, inf
        self._repaired = launch.clock()

    def next(self) -> Reservation | None:
        """The next reserved message."""
        return self.reserved.popleft() if self.reserved else None

    def __bool__(self) -> bool:
        """Whether any was."""
        return bool(self.reserved)

    def due_in(self) -> float:
        """Seconds until a message or a recurrence of our queues is due; infinity if none is known."""
        return max(0.0, self._due_at - self._launch.clock())

    def promote_next(self) -> None:
        """Promote with the next step, even if nothing is known to be due."""
        self._looked = -inf

    def reserve(self) -> bool:
        """Promote what is due, and settle outcomes; reserve as many messages as are expected to fit, from the first
        queue that has any."""
        self._look()
        shares, self.more_in, self.held_back = self._settling.take(), None, False
        for queue in self._turns.order():
            if queue in self.away.queues:
                continue
            share = shares.pop(queue, None) or Share(queue)
            self._claim(share)
            stepped = self._send([share, *shares.values()], promoting=self._to_promote())
            self._flight.settled()
            shares = {}
            if stepped.reserved:
                self._turns.served(queue, len(stepped.reserved))
                return True
        return False

    def reserve_when_woken(self, wait: float) -> None:
        """As soon as there is a message in any queue, at most ``wait`` seconds from now.

        Promotes afterwards, if there was none: a message that wakes an idle launch must not wait for that.
        """
        self._look()
        self.settle()  # outcomes must not wait
        self.more_in, self.held_back = None, False
        shares = [Share(queue) for queue in self._turns.queues if queue not in self.away.queues]
        for share in shares:
            self._claim(share)
        stepped = self._send(shares, wait)
        for reservation in stepped.reserved:
            self._turns.served(reservation.queue, 1)
        if not stepped.reserved:
            self._send([], promoting=self._turns.queues)

    def settle(self) -> None:
        """Settle outcomes without reserving."""
        if shares := self._settling.take():
            self._send([*shares.values()])
            self._flight.settled()

    def begin(self, reservation: Reservation) -> bool:
        """Record, before it is handled, that it is handled at most once; settle outcomes. False if the reservation is
        stale, or waits for a lost node."""
        shares = self._settling.take()
        share = shares.pop(reservation.queue, None) or Share(reservation.queue)
        # Where limits hold, a completion makes room, and wakes another launch: only a step looks at that.
        if shares or not share.is_bare() or reservation.queue in self._limits:
            self._send([share, *shares.values()])
            share = Share(reservation.queue)
        while reservation.queue not in self.away.queues:
            try:
                stale = self._store.begin(self._launch.holder, reservation, share.runs)
                break
            except NodeLost:
                self._leave()
        else:
            self.away.keep([share])
            self.away.reserved.append(reservation)
            return False
        self._flight.settled()
        self._settled([share], stale)
        return reservation.id not in stale

    def put_off(self, reservation: Reservation) -> None:
        """Keep it reserved for the next launch: released now, it would return to this one."""
        self._put_off.append(reservation)

    def repair(self, queues: Iterable[str]) -> None:
        launch = self._launch
        self._repaired = launch.clock()
        live = launch.leases.live_fences()
        for queue in queues:
            if queue not in self.away.queues:
                with self._leaving():
                    self.brought += repair(launch, queue, live, self._add_dead_letter)

    def repair_now(self) -> None:
        self.repair(self._turns.queues)

    def clear(self) -> None:
        """Release reservations that were not started; settle these, and outcomes."""
        self._release_reserved()
        self.settle()

    def give_back(self) -> None:
        """Release reservations that were not started, then those put off; settle all. StoreUnreachable if a queue's
        node is lost to the end."""
        self._release_reserved()
        while self._put_off:
            self._settling.put_back(self._put_off.pop())
        self.settle()
        if self.away:
            self._await_lost()
        for queue in self._turns.queues:
            self._trim(queue)
        if self.away:
            raise unreachable(self.away.queues)

    def _release_reserved(self) -> None:
        while self.reserved:
            self._settling.release(self.reserved.pop())  # in reverse order, since each goes to the head

    def _claim(self, share: Share) -> None:
        share.claim = self._batch()

    def _to_promote(self) -> Sequence[str]:
        now = self._launch.clock()
        return self._turns.queues if now >= min(self._due_at, self._looked + PROMOTE_EVERY) else ()

    def _send(self, shares: list[Share], wait: float = 0.0, promoting: Sequence[str] = ()) -> Stepped:
        launch = self._launch
        if self.away:
            shares, promoting = self._without_lost(shares), [each for each in promoting if each not in self.away.queues]
            if not shares and not promoting:
                return Stepped([], [], successor=False)
        for share in shares:
            share.limits = self._limits.get(share.queue, "")  # without a claim, too: what is settled makes room
        sent = launch.clock()
        lasts_ms = int((launch.window.left(sent) + launch.plan.grace) * 1000)
        # Handlers go on while a step waits: their reports would wait with it, and newer ones be stored before them.
        try:
            with nullcontext() if wait else self._reporting.carried() as reports:
                if reports and self.away:  # the next one replaces it
                    reports = {queue: each for queue, each in reports.items() if queue not in self.away.queues}
                stepped = self._store.step(
                    launch.holder,
                    shares,
                    lasts_ms=lasts_ms,
                    now=launch.clock,
                    wait=wait,
                    promoting=promoting,
                    reports=reports,
                    keep=self.held,
                )
        except NodeLost:
            self._leave()
            return self._send_again(shares, promoting)
        if promoting:
            self._looked = launch.clock()
            # From when it was sent, since the next one will take as long to the server.
            self._due_at = min(
                (sent + each.next_due for each in stepped.promoted if each.next_due is not None), default=inf
            )
            self._look_after(dict(zip(promoting, stepped.promoted, strict=True)))
        self.reserved += stepped.reserved
        self.successor = self.successor or stepped.successor
        self.held_back = self.held_back or stepped.held_back
        if stepped.more_in is not None and (self.more_in is None or stepped.more_in < self.more_in):
            self.more_in = stepped.more_in
        for queue in set(stepped.newer) - self._newer:
            self._newer.add(queue)
            self._emit(NewerMessagesFound(queue))
        for dead_letter in stepped.dead_letters:
            self._add_dead_letter(dead_letter)
        self._settled(shares, stepped.stale)
        return stepped

    def _add_dead_letter(self, dead_letter: DeadLetter) -> None:
        message, problem = dead_letter
        self._settling.add_dead_letter(message, problem)

    def _settled(self, shares: list[Share], stale: list[bytes]) -> None:
        if stale:
            self._settling.pass_over(stale)
            self._emit(ReservationsLost(tuple(map(id_text, stale))))
        for share in shares:
            self._untrimmed += share.completed
            if share.has_outgoing():
                with self._leaving():  # a repair sends it later
                    self.brought += outbox.send(self._store, share.queue, self._tell_conflict)
        if self._untrimmed >= TRIM_EVERY:
            self._untrimmed = 0
            for share in shares:
                self._trim(share.queue)

    def _look_after(self, promoted: Mapping[str, Promoted]) -> None:
        for queue, each in promoted.items():
            if each.recurring:
                with self._leaving():
                    self.brought += tick(self._launch, queue)
        to_repair = [queue for queue, each in promoted.items() if each.to_repair]
        if to_repair and self._looked - self._repaired >= EVERY:
            self.repair(to_repair)

    def _tell_conflict(self, message_id: str, queue: str) -> None:
        self._emit(ConflictDropped(message_id, queue))

    def held(self, queue: str) -> set[bytes]:
        """Ids of what is reserved, in hand or not settled."""
        with self.passing:
            reserved = (*self.reserved, *self.away.reserved, *self._put_off)
            held = {reservation.id for reservation in reserved if reservation.queue == queue}
            return held.union(self._flight.ids(queue))

    def _trim(self, queue: str) -> None:
        if queue not in self.away.queues:
            with self._leaving():
                self._store.trim(queue)

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        """Go on without queues whose node is lost."""
        try:
            yield
        except NodeLost:
            self._leave()

    def _leave(self) -> None:
        """Unless all are lost by now: the next call then waits for them, as for a single server."""
        lost = self._store.lost(self._turns.queues) | self.away.queues
        if not lost.issuperset(self._turns.queues):
            self.away.add(lost)
        with self.passing:
            self.away.hold(self.reserved)

    def _without_lost(self, shares: Sequence[Share]) -> list[Share]:
        """``shares``, but for those whose outcomes wait for a lost node."""
        others = self.away.keep(shares)
        self._settling.waiting = self.away.unsettled()
        return others

    def _send_again(self, shares: Sequence[Share], promoting: Sequence[str]) -> Stepped:
        """What was not answered, to the nodes that are left."""
        shares = self._without_lost(shares)
        with self._leaving():
            self._store.give_back(self._launch.holder, shares, self.held)
            return self._send(shares, promoting=promoting)
        return self._send_again(shares, promoting)

    def _look(self) -> None:
        """Go on with queues whose node, or its replica, is there again."""
        if not self.away or not self.away.is_time_to_look():
            return
        began = self._launch.clock()
        lost = self._store.lost(self._turns.queues)
        for queue in sorted(self.away.queues - lost):
            with self._leaving():
                self._go_on_with(queue)
        self.away.looked(began)

    def _go_on_with(self, queue: str) -> None:
        """Announce it again, since a replica may not know of the announcement; settle what has waited."""
        announce(self._launch, queue, self._add_dead_letter)
        kept = self.away.kept_of(queue)
        settling = [each for share in kept for each in share.ids()]
        self._store.unreserve(self._launch.holder, queue, [*self.held(queue), *settling])
        with self.passing:
            self.away.come_back(queue, self.reserved)
        self._settling.waiting = self.away.unsettled()
        if kept:
            self._send(kept)

    def _await_lost(self) -> None:
        """At the end: settle what waits for lost nodes, as long as patience lasts."""
        self._store.part(())
        lost = self._store.lost(self._turns.queues)
        try:
            for queue in sorted(self.away.queues):
                if queue not in lost or (self.away.has_outcomes(queue) and not self.successor):
                    self._go_on_with(queue)
        except StoreUnreachable:
            return
        self.clear()
