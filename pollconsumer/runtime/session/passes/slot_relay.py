"""How slots pass on what is reserved: one whose message has ended takes the next by itself.

The launch's thread reserves and settles meanwhile. Slots take messages without anything unusual, while nothing has
ended that the launch must know of before another begins: `durations.brief` tells why brief ones leave the margin as it
is. Everything else is left to the launch.
"""

from __future__ import annotations

from collections.abc import Mapping

from pollconsumer.core.messages.payloads import Malformed, decode_payload
from pollconsumer.runtime.handling.executors.executor import Attempt, Executor, Handled
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.launch.held import Launch
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.store.records import rows


class SlotRelay:
    def __init__(
        self, launch: Launch, handlers: Mapping[str, Handler], executor: Executor, exchange: Exchange, *, brief: float
    ) -> None:
        """``brief``: seconds that a message may take without a change of the margin."""
        self._launch, self._exchange, self._wake, self._brief = launch, exchange, executor.wake, brief
        self._flight, self._stops = launch.progress.flight, launch.progress.stops
        self._handlers = {
            name: handler
            for name, handler in handlers.items()
            if not (handler.isolated or handler.takes_context or handler.at_most_once or handler.bulk)
        }
        self._margin: float | None = None
        """The margin of brief messages, in seconds, while slots may take messages; None otherwise."""
        self._few = self._unseen = self._seen = 0
        """How many messages are few enough to wake the launch; how many that matter have ended in slots without being
        counted in a margin; how many of these the launch has collected."""
        executor.relay(self.take)

    @property
    def is_open(self) -> bool:
        """Whether slots take messages by themselves."""
        return self._margin is not None

    def open(self, margin: float, few: int) -> None:
        """Let slots take messages. ``margin`` counts in all messages that the launch has collected. The launch is woken
        once ``few`` are left."""
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
        """Note that the launch has collected ``ended``: the margin at the next `open` counts it in."""
        self._seen += self._matters(ended)

    def _matters(self, ended: Handled) -> bool:
        """Whether the launch must know of ``ended`` before another message is taken: it may change the margin, or end
        the launch."""
        return ended.ended - ended.started > self._brief or ended.leaking

    def _next(self) -> Attempt | None:
        launch, margin, reserved = self._launch, self._margin, self._exchange.reserved
        if margin is None or not reserved or not self._flight.free() or self._stops.any():
            return None
        reservation = reserved[0]
        handler, lot = self._handlers.get(reservation.handler), reservation.lot
        if handler is None or not lot.is_plain or reservation.handler in self._stops.paused:
            return None
        try:
            payload = decode_payload(reservation.payload)
        except Malformed:
            return None
        began, end = launch.clock(), launch.end
        if not launch.may_begin(began + margin):
            return None
        del reserved[0]
        ends_by = end.ends_by(began, end.limit(handler.timeout))
        last = rows.attempts(lot.row) >= handler.max_attempts
        self._flight.enter(reservation, last=last, began=began, ends_by=ends_by)
        return Attempt(reservation, handler, payload)
