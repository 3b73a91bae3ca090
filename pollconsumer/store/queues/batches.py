"""Batches: what is written in a batch's queue, which is the queue of its first callback."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pollconsumer.core.messages.continuation import FIRST, INNER, REQUIRED, Packed
from pollconsumer.store.queues.producer import Producer

OPEN_FOR_MS = 3600 * 1000
"""An open batch is abandoned if its producer is silent for so many ms."""
CALLBACKS = ("then", "failed", "ended")
_ENDS = {"then": "c", "ended": "d"}
"""The callback that an inner batch enqueues → its ending as a member, in the letters of rows. If it enqueues both, the
first counts, unless a redrive makes ``then`` come after ``ended``."""
NOTED: Packed = dict.fromkeys(FIRST) | dict.fromkeys(REQUIRED, "")
"""A note without content, as it stands among the messages of an outbox entry. An earlier version leaves it alone: it
looks like a message with an unknown field."""
MOST_BATCHES = 10_000
"""Number of unended batches of a queue at which producers may open no more."""


class NewBatch(NamedTuple):
    """A batch to be opened. ``expires``: in ms, 0 for never. ``callbacks``: by name. ``total``: if it is closed at
    once. ``spares_cancelled``: cancelled members count as completed. ``is_inner``: it is a member of another batch with
    the same queue. Its id says which, and its end is reported there."""

    queue: str
    id: str
    callbacks: Mapping[str, Packed]
    expires: int = 0
    total: int | None = None
    spares_cancelled: bool = False
    is_inner: bool = False


BATCH_FIELDS = {"home" if name == "queue" else name: name for name in NewBatch._fields}
"""Stored name → field of a new batch. Entries of outboxes have the stored names, which never change."""


class Ends(NamedTuple):
    """Members of a batch that have ended: how they ended (a letter, as in rows), their numbers, and how many members
    they have added."""

    queue: str
    batch: str
    ending: str
    numbers: Iterable[int]
    added: int = 0


class Batches:
    def __init__(self, producer: Producer) -> None:
        """``producer`` registers queues."""
        self._wire, self._keys, self._register = producer.wire, producer.keys, producer.register

    def open(self, batch: NewBatch) -> str:
        """Open a batch, or report that its producer is alive. Returns "" if it is new, ``open`` if it was open, else
        why it takes no more members; ``full`` if its queue has MOST_BATCHES."""
        return str(self._wire.all([self._opening(batch, MOST_BATCHES)])[0].decode())

    def close(self, batch_queue: str, batch: str, members: int, check: Callable[[], object] | None = None) -> str:
        """Close a batch to which its producer has added ``members`` members. Returns "", or why the batch took no more
        members. ``check`` is called before each repetition."""
        (shut,) = self._wire.all(
            [self._wire.queue_command("close_batch", self._keys, batch_queue, [batch, members])], on_repeat=check
        )
        return "gone" if shut is None else str(shut.decode())

    def number_members(self, batch_queue: str, batch: str, count: int) -> int | None:
        """Reserve ``count`` numbers for members that a member adds. Returns the first number. None if there is no such
        batch."""
        number: int | None = self._wire.run("number_members", self._keys, batch_queue, [batch, count])
        return number

    def take_in(self, opened: Iterable[NewBatch], ends: Iterable[Ends]) -> list[str]:
        """Open batches, and count members that have ended. Returns the queues whose outbox has new entries."""
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
