"""What reads and writes a store, all on one connection."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from pollconsumer.store.audit_log import Intervention, interventions_of
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.interventions import BatchInterventions, HandlerPauses, Interventions
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.leases import Leases
from pollconsumer.store.queues.producer import Producer
from pollconsumer.store.reading.batch_reader import BatchReader
from pollconsumer.store.reading.inspector import Inspector, MessageSelector
from pollconsumer.store.recurrence_interventions import Recurrences

T = TypeVar("T")


def _made(kind: Callable[[Wire, str], T]) -> Callable[[Store], T]:
    return lambda store: kind(store.wire, store.namespace)


class Store:
    """The store of a namespace, over a connection. Its readers and writers are made when they are first asked for."""

    def __init__(self, wire: Wire, namespace: str) -> None:
        self.wire, self.namespace, self.keys = wire, namespace, Keys(namespace)

    inspector = cached_property(_made(Inspector))
    selector = cached_property(_made(MessageSelector))
    batches = cached_property(_made(BatchReader))
    producer = cached_property(_made(Producer))
    interventions = cached_property(_made(Interventions))
    batch_interventions = cached_property(_made(BatchInterventions))
    recurrences = cached_property(_made(Recurrences))
    handler_pauses = cached_property(_made(HandlerPauses))
    leases = cached_property(_made(Leases))

    def audit(self, limit: int) -> list[Intervention]:
        """What people did, as of `interventions_of`."""
        return interventions_of(self.wire, self.namespace, limit)
