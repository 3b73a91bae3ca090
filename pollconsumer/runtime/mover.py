"""The mover: it promotes due messages to their queues, enqueues due occurrences, and recovers the messages of dead
launches that no later launch has recovered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from pollconsumer.core.errors import OF_ANY_QUEUE, NodeLost, PollConsumerError
from pollconsumer.core.events import QueueLeftOut
from pollconsumer.core.window import StopReason
from pollconsumer.runtime.launch.board import Counts
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.launch_maintenance import EVERY, announce, repair, tick
from pollconsumer.runtime.session.exchange import SKIPPED_FOR, Wake
from pollconsumer.runtime.session.settlements import death_of
from pollconsumer.store.records.reservations import DeadLetter
from pollconsumer.store.records.steps import Retention
from pollconsumer.store.server import unreachable


class MoverOptions(NamedTuple):
    """Options of a mover; durations in seconds."""

    idle_time: float
    page_size: int
    keeping: Mapping[str, Retention] = MappingProxyType({})
    """For each queue, how long ended messages are kept. A queue that is missing here has the default."""


class Mover:
    def __init__(self, launch: Launch, options: MoverOptions) -> None:
        self.options, self.window, self.clock = options, launch.window, launch.clock
        self._launch, self._wake = launch, Wake(launch.bare_wire(), self._markers, launch.clock)
        self._store, self._claim, self._emit = launch.store, launch.claim, launch.emit
        self._announced: set[str] = set()
        self._left_out: dict[str, PollConsumerError] = {}
        self._lost: set[str] = set()
        """Queues that are skipped because their cluster node is lost. It is checked again after a while."""
        self._maintained = self._looked = self._asked = -inf
        self._queues: list[str] = []
        self._moved = 0
        self._to_repair: list[str] = []
        """Queues in which the last `promote` found something to repair."""

    def run(self) -> StopReason:
        """Promote until the window closes. Raises LeaseLost or StoreUnreachable; if no queue is usable, the error of
        the first queue; if cluster nodes are lost, StoreUnreachable at the window's end."""
        while self.window.has_time(self.clock(), self._launch.min_margin):
            self._launch.check_lease()
            if self._launch.interrupted():
                return StopReason.INTERRUPTED
            if self._launch.plan.handoff.on_call and self._launch.leases.take_call(self._claim):
                return StopReason.HANDED_OVER
            moved, next_due = self.promote()
            self.maintain()
            if not moved:
                self.idle(next_due)
        if self._lost:
            raise unreachable(self._lost)
        return StopReason.NO_TIME_TO_IDLE

    def promote(self) -> tuple[int, float]:
        """Promote one page of messages in every queue, and enqueue due occurrences. Returns the number of all these,
        and the seconds until the next one is due."""
        moved, soonest = 0, inf
        self._to_repair = []
        for queue in self.queues():
            with self._leaving_out(queue):
                promoted = self._store.promote(self._claim, queue, self.options.page_size)
                moved += promoted.moved
                soonest = min(soonest, promoted.next_due)
                if promoted.to_repair:
                    self._to_repair.append(queue)
                if promoted.recurring:
                    moved += tick(self._launch, queue)
        self._moved += moved
        self._launch.progress.count(Counts(handled=self._moved))
        return moved, soonest

    def maintain(self) -> None:
        """Once a second: repair queues, expire messages of queues that no launch serves, forget ended messages."""
        if self.clock() - self._maintained < EVERY:
            return
        self._maintained = self.clock()
        live = self._launch.leases.live_fences() if self._to_repair else []
        for queue in self.queues():
            with self._leaving_out(queue):
                if queue in self._to_repair:
                    repair(self._launch, queue, live, self._emit_death)
                self._store.maintenance.expire(queue)  # the next promotion finds what this has left in the outbox
                self._store.maintenance.trim(queue, self.options.keeping.get(queue, Retention()))

    def look_afresh(self) -> None:
        """Let the next calls of `queues` and `maintain` do their work, even within a second of the last ones."""
        self._looked = self._maintained = -inf

    def idle(self, next_due: float) -> None:
        """Wait ``next_due`` seconds, but idle_time at most, and within the window. The wait ends early if a message
        with an earlier due time is scheduled."""
        longest = max(0.0, min(self.options.idle_time, self.window.left(self.clock()) - self._launch.min_margin))
        if self._wake.wait(min(longest, next_due)):
            self._looked = -inf

    def _markers(self) -> list[str]:
        keys = self._store.keys
        return [*(keys.queue(queue, "schedule_marker") for queue in self.queues()), keys.control("queues_marker")]

    def _emit_death(self, dead_letter: DeadLetter) -> None:
        self._emit(death_of(dead_letter))

    def queues(self) -> list[str]:
        """The usable queues, as read less than a second ago, or anew if the mover was woken. The mover announces itself
        to a new queue before it promotes messages there, and again to a queue whose node was lost."""
        if self.clock() - self._looked < EVERY:
            return self._queues
        self._looked = self.clock()
        queues = self._store.queues()
        self._store.part(queues)
        if self._lost and self.clock() - self._asked >= SKIPPED_FOR:
            self._lost &= self._store.lost(queues)
            self._asked = self.clock()
        for queue in queues:
            if queue not in self._announced and queue not in self._left_out and queue not in self._lost:
                with self._leaving_out(queue):
                    announce(self._launch, queue, self._emit_death, served=False)
                    self._announced.add(queue)
        usable = [queue for queue in queues if queue not in self._left_out and queue not in self._lost]
        if queues and not usable and not self._lost:
            raise self._left_out[queues[0]]
        self._queues = usable
        return usable

    @contextmanager
    def _leaving_out(self, queue: str) -> Iterator[None]:
        """Within the block, an error makes the mover skip ``queue`` instead: until this launch ends if the queue's keys
        are foreign or corrupt, or as long as its cluster node is lost."""
        try:
            yield
        except NodeLost:
            self._lost |= {queue, *self._store.lost(self._store.queues())}
            self._announced -= self._lost
            self._looked, self._asked = -inf, self.clock()
        except OF_ANY_QUEUE:
            raise
        except PollConsumerError as error:
            # The key may belong to another queue, to which this one sends.
            queue = self._store.keys.queue_of(error.key) or queue  # GUARD who is left out
            self._looked = -inf
            if queue not in self._left_out:
                self._left_out[queue] = error
                self._emit(QueueLeftOut(queue, str(error)))
