"""The quick path: reserved messages without anything unusual, handled in one pass.

As where each is handled alone, it looks at lease, signal and margin before each message, at forks and descriptors
after it. It is quicker since it computes once in a pass what brief handlers cannot change: `durations.brief` tells why
that is so of the margin. And messages that are handled at most once are settled in the round trip that begins the next.
Anything unusual ends the pass, and the general path goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import copy_context
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from pollconsumer.core.message import Malformed, decode_payload
from pollconsumer.runtime.handling.executors.executor import NONE, Attempt, Handled
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.outcome import DONE
from pollconsumer.runtime.handling.own_context import own_context
from pollconsumer.runtime.launch.shared_memory import entries
from pollconsumer.runtime.launch.shared_memory.series import BEGUN, ENDED, RECORDED
from pollconsumer.store import rows

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable, Sequence
    from contextvars import Context as Variables

    from pollconsumer.core.durations import Durations
    from pollconsumer.runtime.consuming.exchange import Exchange
    from pollconsumer.runtime.consuming.settlements import Settlements
    from pollconsumer.runtime.handling.context import Context
    from pollconsumer.runtime.handling.executors.executor import Inline
    from pollconsumer.runtime.launch.held import Launch
    from pollconsumer.store.reservations import Lot, Reservation
    from pollconsumer.store.steps import Done

TOGETHER_FOR = 0.001
"""Messages that are handled at most once are recorded as begun together if they are expected to last so long together,
in seconds: about ten round trips, so that the round trip is a small part."""
MOST_TOGETHER = 8
"""No more of these: as many are dead letters where the launch and its heartbeat die together."""


class PlainPath:
    """``brief`` and ``horizon`` in seconds: how long a message may take, and its outcome stay unsettled, without an end
    of the pass."""

    def __init__(
        self,
        launch: Launch,
        handlers: Mapping[str, Handler],
        inline: Inline | None,
        durations: Durations,
        settling: Settlements,
        exchange: Exchange,
        context_of: Callable[[Reservation], Context],
        *,
        brief: float,
        horizon: float,
    ) -> None:
        self._launch, self._durations, self._settling, self._inline = launch, durations, settling, inline
        self._exchange, self._context_of = exchange, context_of
        self._brief, self._horizon = min(brief, horizon), horizon
        self._handlers = {name: handler for name, handler in handlers.items() if not handler.isolated}
        self._ways: dict[str, _Way] = {}

    def handle(self, reserved: deque[Reservation], most: int, margin: float) -> int:
        """Handle the first of ``reserved``, at most so many, while ``margin`` seconds are left. Returns how many."""
        inline = self._inline
        if inline is None or self._launch.progress.stops.any():
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
        launch, series, horizon = self._launch, self._launch.progress.flight.series, self._horizon
        clock, is_trusted, interrupted = launch.clock, launch.lease_is_trusted, launch.interrupted
        settling, stop_before, since = self._settling, launch.window.stop_before, self._settling.since
        ways: dict[Lot, _Way] = {}
        done: list[Done] = []
        lot, queue, handled = None, "", 0
        once = False  # whether the last one is handled at most once and not settled
        now = clock()
        with self._exchange.passing:
            line, counts = self._line_up(reserved, min(most, series.room()), inline, ways), series.counts
        begun = counts[BEGUN]
        for reservation in line:
            if not (is_trusted() and not interrupted() and now + margin < stop_before):
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
            if now - started > self._brief or now - since > horizon:
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
        queue, counts = following[0].queue, self._launch.progress.flight.series.counts
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
        flight, lot, length, last, head = self._launch.progress.flight, None, -1, False, b""
        for reservation in islice(reserved, most):
            message_id = reservation.id
            if reservation.lot is not lot:
                lot, length = reservation.lot, -1
                if lot.handler not in by_handler:
                    by_handler[lot.handler] = self._way_of(lot.handler, inline)
                way = by_handler[lot.handler]
                if way is None or lot.options or lot.expires or lot.row[rows.CRASHES]:
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
