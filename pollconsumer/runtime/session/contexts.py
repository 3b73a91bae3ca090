"""The contexts that a launch gives its handlers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from pollconsumer.core.messages.message import NewMessage, decoded_options
from pollconsumer.core.messages.message_steps import StepEntry
from pollconsumer.core.messages.payloads import Malformed, decode_payload
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.delivery import Delivery, Situation
from pollconsumer.runtime.handling.handler import Handler, hooks_before_enqueue
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.new_messages import Defaults
from pollconsumer.runtime.session.predecessors import Predecessors
from pollconsumer.runtime.session.progress_reporter import ProgressReporter
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Lot, Reservation


class Deliveries:
    def __init__(
        self,
        launch: Launch,
        handlers: Mapping[str, Handler],
        lock: AbstractContextManager[object],
        reporting: ProgressReporter,
        predecessors: Predecessors,
    ) -> None:
        """``lock`` orders calls of the store by concurrent handlers."""
        self._reporting, self._predecessors = reporting, predecessors
        self._launch, self._store, self._handlers, self._lock = launch, launch.store, handlers, lock
        self._own_store: RedisStore | None = None
        self._namespace = launch.store.keys.namespace
        self._shared: _Shared | None = None
        """What the last context had in common with others of its lot."""

    def context_of(self, reservation: Reservation) -> LaunchContext:
        shared = self._shared
        if shared is None or shared.lot is not reservation.lot:
            shared = self._shared = self._shared_by(reservation.lot)
        delivery = shared.delivery_of(reservation)
        if reservation.has_checkpoint:
            stored, recorded = self._store.recorded(reservation)
            delivery = delivery._replace(recorded=recorded)
            with suppress(Malformed):  # corrupt
                delivery = delivery._replace(state=decode_payload(stored or b""))
        if (occurrence := reservation.occurrence) is not None:
            if (before := self._predecessors.of(reservation)) is not None:
                previous = epoch_ms(before.instant), epoch_ms(before.completed), before.result
                delivery = delivery._replace(previous=previous)
            delivery = delivery._replace(occurrence=occurrence.instant)
        return LaunchContext(delivery, shared.situation, reservation)

    def context_of_call(self, reservations: Sequence[Reservation]) -> tuple[LaunchContext, list[Delivery]]:
        """The context of a bulk call, and the deliveries of its messages, without checkpoints or predecessors."""
        lots = {each.lot: self._shared_by(each.lot) for each in reservations}
        deliveries = [lots[each.lot].delivery_of(each) for each in reservations]
        asked = self._launch.progress.stops.asked
        situation = lots[reservations[0].lot].situation._replace(stop_asked=lambda _: all(map(asked, reservations)))
        return LaunchContext(deliveries[0], situation), deliveries

    def _shared_by(self, lot: Lot) -> _Shared:
        headers = None
        if lot.options:
            with suppress(Malformed):
                headers = dict(decoded_options(lot.options)[0].headers)
        launch, handler = self._launch, self._handlers.get(lot.handler)
        limit = launch.end.limit(None if handler is None else handler.timeout)
        situation = Situation(
            partial(launch.end.ends_by, limit=limit),
            self._cancelled,
            self._save,
            self._defaults_of,
            launch.clock,
            self._send,
            self._reporting.report,
            hooks_before_enqueue(handler),
            launch.progress.stops.asked,
            None if handler is not None and handler.at_most_once else self._record,
            partial(self._ask_batch, lot.sequel),
            None if handler is None else handler.codec,
            launch.progress.flight.extend,
        )
        numbers = rows.attempts(lot.row), rows.generation(lot.row), rows.fence(lot.row)
        shown = lot.reserved_at, lot.shown_at
        delivery = Delivery(self._namespace, lot.queue, "", lot.handler, *numbers, headers=headers, shown=shown)
        return _Shared(lot, delivery, situation)

    def _ask_batch(self, sequel: bytes, what: str, *of_batch: Any) -> Any:
        from pollconsumer.runtime.handling.batch_in_hand import answer_about, first_number  # few handlers ask
        from pollconsumer.store.store import Store

        with self._store_of_handlers() as store:
            if what == "number":
                return first_number(store.producer, sequel, *of_batch)
            return answer_about(Store(store.wire, store.keys.namespace), what, *of_batch)

    def _save(self, reservation: Reservation, state: bytes) -> None:
        with self._store_of_handlers() as store, self._reporting.carried() as reports:
            store.checkpoint(self._launch.claim, reservation, state, reports)

    def _record(self, reservation: Reservation, entry: StepEntry) -> None:
        with self._store_of_handlers() as store, self._reporting.carried() as reports:
            store.record(self._launch.claim, reservation, entry, reports)

    def _send(self, message: NewMessage) -> str:
        with self._store_of_handlers() as store:
            return store.enqueue([message])[0].id

    @contextmanager
    def _store_of_handlers(self) -> Iterator[RedisStore]:
        """Yield the store on a separate connection: a handler runs on a thread, and it or a hook may be interrupted
        anywhere."""
        with self._lock:
            if self._own_store is None:
                self._own_store = RedisStore(self._launch.bare_wire(), self._store.keys.namespace)
            yield self._own_store

    def _cancelled(self) -> bool:
        return self._launch.interrupted() or not self._launch.lease_is_trusted()

    def _defaults_of(self, handler: str) -> Defaults:
        return self._handlers[handler].defaults if handler in self._handlers else Defaults()


class _Shared(NamedTuple):
    """What the contexts of a lot share. ``delivery`` has no id."""

    lot: Lot
    delivery: Delivery
    situation: Situation

    def delivery_of(self, reservation: Reservation) -> Delivery:
        """The delivery of a message, without what the store is to be asked for: a checkpoint, the last occurrence."""
        delivery = self.delivery._replace(id=reservation.name)
        with suppress(Malformed, KeyError):  # corrupt
            return _brought_about(delivery, self.lot.sequel) if self.lot.sequel else delivery
        return delivery


def _brought_about(delivery: Delivery, stored: bytes) -> Delivery:
    """The delivery with what the message's sequel says of its batch, or of the message before."""
    from pollconsumer.core.messages.sequel import decoded, member_of

    sequel, _ = decoded(stored)
    batch: tuple[str, str, int | None] | None = None
    previous = None
    if sequel.called_by:
        batch = sequel.called_by, delivery.id.rpartition(":")[0], None
    elif sequel.batch and (member := member_of(delivery.id)):
        batch = sequel.batch, *member
    if before := sequel.previous:
        previous = before["at"], before["at"], before["result"], before["id"], before["state"]
    return delivery._replace(batch=batch, previous=previous)
