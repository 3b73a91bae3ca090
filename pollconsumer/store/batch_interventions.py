"""Operators' writes to the members of a batch, a chunk of the batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from pollconsumer.core.errors import BadData, NotFound
from pollconsumer.core.lifecycle import State
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.queues.interventions import Interventions
from pollconsumer.store.reading.batch_reader import MALFORMED, BatchReader, BatchStatus
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.records.id_text import id_bytes

Chunk = int | None
"""The number of a chunk; None after the last."""


class CancelledMembers(NamedTuple):
    """How many members were cancelled at once, and how many, which are in hand, were asked to stop."""

    cancelled: int
    asked_to_stop: int


class RedrivenMembers(NamedTuple):
    """How many dead members were returned to their queues, and the ids of those that were left: they have no record, or
    another message has their unique key."""

    redriven: int
    left: list[str]


class BatchInterventions:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire, self._keys = wire, Keys(namespace)
        self._reader, self._interventions = BatchReader(wire, namespace), Interventions(wire, namespace)

    def cancel(self, batch: BatchStatus) -> Iterator[CancelledMembers]:
        """Cancel the members that have not ended; ask those in flight to stop. Yields after each chunk what was done
        until then. A malformed batch is forgotten by the next launch of its queue, or a mover."""
        total = CancelledMembers(0, 0)
        chunk: Chunk = 0
        while chunk is not None:
            done, chunk = self.cancel_chunk(batch, chunk)
            total = CancelledMembers(total.cancelled + done.cancelled, total.asked_to_stop + done.asked_to_stop)
            yield total

    def redrive(self, batch: BatchStatus) -> Iterator[RedrivenMembers]:
        """Return the dead members to their queues. Yields after each chunk what was done until then."""
        total = RedrivenMembers(0, [])
        chunk: Chunk = 0
        while chunk is not None:
            done, chunk = self.redrive_chunk(batch, chunk)
            total = RedrivenMembers(total.redriven + done.redriven, total.left + done.left)
            yield total

    def cancel_chunk(self, batch: BatchStatus, chunk: int) -> tuple[CancelledMembers, Chunk]:
        """Do `cancel` for a chunk. Returns what was done, and the next chunk."""
        cancelled = asked_to_stop = 0
        queues, following = self._chunk(batch, "unended", chunk, lambda message: not message.state.has_ended)
        for queue, ids in queues.items():
            done = self._interventions.cancel_all(queue, ids)
            cancelled += len(done)
            for each in set(ids) - set(done):
                with suppress(BadData, NotFound):  # it has ended meanwhile
                    self._interventions.stop(queue, each)
                    asked_to_stop += 1
        if following is None and batch.state == MALFORMED:
            self._wire.command("ZADD", self._keys.queue(batch.home, "batch_instants"), 0, id_bytes(batch.id))
        return CancelledMembers(cancelled, asked_to_stop), following

    def redrive_chunk(self, batch: BatchStatus, chunk: int) -> tuple[RedrivenMembers, Chunk]:
        """Do `redrive` for a chunk. Returns what was done, and the next chunk."""
        redriven, left = 0, list[str]()
        queues, following = self._chunk(batch, "dead", chunk, lambda message: message.state is State.DEAD)
        for queue, ids in queues.items():
            done = self._interventions.redrive(queue, ids)
            redriven += len(done)
            left += sorted(set(ids) - set(done))
        return RedrivenMembers(redriven, left), following

    def _chunk(
        self, batch: BatchStatus, which: str, chunk: int, wanted: Callable[[Message], bool]
    ) -> tuple[Mapping[str, Sequence[str]], Chunk]:
        """The ids of the members wanted of a chunk, by queue, and the next chunk."""
        found, following = self._reader.page(batch, which, chunk)
        ids = dict[str, list[str]]()
        for message in filter(wanted, found):
            ids.setdefault(message.queue, []).append(message.id)
        return ids, following
