"""The quick path: reserved messages without anything unusual, begun without a turn of the launch's loop for each.

With one slot several are handled in one pass. With several, a slot whose message has ended takes the next one by
itself, while the launch's thread reserves and settles. `Lot.is_plain` says what is usual, `Launch.may_begin` is asked
before each message, and forks and descriptors are looked at after it, as where each is handled alone. It is quicker
since it computes once what brief handlers cannot change: `durations.brief` tells why that is so of the margin. In a
pass, messages that are handled at most once are settled in the round trip that begins the next. Anything unusual is
left to the general path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import copy_context
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from pollconsumer.core.durations import Durations
from pollconsumer.core.message import Malformed, decode_payload
from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.handling.executors.executor import NONE, Attempt, Executor, Handled, Inline
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.outcome import DONE
from pollconsumer.runtime.handling.own_context import own_context
from pollconsumer.runtime.launch.held import Launch
from pollconsumer.runtime.launch.shared_memory import entries
from pollconsumer.runtime.launch.shared_memory.series import BEGUN, ENDED, RECORDED
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.runtime.session.settlements import Settlements
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Lot, Reservation
from pollconsumer.store.records.steps import Done

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable, Sequence
    from contextvars import Context as Variables


TOGETHER_FOR = 0.001
"""Messages that are handled at most once are recorded as begun together if they are expected to last so long together,
in seconds: about ten round trips, so that the round trip is a small part."""
MOST_TOGETHER = 8
"""No more of these: as many are dead letters where the launch and its heartbeat die together."""


class QuickPath:
    """``brief`` and ``horizon`` in seconds: how long a message may take without a change of the margin, and its outcome
    stay unsettled."""

    def __init__(
        self,
        launch: Launch,
        handlers: Mapping[str, Handler],
        executor: Executor,
        durations: Durations,
        settling: Settlements,
        exchange: Exchange,
        context_of: Callable[[Reservation], Context],
        *,
        brief: float,
        horizon: float,
    ) -> None:
        self._launch, self._durations, self._settling, self._inline = launch, durations, settling, executor.inline
        self._flight, self._stops = launch.progress.flight, launch.progress.stops
        self._exchange, self._context_of, self._wake = exchange, context_of, executor.wake
        self._brief, self._horizon = brief, horizon
        self._handlers = {name: handler for name, handler in handlers.items() if not handler.isolated}
        self._ways: dict[str, _Way] = {}
        self._margin: float | None = None
        """The margin of brief messages, in seconds, while slots may take messages; None otherwise."""
        self._few = self._unseen = self._seen = 0
        """How many have ended in slots that matter and that no margin counts in; of these, how many the launch
        knows."""
        executor.relay(self.take)

    @property
    def is_open(self) -> bool:
        """Whether slots take messages by themselves."""
        return self._margin is not None

    def open(self, margin: float, few: int) -> None:
        """Let slots take messages. ``margin`` counts in all that the launch has seen. It is woken once so ``few`` are
        left."""
        with self._exchange.passing:
            self._unseen -= self._seen
            self._margin, self._few, self._seen = margin, few, 0

    def close(self) -> None:
        """No slot takes a message after this call."""
        with self._exchange.passing:
            self._margin = None

    def take(self, ended: Handled) -> Attempt | None:
        """The next message, for the slot in which one has ended; None to leave it to the launch."""
        with self._exchange.passing:
            if self._matters(ended):
                self._unseen += 1
            following = self._next() if self._unseen == 0 else None
            few_are_left = following is not None and len(self._exchange.reserved) == self._few
        if few_are_left:
            self._wake()
        return following

    def seen(self, ended: Handled) -> None:
        """The next `open` counts it in."""
        self._seen += self._matters(ended)

    def _matters(self, ended: Handled) -> bool:
        """Whether the launch must know of it before another message is taken: it may change the margin, or end the
        launch."""
        return ended.ended - ended.started > self._brief or ended.leaking

    def _next(self) -> Attempt | None:
        launch, margin, reserved = self._launch, self._margin, self._exchange.reserved
        if margin is None or not reserved or not self._flight.free() or self._stops.any():
            return None
        reservation = reserved[0]
        handler, lot = self._handlers.get(reservation.handler), reservation.lot
        if handler is None or handler.takes_context or handler.at_most_once or not lot.is_plain:
            return None
        try:
            payload = decode_payload(reservation.payload)
        except Malformed:
            return None
        if not launch.may_begin(launch.clock() + margin):
            return None
        del reserved[0]
        self._flight.enter(reservation, last=rows.attempts(lot.row) >= handler.max_attempts)
        return Attempt(reservation, handler, payload)

    def handle(self, reserved: deque[Reservation], most: int, margin: float) -> int:
        """Handle the first of ``reserved`` in a pass, at most so many, while ``margin`` seconds are left. Returns how
        many."""
        inline = self._inline
        if inline is None or self._stops.any():
            return 0
        base = copy_context()
        own = base.copy()
        try:
            return own.run(self._handle, inline, reserved, most, margin, (base, own))
        finally:
            inline.rest()

    def _handle(
        self,
        inline: Inline,
        reserved: deque[Reservation],
        most: int,
        margin: float,
        variables: tuple[Variables, Variables],
    ) -> int:
        """``variables``: the launch's, and their copy in which this is called."""
        base, own = variables
        series, brief, horizon = self._flight.series, min(self._brief, self._horizon), self._horizon
        clock, may_begin = self._launch.clock, self._launch.may_begin
        settling, since = self._settling, self._settling.since
        ways: dict[Lot, _Way] = {}
        done: list[Done] = []
        lot, queue, handled = None, "", 0
        once = False  # whether the last one is handled at most once and not settled
        now = clock()
        with self._exchange.passing:
            line, counts = self._line_up(reserved, min(most, series.room()), inline, ways), series.counts
        begun = counts[BEGUN]
        for reservation in line:
            if not may_begin(now + margin):
                break
            if reservation.lot is not lot:
                lot = reservation.lot
                way = ways[lot]
                if once and not way.at_most_once:
                    break
                if done and lot.queue != queue:
                    settling.complete(done)
                    done = []
                queue = lot.queue
            try:
                payload = decode_payload(reservation.payload)
            except Malformed:
                break
            context = None
            if way.takes_context:
                if reservation.may_occur:
                    if done:
                        settling.complete(done)
                        done = []
                    if settling.precedes(reservation):
                        break
                context = self._context_of(reservation)
            try:
                del reserved[0]
            except IndexError:  # this process was suspended as it began the last one: these were returned
                break
            if way.at_most_once and begun >= counts[RECORDED]:
                before, done, once = done, [], False
                if not self._begin(line[handled : handled + way.together], way, ways, before):
                    break
            counts[BEGUN] = begun = begun + 1
            started = clock()
            # While no variable is set, by the launch or by a message of this pass, the copy is as good as a new one,
            # which would cost a no-op a twentieth of its time.
            outcome = own_context(base).run(way.handle, payload, context) if own else way.handle(payload, context)
            error = None if outcome is DONE else outcome.error
            damages = inline.checked(error)
            ended = now = clock()
            handled += 1
            if error is not None or (damages is not NONE and damages != NONE):
                attempt = Attempt(reservation, way.handler, payload, context)
                inline.add(Handled(attempt, started, ended, outcome, *damages))
                break
            counts[ENDED] = begun
            way.lasted.append(ended - started)
            if context is not None:
                context.end()
            if outcome is DONE and (context is None or not context.enqueued):
                done.append((reservation, started, ended, None))
            else:
                extra = settling.extra_of(reservation, way.result_ms, context, outcome.result, ended)
                done.append((reservation, started, ended, extra))
                now = clock()
            once = way.at_most_once
            if since is None:
                since = ended
            if now - started > brief or now - since > horizon:
                break
        for way in dict.fromkeys(ways.values()):  # in their order, on which the sum of durations depends
            if way.lasted:
                self._durations.add_all(way.handler.name, way.lasted)
                way.lasted = []
        if done:
            settling.complete(done)
        settling.urgent = settling.urgent or once
        return handled

    def _begin(
        self, following: Sequence[Reservation], way: _Way, ways: Mapping[Lot, _Way], done: Sequence[Done]
    ) -> bool:
        """Record as begun the first of them, and those after it of its queue and handler; settle what is ``done``.
        Whether the first one is begun."""
        queue, counts = following[0].queue, self._flight.series.counts
        alike = [*takewhile(lambda each: ways[each.lot] is way and each.lot.queue == queue, following)]
        # Before the store has it: the launch may die in between.
        counts[RECORDED] = counts[BEGUN] + len(alike)
        counts[RECORDED] = counts[BEGUN] + self._exchange.begin(alike, done)
        return counts[RECORDED] > counts[BEGUN]

    def _line_up(
        self, reserved: Iterable[Reservation], most: int, inline: Inline, ways: dict[Lot, _Way]
    ) -> list[Reservation]:
        """Write down the first ones that have nothing unusual, at most so many, and add the ways of their lots."""
        texts: list[bytes] = []
        by_handler: dict[str, _Way | None] = {}
        flight, lot, length, last, head = self._flight, None, -1, False, b""
        for reservation in islice(reserved, most):
            message_id = reservation.id
            if reservation.lot is not lot:
                lot, length = reservation.lot, -1
                if lot.handler not in by_handler:
                    by_handler[lot.handler] = self._way_of(lot.handler, inline)
                way = by_handler[lot.handler]
                if way is None or not lot.is_plain:
                    break
                ways[lot] = way
                last = rows.attempts(lot.row) >= way.handler.max_attempts
            if len(message_id) != length:
                length = len(message_id)
                if length > entries.LONGEST:
                    break
                head = flight.head(lot.handler, lot.queue, length, last=last)
            texts.append(head + message_id)
        inline.stay([way.handler for way in ways.values()])
        line = [*islice(reserved, len(texts))]
        flight.series.lay(line, texts)
        return line

    def _way_of(self, name: str, inline: Inline) -> _Way | None:
        """That of the handler's messages, if it is not isolated and expected to be brief."""
        expected, handler = self._durations.expected(name), self._handlers.get(name)
        if handler is None or expected is None or expected > self._horizon:
            return None
        way = self._ways.get(name)
        if way is None:
            way = self._ways[name] = _Way(handler, inline)
        way.together = min(MOST_TOGETHER, int(TOGETHER_FOR / expected) or 1) if expected > 0 else MOST_TOGETHER
        return way


class _Way:
    """How a handler's messages are handled, looked up once, and how long those of a pass ``lasted``, in seconds.
    ``together``: how many are recorded as begun at once, if they are handled at most once."""

    __slots__ = ("at_most_once", "handle", "handler", "lasted", "result_ms", "takes_context", "together")

    def __init__(self, handler: Handler, inline: Inline) -> None:
        self.handler, self.takes_context, self.at_most_once = handler, handler.takes_context, handler.at_most_once
        self.handle = inline.turning(handler) if handler.asynchronous else handler.handle_here
        self.result_ms = handler.result_ms
        self.lasted: list[float] = []
        self.together = 1
