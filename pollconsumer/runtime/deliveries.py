"""The contexts that a launch gives its handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.runtime.context import Context, Delivery, Situation
from pollconsumer.runtime.process import boot_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pollconsumer.runtime.handlers import Handler
    from pollconsumer.runtime.launch import HeldLaunch
    from pollconsumer.store.reservations import Reservation


class Deliveries:
    def __init__(self, held: HeldLaunch, handlers: Mapping[str, Handler]) -> None:
        self._launch, self._handlers = held.launch, handlers

    def context_of(self, reservation: Reservation) -> Context:
        delivery = Delivery(
            self._launch.opener.namespace,
            reservation.queue,
            reservation.id.decode("utf-8", "backslashreplace"),
            reservation.handler,
            reservation.attempt,
            reservation.generation,
            reservation.fence,
        )
        situation = Situation(self._launch.window.stop_before, self._cancelled, lambda _: None, self._queue_of)
        return Context(delivery, situation)

    def _cancelled(self) -> bool:
        return self._launch.interrupted() or self._launch.progress.trusted_until() < boot_time()

    def _queue_of(self, handler: str) -> str:
        return self._handlers[handler].queue if handler in self._handlers else "default"
