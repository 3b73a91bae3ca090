"""Returns what is reserved ahead to its queue while what is in hand takes long, where other launches may be idle.

Messages are reserved for the next hundredth of a second, by what earlier ones took. So if one lasts for two looks,
those behind it wait longer than was thought; so do messages gathered for a bulk call that is due. A launch that handles
in its own thread can do nothing about that: another thread looks. A look takes some microseconds, and a brief message
costs nothing.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Reservation
from pollconsumer.store.records.steps import Settlement, Share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


LOOK_EVERY = 0.02
"""Seconds. Two looks, a step and a wake-up fit into the 50 ms that a message may be late."""

Seen = tuple["Sequence[Reservation]", "Reservation"]
"""The messages in hand, and the first one reserved behind them."""


class ReservedReturner:
    def __init__(
        self,
        launch: Launch,
        exchange: Exchange,
        handlers: Mapping[str, Handler],
        overdue: Callable[[], Sequence[Reservation]] = tuple,
    ) -> None:
        """``overdue``: the messages gathered for bulk calls that are due."""
        self._launch, self._exchange, self._overdue = launch, exchange, overdue
        self._once = {name for name, handler in handlers.items() if handler.at_most_once}
        self._ended = threading.Event()
        self._seen: Seen | None = None
        self._shares: dict[str, Share] = {}
        """What is to be settled, by queue."""
        self._store: RedisStore | None = None

    def begin(self) -> None:
        with suppress(RuntimeError):  # no thread can be started: messages wait, as with one instance
            start_thread("returner", self._serve)

    def end(self) -> None:
        self._ended.set()

    def _serve(self) -> None:
        while not self._ended.wait(LOOK_EVERY):
            self.look()

    def look(self) -> None:
        """Return what is reserved, if the last look saw the same messages in hand, and the same one behind them."""
        exchange = self._exchange
        with exchange.passing:
            in_hand, before = self._launch.progress.flight.in_hand(), self._seen
            overdue = self._overdue() if in_hand else ()
            behind = [*overdue[:1], *[*exchange.reserved][:1]]
            self._seen = (in_hand, behind[0]) if in_hand and behind else None
            if self._seen is not None and self._seen == before:
                self._take()
                self._take_gathered(overdue)
                exchange.is_stuck = True
        if self._shares:
            self._return()

    def _take(self) -> None:
        """Take reserved messages, the last one first, since each goes to the head of its queue. A message that is
        handled at most once may be recorded as begun at this moment: it stays, and so do those before it."""
        reserved = self._exchange.reserved
        while reserved and reserved[-1].handler not in self._once:
            self._release(reserved.pop())

    def _take_gathered(self, overdue: Sequence[Reservation]) -> None:
        for each in reversed(overdue):
            self._exchange.gathered.remove(each)  # one by one: the launch's thread may count the others meanwhile
            self._release(each)

    def _release(self, reservation: Reservation) -> None:
        share = self._shares.setdefault(reservation.queue, Share(reservation.queue))
        share.settlements.append(Settlement.released(reservation))
        self._exchange.returned += 1

    def _return(self) -> None:
        """Release what was taken; where the store is away, again with the next look. A row that has changed since stays
        as it is."""
        if self._store is None:
            self._store = RedisStore(self._launch.bare_wire(), self._launch.store.keys.namespace)
        try:
            if self._store.release(self._launch.claim, [*self._shares.values()]):
                self._exchange.hear_call()
            self._shares.clear()
        except PollConsumerError:
            self._store.wire.close()
