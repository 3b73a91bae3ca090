"""Enqueueing with ``durability = "strict"``: an acknowledgement waits for replicas."""

from __future__ import annotations

from typing import Any

from pollconsumer.core.errors import NotReplicated
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.store.client.patience import SYSTEM_CLOCKS, Clocks
from pollconsumer.store.client.strict import Strict
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.producer import Enqueued, Origin, Producer, Trip, ids_of


class StrictProducer(Producer):
    """A producer whose messages must be on replicas. It is as quick as another producer where it need not wait: on a
    server without replicas, if their number is not set."""

    def __init__(self, wire: Wire, namespace: str, strict: Strict, clocks: Clocks = SYSTEM_CLOCKS) -> None:
        super().__init__(wire, namespace, clocks)
        self._strict = strict
        self.rights = f"{Producer.rights} {strict.right}"  # GUARD rights of one that waits for replicas

    def enqueue_one(self, message: NewMessage) -> Enqueued:
        if self._waits():
            self.refuse_followed([message])
            return self.enqueue([message])[0]
        enqueued = super().enqueue_one(message)
        if self._waits():  # it was sent on a new connection, to a server with replicas
            self.enqueue([message])
        return enqueued

    def _waits(self) -> bool:
        return self._strict.waits(self.wire.replicas)

    def _send(self, trip: Trip, origin: Origin | None, done: int) -> list[Any]:
        """The answers to one round trip, once replicas have its messages. NotReplicated if messages are accepted, but
        too few replicas confirmed in time."""
        strict, commands = self._strict, self._commands(trip, origin, done, "")
        awaiting = strict.awaiting(self.wire.replicas, [self.keys.queue(page[0].queue, "counters") for page in trip])
        answers = self._call(commands + awaiting, lambda: trip, origin, done, awaiting, strict.within)
        if awaiting and (problem := strict.shortfall(answers[-1], self.wire.replicas)):
            self.wire.close()  # the server may not be the primary any more
            accepted = [entry for entry, held in zip(trip, answers, strict=False) if isinstance(held, list)]
            if accepted:
                raise NotReplicated(ids_of(accepted), problem)
        if not awaiting and self._waits():
            self._send(trip, origin, done)
        return answers[: len(trip)]
