"""The quick path with several slots: a slot whose message has ended takes the next reserved one by itself.

It needs no turn of the launch's thread, which reserves and settles meanwhile, several messages at a time. As with
`plain`, lease, signal and margin are looked at before each message, and anything unusual is left to the launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pollconsumer.core.message import Malformed, decode_payload
from pollconsumer.runtime.handling.executors.executor import Attempt, Handled
from pollconsumer.store import rows

if TYPE_CHECKING:
    from pollconsumer.runtime.consuming.exchange import Exchange
    from pollconsumer.runtime.handling.executors.executor import Executor
    from pollconsumer.runtime.handling.handler import Handler
    from pollconsumer.runtime.launch.held import Launch


class Ahead:
    """Reserved messages for slots that become free, while it is open. ``brief``: the seconds up to which a message
    cannot change the margin."""

    def __init__(
        self,
        launch: Launch,
        handlers: Mapping[str, Handler],
        executor: Executor,
        exchange: Exchange,
        *,
        brief: float,
    ) -> None:
        self._launch, self._flight, self._brief = launch, launch.progress.flight, brief
        self._reserved, self._passing = exchange.reserved, exchange.passing
        self._handlers = {name: handler for name, handler in handlers.items() if _is_plain(handler)}
        self._wake = executor.wake
        self._margin: float | None = None
        self._few = self._unseen = self._seen = 0
        """How many have ended that matter and that no margin counts in; of these, how many the launch knows."""
        executor.relay(self.take)

    @property
    def is_open(self) -> bool:
        return self._margin is not None

    def open(self, margin: float, few: int) -> None:
        """``margin``, that of brief messages, counts in all that the launch has seen. It is woken once so ``few`` are
        left."""
        with self._passing:
            self._unseen -= self._seen
            self._margin, self._few, self._seen = margin, few, 0

    def close(self) -> None:
        """No slot takes a message after this call."""
        with self._passing:
            self._margin = None

    def take(self, ended: Handled) -> Attempt | None:
        """The next message, for the slot in which one has ended; None to leave it to the launch."""
        with self._passing:
            if self._matters(ended):
                self._unseen += 1
            following = self._next() if self._unseen == 0 else None
            few_are_left = following is not None and len(self._reserved) == self._few
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
        launch, margin = self._launch, self._margin
        if (
            margin is None
            or not self._reserved
            or not launch.lease_is_trusted()
            or launch.interrupted()
            or launch.clock() + margin >= launch.window.stop_before
            or not self._flight.free()
            or launch.progress.stops.any()
        ):
            return None
        reservation = self._reserved[0]
        handler, lot = self._handlers.get(reservation.handler), reservation.lot
        if handler is None or lot.options or lot.expires or lot.row[rows.CRASHES]:
            return None
        try:
            payload = decode_payload(reservation.payload)
        except Malformed:
            return None
        del self._reserved[0]
        self._flight.enter(reservation, last=rows.attempts(lot.row) >= handler.max_attempts)
        return Attempt(reservation, handler, payload)


def _is_plain(handler: Handler) -> bool:
    """Whether its messages need no context, process or settlement of their own."""
    return not (handler.takes_context or handler.isolated or handler.at_most_once)
