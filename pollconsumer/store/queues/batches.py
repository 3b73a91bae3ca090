"""The scripts of batches. A batch is stored in the queue of its first callback."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pollconsumer.core.messages.continuation import FIRST, INNER, REQUIRED, Packed
from pollconsumer.store.queues.producer import Producer

OPEN_FOR_MS = 3600 * 1000
"""Milliseconds. An open batch is abandoned if its producer does nothing with it for so long."""
CALLBACKS = ("then", "failed", "ended")
_ENDS = {"then": "c", "ended": "d"}
"""Callback of an inner batch → how that batch then ends as a member of the outer one, as a letter of rows. If
both are enqueued, the first counts; but after a redrive ``then`` replaces ``ended``."""
NOTED: Packed = dict.fromkeys(FIRST) | dict.fromkeys(REQUIRED, "")
"""The beginning of a note among the messages of an outbox entry. An earlier version does not touch the entry, since a
note looks like a message with an unknown field."""
MOST_BATCHES = 10_000
"""If a queue has so many batches that have not ended, producers may open no more."""


class NewBatch(NamedTuple):
    """A batch to be opened. ``expires``: after so many ms, 0 for never. ``callbacks``: by name. ``total``: its number
    of members, if it is closed at once; else None. ``spares_cancelled``: a cancelled member counts as completed.
    ``is_inner``: it is a member of another batch with the same queue; its id says which."""

    queue: str
    id: str
    callbacks: Mapping[str, Packed]
    expires: int = 0
    total: int | None = None
    spares_cancelled: bool = False
    is_inner: bool = False


BATCH_FIELDS = {"home" if name == "queue" else name: name for name in NewBatch._fields}
"""The fields of `NewBatch` by their stored names. Stored names never change, since outbox entries have them."""


class Ends(NamedTuple):
    """Members of a batch that have ended. ``ending``: how, as a letter of rows. ``numbers``: which members, by number.
    ``added``: how many members they have added to the batch."""

    queue: str
    batch: str
    ending: str
    numbers: Iterable[int]
    added: int = 0


class Batches:
    def __init__(self, producer: Producer) -> None:
        """``producer`` registers the queues of batches."""
        self._wire, self._keys, self._register = producer.wire, producer.keys, producer.register

    def open(self, batch: NewBatch) -> str:
        """Open a batch; if it is open, record that its producer is alive. Returns "" if it is new, ``open`` if it was
        open, ``full`` if its queue has MOST_BATCHES, else the state in which it accepts no members."""
        return str(self._wire.all([self._opening(batch, MOST_BATCHES)])[0].decode())

    def close(self, batch_queue: str, batch: str, members: int, check: Callable[[], object] | None = None) -> str:
        """Close a batch to which its producer has added ``members`` members. Returns "" if this call closed it,
        ``gone`` if there is none, else its state. ``check`` is called before a repetition."""
        (shut,) = self._wire.all(
            [self._wire.queue_command("close_batch", self._keys, batch_queue, [batch, members])], on_repeat=check
        )
        return "gone" if shut is None else str(shut.decode())

    def number_members(self, batch_queue: str, batch: str, count: int) -> int | None:
        """Reserve ``count`` numbers for members that a member adds. Returns the first. None if there is no such
        batch."""
        number: int | None = self._wire.run("number_members", self._keys, batch_queue, [batch, count])
        return number

    def take_in(self, opened: Iterable[NewBatch], ends: Iterable[Ends]) -> list[str]:
        """Open batches, and count ended members. Returns the queues whose outboxes this gives new entries."""
        for batch in opened:
            self._register(batch.queue)
        by_queue = dict[str, list[Any]]()
        for each in ends:
            self._register(each.queue)
            arguments = by_queue.setdefault(each.queue, [])
            arguments += (each.batch, each.ending, each.added, " ".join(map(str, each.numbers)))
        openings = [self._opening(batch) for batch in opened]
        arrivals = [
            self._wire.queue_command("arrive", self._keys, batch_queue, args) for batch_queue, args in by_queue.items()
        ]
        answers = self._wire.all([*openings, *arrivals])[len(openings) :] if openings or arrivals else []
        batch_queues = [batch_queue for batch_queue, sent_on in zip(by_queue, answers, strict=True) if sent_on]
        return [*batch_queues, *(batch.queue for batch in opened if batch.total == 0)]

    def _opening(self, batch: NewBatch, most: int | str = "") -> tuple[Any, ...]:
        total = "" if batch.total is None else batch.total
        arguments: list[Any] = [batch.id, OPEN_FOR_MS, batch.expires, total, int(batch.spares_cancelled), most]
        for name in CALLBACKS:
            entry = [batch.callbacks[name]] if name in batch.callbacks else []
            if batch.is_inner and name in _ENDS:
                member = batch.id.removesuffix(INNER)
                entry.append(NOTED | {"ended": {"as": _ENDS[name], "ids": member, "home": batch.queue, "added": 0}})
            if entry:
                arguments += (name, json.dumps(entry))
        return self._wire.queue_command("open_batch", self._keys, batch.queue, arguments)
