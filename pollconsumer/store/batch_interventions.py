"""Operators' writes to the members of a batch, a chunk of the batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from pollconsumer.core.errors import BadData, NotFound
from pollconsumer.core.lifecycle import State
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.interventions import Interventions
from pollconsumer.store.reading.batch_reader import BatchReader, BatchStatus
from pollconsumer.store.reading.messages import Message


class BatchInterventions:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._reader, self._interventions = BatchReader(wire, namespace), Interventions(wire, namespace)

    def cancel(self, batch: BatchStatus, chunk: int) -> tuple[int, int | None]:
        """Cancel the members of a chunk that have not ended; ask those in hand to stop. Returns how many were cancelled
        at once, and the number of the next chunk, None if there is none."""
        found, after = self._reader.page(batch, "outstanding", chunk)
        cancelled = 0
        for queue, ids in _by_queue(found, lambda message: not message.state.has_ended).items():
            done = self._interventions.cancel_all(queue, ids)
            cancelled += len(done)
            for each in set(ids) - set(done):
                with suppress(BadData, NotFound):  # it has ended meanwhile
                    self._interventions.stop(queue, each)
        return cancelled, after

    def redrive(self, batch: BatchStatus, chunk: int) -> tuple[int, int | None]:
        """Return the dead members of a chunk to their queues. Returns how many, and the number of the next chunk, None
        if there is none."""
        found, after = self._reader.page(batch, "dead", chunk)
        dead = _by_queue(found, lambda message: message.state is State.DEAD)
        return sum(len(self._interventions.redrive(queue, ids)) for queue, ids in dead.items()), after


def _by_queue(messages: Sequence[Message], wanted: Callable[[Message], bool]) -> Mapping[str, list[str]]:
    ids = dict[str, list[str]]()
    for message in filter(wanted, messages):
        ids.setdefault(message.queue, []).append(message.id)
    return ids
