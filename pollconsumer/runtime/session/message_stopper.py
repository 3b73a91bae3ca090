"""What a launch does with requests to stop messages that it has in hand."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pollconsumer.core.retry import STOP_GRACE
from pollconsumer.runtime.handling.executors.executor import Executor
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


AT_ONCE = 0.001
"""Seconds: a timer that is set to none does not ring."""


class MessageStopper:
    def __init__(
        self,
        launch: Launch,
        executor: Executor,
        exchange: Exchange,
        queues: Sequence[str],
        stoppable: Callable[[Reservation], Reservation | None] | None = None,
        known: Callable[[Reservation], Reservation | None] | None = None,
    ) -> None:
        """``stoppable`` names the message by which the executor knows the call of one that is to stop; None while
        others share that call. ``known`` names it for the first message of a call; None for the others."""
        self._stops, self._flight = launch.progress.stops, launch.progress.flight
        self._executor, self._exchange, self._queues = executor, exchange, queues
        self._interrupted: set[tuple[str, bytes]] = set()
        self._clock, self.timed_out = launch.clock, set[Reservation]()
        """``timed_out``: messages in hand whose limits have passed."""
        self._stoppable = stoppable or (lambda reservation: reservation)
        self._known = known or (lambda reservation: reservation)

    def interrupt(self) -> None:
        """Interrupt handlers in hand, at their limits, and after a grace where a stop is asked for. From a signal
        handler, too, if they run in the main thread."""
        for reservation in self._flight.overdue(self._clock()):
            if reservation not in self.timed_out:
                self.timed_out.add(reservation)
                if (known := self._known(reservation)) is not None:
                    self._executor.stop(known, AT_ONCE, partial(self._is_in_hand, reservation))
        standing = self._stops.standing() - self._interrupted
        for reservation in self._flight.in_hand() if standing else ():
            named = reservation.queue, reservation.id
            if named in standing and (known := self._stoppable(reservation)) is not None:
                self._interrupted.add(named)
                self._executor.stop(known, STOP_GRACE, partial(self._is_in_hand, reservation))

    def _is_in_hand(self, reservation: Reservation) -> bool:
        return reservation in self._flight.in_hand()

    def attend(self) -> None:
        """Interrupt handlers where a stop is asked for, and forget requests about messages that are not here, or no
        longer."""
        self.interrupt()
        if not self._stops.any():
            return
        here = {(queue, message_id) for queue in self._queues for message_id in self._exchange.held(queue)}
        for named in self._stops.standing() - here:
            self._stops.forget(*named)
            self._interrupted.discard(named)
