"""The contexts that a launch gives its handlers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial

from pollconsumer.core.message import Malformed, NewMessage, decode_payload
from pollconsumer.runtime.consuming.predecessors import Predecessors
from pollconsumer.runtime.consuming.reporting import Reporting
from pollconsumer.runtime.handling.context import Context, Delivery, Situation
from pollconsumer.runtime.handling.handler import Handler, hooks_before_enqueue
from pollconsumer.runtime.launch.held import Launch
from pollconsumer.runtime.messages import Defaults
from pollconsumer.store.redis_store import RedisStore
from pollconsumer.store.reservations import Reservation


class Deliveries:
    def __init__(
        self,
        launch: Launch,
        handlers: Mapping[str, Handler],
        lock: AbstractContextManager[object],
        reporting: Reporting,
        predecessors: Predecessors,
    ) -> None:
        """``lock`` orders calls of the store by concurrent handlers."""
        self._reporting, self._predecessors = reporting, predecessors
        self._launch, self._store, self._handlers, self._lock = launch, launch.store, handlers, lock
        self._own_store: RedisStore | None = None

    def context_of(self, reservation: Reservation) -> Context:
        state = None
        if reservation.has_checkpoint:
            with suppress(Malformed):  # corrupt
                state = decode_payload(self._store.last_checkpoint(reservation) or b"")
        headers = None
        if reservation.options:
            from pollconsumer.core.options import decoded

            with suppress(Malformed):
                headers = dict(decoded(reservation.options).headers)
        occurrence = reservation.occurrence
        delivery = Delivery(
            self._store.keys.namespace,
            reservation.queue,
            reservation.name,
            reservation.handler,
            reservation.attempt,
            reservation.generation,
            reservation.fence,
            state,
            headers,
            occurrence and occurrence.instant,
            occurrence and self._predecessors.of(reservation),
        )
        save = partial(self._save, reservation)
        stop_before, clock = self._launch.window.stop_before, self._launch.clock
        stop_asked = partial(self._launch.progress.stops.asked, reservation)
        report = partial(self._reporting.report, reservation)
        before_enqueue = hooks_before_enqueue(self._handlers.get(reservation.handler))
        situation = Situation(
            stop_before, self._cancelled, save, self._defaults_of, clock, self._send, report, before_enqueue, stop_asked
        )
        return Context(delivery, situation)

    def _save(self, reservation: Reservation, state: bytes) -> None:
        with self._store_of_handlers() as store, self._reporting.storing:
            store.checkpoint(self._launch.holder, reservation, state, self._reporting.take())

    def _send(self, message: NewMessage) -> str:
        with self._store_of_handlers() as store:
            return store.enqueue([message])[0].id

    @contextmanager
    def _store_of_handlers(self) -> Iterator[RedisStore]:
        """On a separate connection: a handler runs on a thread, and it or a hook may be interrupted anywhere."""
        with self._lock:
            if self._own_store is None:
                self._own_store = RedisStore(self._launch.bare_wire(), self._store.keys.namespace)
            yield self._own_store

    def _cancelled(self) -> bool:
        return self._launch.interrupted() or not self._launch.lease_is_trusted()

    def _defaults_of(self, handler: str) -> Defaults:
        return self._handlers[handler].defaults if handler in self._handlers else Defaults()
