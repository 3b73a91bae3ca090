"""Gathers reserved messages of bulk handlers, and calls each handler with several of them.

Gathered messages are reserved, but not begun. They are in `Exchange.gathered`, which releases them with other messages
that were not begun. A call begins once it is full, or its wait for more messages is over. Meanwhile the launch handles
other messages. A message whose process died before is called alone, so that the next death is not charged to others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING

from pollconsumer.core.choices import Loop
from pollconsumer.core.durations import Durations, Histogram, MarginRule, margin_in
from pollconsumer.core.messages.message import decoded_options
from pollconsumer.core.messages.payloads import Malformed
from pollconsumer.core.window import Window
from pollconsumer.runtime.handling.bulk import MESSAGES
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.delivery import Delivery
from pollconsumer.runtime.handling.handler import Bulk, Handler
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.session.attempts import Attempts, BulkAttempt
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.runtime.session.pace import MAX_PAGE_MESSAGES, ConsumerOptions
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    Kind = tuple[str, str]
    """A handler and a queue. Only messages of the same kind share a call."""

MOST_BYTES = 8 * 1024**2
"""Maximum bytes of the payloads in a call. A message with a larger payload is called alone."""


class BulkPace:
    """How long a launch's calls of bulk handlers take. Sizes from 2 to 3 messages are measured together, then 4 to 7, 8
    to 15 and so on."""

    def __init__(self, window: Window, rule: MarginRule, slots: int, every: Durations, most: Mapping[str, int]) -> None:
        """``every``: durations of calls of any size, in this launch and earlier ones. ``most``: by handler, the maximum
        size of a call."""
        self._window, self._rule, self._slots, self._every, self._most = window, rule, slots, every, most
        self._measured: dict[tuple[str, int], Durations] = {}

    def add(self, handler: str, size: int, seconds: float) -> None:
        """Add the duration of a call with ``size`` messages."""
        size_durations = self._measured.setdefault((handler, size.bit_length()), Durations({}))
        size_durations.add(handler, seconds)

    def margin(self, handler: str, size: int) -> float:
        """Seconds that must remain in the window for a call with ``size`` messages to begin."""
        size_durations = self._measured.get((handler, size.bit_length()))
        if size_durations is None:
            expected = self._expected(handler, size.bit_length())
            learned: dict[str, Histogram] = {}
            if expected is not None:
                learned[handler] = Histogram()
                learned[handler].add(expected)
            size_durations = Durations(learned)
        return margin_in(self._window, size_durations, self._rule, self._slots)

    def fitting(self, handler: str, most: int, left: float) -> int:
        """The number of messages, ``most`` at most, with which a call should end within ``left`` seconds. At least 1: a
        call with one message may begin whenever a message may."""
        size = most
        while size > 1 and self.margin(handler, size) >= left:
            size //= 2
        return size

    def _expected(self, handler: str, wanted: int) -> float | None:
        """Expected seconds of a call, if this launch has measured none of this size: in proportion to the next smaller
        size that it has measured, else to the next larger one, else to the longest call of earlier launches, as if that
        was a full one. None if there is none. ``wanted``: the size, as a number of bits."""
        means = {size: each.own_mean or 0.0 for (name, size), each in self._measured.items() if name == handler}
        if not means:
            longest = self._every.longest_of(handler)
            if longest is None:
                return None
            means = {self._most[handler].bit_length(): longest}
        known = max((size for size in means if size < wanted), default=min(means))
        return means[known] * 2.0 ** (wanted - known)


class BulkCaller:
    def __init__(
        self,
        launch: Launch,
        options: ConsumerOptions,
        handlers: Mapping[str, Handler],
        exchange: Exchange,
        attempts: Attempts,
        context_of_call: Callable[[Sequence[Reservation]], tuple[LaunchContext, list[Delivery]]],
    ) -> None:
        self._options, self._launch, self._exchange, self._pace = options, launch, exchange, exchange.pace
        self._attempts, self._context_of_call = attempts, context_of_call
        self._bulks = {name: each.bulk for name, each in handlers.items() if each.bulk is not None}
        most = {name: bulk.most for name, bulk in self._bulks.items()}
        self._sized = BulkPace(launch.window, options.margin, exchange.pace.slots, exchange.pace.durations, most)
        attempts.calls.measure = self._sized.add
        self._due: dict[Kind, float] = {}
        """For each kind with gathered messages, when its next call begins, on the launch's clock."""

    def _room(self) -> int:
        """How many messages a call may begin now: entries of the flight that are free, less one for each slot."""
        return len(self._launch.progress.flight.free) - self._pace.slots

    def is_due(self) -> bool:
        """Whether a call should begin now."""
        return self.due_in() == 0

    def due_in(self) -> float:
        """Seconds until a call should begin. Infinity if no messages are gathered, or no more may be in flight."""
        gathered = {_kind_of(each) for each in self._gathered()}
        self._due = {kind: at for kind, at in self._due.items() if kind in gathered}
        if not self._due or self._room() <= 0:
            return inf
        return max(0.0, min(self._due.values()) - self._launch.clock())

    def overdue(self) -> list[Reservation]:
        """The gathered messages whose calls should have begun. May be called in any thread."""
        now = self._launch.clock()
        due = {kind for kind, at in [*self._due.items()] if at <= now}
        return [each for each in self._gathered() if _kind_of(each) in due]

    def handle(self) -> bool:
        """Begin the call that is due. Else, if the next reserved message is for a bulk handler, gather messages, or
        call the handler with that one alone. If no more may be in flight, wait. Returns False if there was nothing to
        do."""
        if self.is_due():
            kind = min(self._due, key=self._due.__getitem__)
            if self._due[kind] > -inf:
                self._gather(kind)  # more may have come
            self._attempts.settle_before(kind[0])
            self._begin(self._take(kind))
            return True
        with self._exchange.lock:
            first = self._exchange.reserved[0] if self._exchange.reserved else None
        if first is None or first.handler not in self._bulks:
            return False
        if self._joins(first):
            self._gather(_kind_of(first))
            if self._room() <= 0:
                self._attempts.make_room()
            return True
        self._attempts.settle_before(first.handler)
        if (reservation := self._exchange.next()) is not None:
            self._begin([reservation])
        return True

    def _gather(self, kind: Kind) -> None:
        """Gather messages for the next call of ``kind``. If it is not full, reserve more."""
        handler, queue = kind
        bulk, exchange = self._bulks[handler], self._exchange
        if not self._count(kind):
            self._due.pop(kind, None)  # the messages gathered before were released
        wanted = self._most(bulk) - self._count(kind)
        wanted -= self._move(kind, wanted)
        while wanted > 0 and not self._pace.suspects and len(exchange.reserved) < MAX_PAGE_MESSAGES:
            if not exchange.reserve(queue, wanted) or not (moved := self._move(kind, wanted)):
                break
            wanted -= moved
        count, now = self._count(kind), self._launch.clock()
        if count >= self._most(bulk) or not self._may_wait(handler, count, bulk.wait, now):
            self._due[kind] = -inf
        elif kind not in self._due:
            self._due[kind] = now + bulk.wait

    def _move(self, kind: Kind, wanted: int) -> int:
        """Move reserved messages of ``kind``, ``wanted`` at most, to the gathered ones. Returns how many were moved."""

        def joins(each: Reservation, moved: int) -> bool:
            return moved < wanted and _kind_of(each) == kind and self._joins(each)

        with self._exchange.lock:
            moved = self._taken_from(self._exchange.reserved, joins)
            self._exchange.gathered.extend(moved)
        return len(moved)

    def _taken_from(self, held: deque[Reservation], is_wanted: Callable[[Reservation, int], bool]) -> list[Reservation]:
        """Remove messages from ``held``, and return them. ``is_wanted`` gets each, and how many were removed so far."""
        taken: list[Reservation] = []
        everything = [*held]
        held.clear()
        for each in everything:
            (taken if is_wanted(each, len(taken)) else held).append(each)
        return taken

    def _joins(self, reservation: Reservation) -> bool:
        """Whether this message may share a call with others."""
        # GUARD a suspect is called alone; options of its own
        return not reservation.crashes and _shares_call(reservation.common.options)

    def _most(self, bulk: Bulk) -> int:
        limit = self._options.max_messages
        return bulk.most if limit is None else min(bulk.most, limit - self._pace.begun)

    def _count(self, kind: Kind) -> int:
        return sum(_kind_of(each) == kind for each in self._gathered())

    def _gathered(self) -> list[Reservation]:
        """A copy of the gathered messages, since another thread may remove some."""
        return [*self._exchange.gathered]

    def _may_wait(self, handler: str, count: int, wait: float, now: float) -> bool:
        """Whether a call with ``count`` messages may wait ``wait`` seconds for more: if there is time, and more may
        come."""
        exchange, options = self._exchange, self._options
        if options.until_empty or (exchange.held_back and exchange.more_in >= wait):
            return False
        margin = max(self._pace.margin(), self._sized.margin(handler, count))
        if options.margin.loop is Loop.ARTICLE:
            margin = max(margin, options.idle_time)
        return wait > 0 and self._launch.window.has_time(now + wait, margin)

    def _take(self, kind: Kind) -> list[Reservation]:
        """Remove the next call's messages from the gathered ones: as many as fit into the rest of the window."""
        left, length = self._launch.window.left(self._launch.clock()), 0
        most = min(self._most(self._bulks[kind[0]]), self._count(kind), self._room())
        size = self._sized.fitting(kind[0], most, left)

        def fits(each: Reservation, taken: int) -> bool:
            nonlocal length
            if _kind_of(each) != kind:
                return False
            length += len(each.payload)
            # GUARD as many as have time; most bytes of a call
            return taken < size and (length <= MOST_BYTES or not taken)

        with self._exchange.lock:
            messages = self._taken_from(self._exchange.gathered, fits)
        if not self._count(kind):
            del self._due[kind]
        return messages

    def _begin(self, reservations: Sequence[Reservation]) -> None:
        """Begin a call with those of ``reservations`` that may be handled. The others are settled."""
        opened = [self._attempts.attempt(each) for each in reservations]
        attempts = [each for each in opened if each is not None]
        if attempts and attempts[0].handler.at_most_once:  # GUARD recorded before a call at most once
            self._exchange.begin([each.reservation for each in attempts])
            attempts = [each for each in attempts if each.reservation.begun]  # GUARD what is recorded alone
        if not attempts:
            return
        first = attempts[0]
        context, deliveries = self._context_of_call([each.reservation for each in attempts])
        payload = {MESSAGES: [*zip(deliveries, (each.payload for each in attempts), strict=True)]}
        call = BulkAttempt(first.reservation, first.handler, payload, context)
        call.attempts = attempts
        if len(attempts) > 1:
            self._attempts.calls.add(call)
        self._attempts.begin(call, attempts)


def _kind_of(reservation: Reservation) -> Kind:
    return reservation.handler, reservation.queue


@lru_cache
def _shares_call(options: bytes) -> bool:
    """Whether a message with these stored ``options`` may share a call: they are readable, and set no timeout."""
    try:
        own, newer = decoded_options(options)
    except Malformed:
        return False
    return not newer and own.timeout is None
