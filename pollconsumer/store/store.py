"""All that reads and writes a store, by one connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pollconsumer.core.users_code import lazy
from pollconsumer.store.actions import BatchActions, HandlerPauses, MessageActions, run_again
from pollconsumer.store.audit_log import Intervention, audit_of
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.leases import Leases
from pollconsumer.store.queues.producer import Producer
from pollconsumer.store.reading.batch_reader import BatchReader
from pollconsumer.store.reading.inspector import Inspector, MessageSelector
from pollconsumer.store.recurrence_actions import Recurrences

T = TypeVar("T")


def _made(kind: Callable[[Wire, str], T]) -> Callable[[Store], T]:
    return lambda store: kind(store.wire, store.namespace)


class Store:
    """The store of a namespace, over the connection ``wire``. Its parts, such as `Inspector`, are constructed at their
    first use. ``producer``: one that follows the settings, such as limits; by default a plain one."""

    def __init__(self, wire: Wire, namespace: str, producer: Producer | None = None) -> None:
        self.wire, self.namespace, self.keys = wire, namespace, Keys(namespace)
        if producer is not None:
            vars(self)["producer"] = producer

    inspector = lazy(_made(Inspector))
    selector = lazy(_made(MessageSelector))
    batches = lazy(_made(BatchReader))
    producer = lazy(_made(Producer))
    actions = lazy(_made(MessageActions))
    batch_actions = lazy(_made(BatchActions))
    recurrences = lazy(_made(Recurrences))
    handler_pauses = lazy(_made(HandlerPauses))
    leases = lazy(_made(Leases))

    def rerun(self, queue: str, message_id: str) -> str:
        """Enqueue an ended message once more, as `run_again` does."""
        return run_again(self.producer, queue, message_id)

    def audit(self, limit: int) -> list[Intervention]:
        """The last ``limit`` interventions, see `audit_of`."""
        return audit_of(self.wire, self.namespace, limit)
