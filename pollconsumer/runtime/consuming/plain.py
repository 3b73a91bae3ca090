"""The quick path: reserved messages without anything unusual, handled in one pass.

It does what `Consumer.handle` does: looks at lease, signal and margin before each message, at forks and descriptors
after it. It is quicker since it computes once in a pass what brief handlers cannot change: `durations.brief` tells why
that is so of the margin. And a message that is handled at most once is settled in the round trip that begins the next.
Anything unusual ends the pass, and the general path goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pollconsumer.core.message import Malformed, decode_payload
from pollconsumer.runtime.handling.executor import NONE, Attempt, Handled
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.outcome import DONE
from pollconsumer.store import rows

if TYPE_CHECKING:
    from collections import deque

    from pollconsumer.core.durations import Durations
    from pollconsumer.runtime.consuming.exchange import Exchange
    from pollconsumer.runtime.consuming.settling import Settling
    from pollconsumer.runtime.handling.context import Context
    from pollconsumer.runtime.handling.executor import Inline
    from pollconsumer.runtime.launch.held import Launch
    from pollconsumer.store.reservations import Done, Reservation


class PlainPath:
    """``brief`` and ``horizon`` in seconds: how long a message may take, and its outcome stay unsettled, without an end
    of the pass."""

    def __init__(
        self,
        launch: Launch,
        handlers: Mapping[str, Handler],
        inline: Inline | None,
        durations: Durations,
        settling: Settling,
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

    def handle(self, reserved: deque[Reservation], most: int, margin: float) -> int:
        """Handle the first of ``reserved``, at most so many, while ``margin`` seconds are left. Returns how many."""
        launch, inline, flight, horizon = self._launch, self._inline, self._launch.progress.flight, self._horizon
        clock, is_trusted, interrupted = launch.clock, launch.lease_is_trusted, launch.interrupted
        settling, stop_before, since = self._settling, launch.window.stop_before, self._settling.since
        if inline is None or launch.progress.stops.any():
            return 0
        ways: dict[str, _Way] = {}
        done: list[Done] = []
        settled, once = 0, False  # how many of these are, and whether the last one is handled at most once and is not
        unusual, most, now = 0, min(most, flight.free()), clock()
        while reserved and len(done) < most and is_trusted() and not interrupted() and now + margin < stop_before:
            reservation = reserved[0]
            way = ways.get(reservation.handler) or self._way_of(reservation.handler, inline, ways)
            if way is None or reservation.options or reservation.expires or reservation.row[rows.CRASHES]:
                break
            try:
                payload = decode_payload(reservation.payload)
            except Malformed:
                break
            if once and not way.at_most_once:
                break
            context = None
            if way.takes_context:
                if (done or since is not None) and reservation.occurrence:
                    break  # it may be the previous one of this that is not settled
                context = self._context_of(reservation)
            del reserved[0]
            if way.at_most_once:
                if len(done) > settled:
                    settling.complete(done[settled:])
                settled, once = len(done), False
                if not self._exchange.begin(reservation):
                    break
            flight.enter(reservation, last=rows.attempts(reservation.row) >= way.max_attempts)
            started = clock()
            outcome = way.handle(payload, context)
            error = None if outcome is DONE else outcome.error
            damages = inline.checked(error)
            ended = now = clock()
            if error is not None or (damages is not NONE and damages != NONE):
                unusual = 1
                attempt = Attempt(reservation, way.handler, payload, context)
                inline.add(Handled(attempt, started, ended, outcome, *damages))
                break
            flight.end(reservation)
            way.lasted.append(ended - started)
            if context is not None:
                context.end()
            if outcome is DONE and (context is None or not context.enqueued):
                done.append((reservation, started, ended, None))
            else:
                extra = settling.extra_of(reservation, way.handler, context, outcome.result, ended)
                done.append((reservation, started, ended, extra))
                now = clock()
            once = way.at_most_once
            if since is None:
                since = ended
            if now - started > self._brief or now - since > horizon:
                break
        for name, way in ways.items():
            if way.lasted:
                self._durations.add_all(name, way.lasted)
        if len(done) > settled:
            settling.complete(done[settled:])
        settling.urgent = settling.urgent or once
        return len(done) + unusual

    def _way_of(self, name: str, inline: Inline, ways: dict[str, _Way]) -> _Way | None:
        """That of the handler's messages in this pass, if it is not isolated and expected to be brief."""
        expected, handler = self._durations.expected(name), self._handlers.get(name)
        if handler is None or expected is None or expected > self._horizon:
            return None
        way = ways[name] = _Way(handler, inline)
        return way


class _Way:
    """How a handler's messages are handled, looked up once in a pass, and how long they ``lasted``, in seconds."""

    __slots__ = ("at_most_once", "handle", "handler", "lasted", "max_attempts", "takes_context")

    def __init__(self, handler: Handler, inline: Inline) -> None:
        self.handler, self.max_attempts = handler, handler.max_attempts
        self.takes_context, self.at_most_once = handler.takes_context, handler.at_most_once
        self.handle = partial(inline.turn, handler) if handler.asynchronous else handler.handle
        self.lasted: list[float] = []
