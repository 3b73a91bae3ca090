"""What the pages of batches show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pollconsumer.core.errors import NotFound
from pollconsumer.core.lifecycle import State
from pollconsumer.store.reading.batch_reader import WAITING, BatchStatus
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.records.id_text import id_bytes
from pollconsumer.store.store import Store

PAGE = 50
"""Batches, or dead members, on a page."""


class OfBatches(NamedTuple):
    """The page of a queue's batches. ``all``: how many the queue keeps. ``batches``: a part of them, from number
    ``skip`` on, each after its instant, as of `BatchReader.part`."""

    now: int
    queue: str
    all: int
    batches: Sequence[tuple[float, BatchStatus]]
    skip: int


class OfBatch(NamedTuple):
    """The page of a batch. ``called``: its callbacks that are kept. ``dead``: dead members from the number ``first``
    on; ``after``: the number that the next page begins with."""

    now: int
    batch: BatchStatus
    called: Sequence[Message]
    dead: Sequence[Message]
    first: int = 0
    after: int | None = None


class BatchPageReader:
    def __init__(self, store: Store) -> None:
        self._reader, self._inspector = store.batches, store.inspector

    def count(self, queue: str) -> int:
        """How many batches the queue keeps."""
        return self._reader.counts([queue])[0]

    def exists(self, batch: tuple[str, str]) -> bool:
        """Whether a batch, by home and id, is kept."""
        try:
            return bool(self._reader.batch(batch[1], batch[0]))
        except NotFound:
            return False

    def batches(self, queue: str, skip: int) -> OfBatches:
        """The page of the batches of ``queue``: last those that are forgotten first."""
        found = self._reader.part(queue, -skip - PAGE, -skip - 1)
        return OfBatches(self._inspector.now(), queue, self.count(queue), found[::-1], skip)

    def batch(self, queue: str, batch_id: str, first: int = 0) -> OfBatch:
        """The page of a batch. NotFound if there is none."""
        batch, now = self._reader.batch(batch_id, queue), self._inspector.now()
        called = [
            message
            for each in batch.callbacks
            if each.state not in (None, WAITING)
            for message in self._inspector.those(each.queue, [id_bytes(each.message_id)])
        ]
        dead, after = self._reader.some(batch, "dead", first, PAGE) if batch.dead else ([], None)
        still = [each for each in dead if each.state is State.DEAD]  # a batch is not told of a redrive
        return OfBatch(now, batch, called, still, first, after)
