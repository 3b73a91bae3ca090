"""Bounded reads for the dashboard: some messages of a state, a sample of those completed. Nothing here writes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from pollconsumer.core.durations import Histogram
from pollconsumer.core.lifecycle import State, Timestamps
from pollconsumer.store.keyspace import FINISHED, QUEUE_KEYS
from pollconsumer.store.reading.inspector import INDEXES, id_in
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.records.histograms import read_histogram
from pollconsumer.store.records.id_text import id_text
from pollconsumer.store.records.rows import ended_at, read_row
from pollconsumer.store.server import readable_queues
from pollconsumer.store.store import Store

SAMPLE = 120
"""Messages that stand for all that a queue completed in a time."""


class Completions(NamedTuple):
    """What a queue completed since an instant: how many up to each of some instants (epoch ms), ascending, and the
    timestamps of these samples."""

    instants: Sequence[int] = ()
    counts: Sequence[int] = ()
    samples: Sequence[Timestamps[int]] = ()

    def between(self, begin: float, end: float) -> float:
        """How many were completed from ``begin`` to ``end``, in epoch ms, estimated between the samples."""
        return self._by(end) - self._by(begin) if self.instants else 0.0

    def _by(self, at: float) -> float:
        after = bisect_left(self.instants, at)
        if after == 0:
            return self.counts[0] - 1
        if after == len(self.instants):
            return self.counts[-1]
        (t0, t1), (n0, n1) = self.instants[after - 1 : after + 1], self.counts[after - 1 : after + 1]
        return n0 + (n1 - n0) * (at - t0) / max(1, t1 - t0)


class Excerpts:
    def __init__(self, store: Store) -> None:
        self._wire, self._keys, self._inspector = store.wire, store.keys, store.inspector

    def messages(self, state: State, count: int, *, queue: str | None = None, skip: int = 0) -> list[Message]:
        """Messages in ``state`` of ``queue``, or of all queues, after the first ``skip``; ``count`` at most. Ended ones
        come newest first, reserved ones by the end of their reservation, others in their order."""
        found: list[tuple[float, str, bytes]] = []
        for name in [queue] if queue else readable_queues(self._wire, self._keys):
            found += [(at, name, each) for at, each in self._entries(name, state, count, skip)]
        if state is not State.READY:  # ranks of ready messages compare only within a queue
            found.sort(key=lambda entry: entry[0], reverse=state.has_ended)
        return self._in_order(found[:count], state)

    def completions(self, queue: str, since: int) -> Completions:
        """What ``queue`` completed from ``since`` on, in epoch ms, by samples."""
        length = self._wire.command("LLEN", self._keys.queue(queue, "completed"))
        rows = self._completed(queue, _spread(0, length))
        before = [position for position, row in rows.items() if ended_at(row) < since]
        if before:
            rows = self._completed(queue, _spread(max(before) + 1, length))
        held = sorted((position, row) for position, row in rows.items() if ended_at(row) >= since)
        return Completions(
            instants=[ended_at(row) for _, row in held],
            counts=[position + 1 for position, _ in held],
            samples=[read_row(row).timestamps for _, row in held],
        )

    def next_recurrences(self, count: int) -> dict[str, Sequence[bytes]]:
        """The names of the ``count`` recurrences with the next instants, by queue."""
        queues = readable_queues(self._wire, self._keys)
        asked = [("ZRANGE", self._keys.queue(name, "next_instants"), 0, count - 1, "WITHSCORES") for name in queues]
        found = []
        for queue, answer in zip(queues, self._wire.all(asked) if asked else [], strict=True):
            found += [(float(at), queue, name) for name, at in zip(answer[::2], answer[1::2], strict=True)]
        names: dict[str, list[bytes]] = {}
        for _, queue, name in sorted(found)[:count]:
            names.setdefault(queue, []).append(name)
        return {**names}

    def durations(self) -> dict[str, Histogram]:
        """Handling durations of all messages, by handler."""
        stored = self._wire.command("HGETALL", self._keys.control("histograms"))
        found = {id_text(name): read_histogram(text) for name, text in zip(stored[::2], stored[1::2], strict=True)}
        return {name: histogram for name, histogram in sorted(found.items()) if name and histogram}

    def _entries(self, queue: str, state: State, count: int, skip: int) -> list[tuple[float, bytes]]:
        """The ids of ``queue`` in ``state``, each with the number that orders it among ids of other queues."""
        keys = INDEXES[state]
        lengths = [skip + count]
        if len(keys) > 1:
            cards = {"list": "LLEN", "zset": "ZCARD"}
            lengths = self._wire.all([(cards[QUEUE_KEYS[key].type], self._keys.queue(queue, key)) for key in keys])
        entries: list[tuple[float, bytes]] = []
        for key, length in zip(keys, lengths, strict=True):
            if skip < length and len(entries) < count:
                entries += self._range(queue, key, skip, count - len(entries), newest_first=state.has_ended)
            skip = max(0, skip - length)
        return entries

    def _range(self, queue: str, key: str, skip: int, count: int, *, newest_first: bool) -> list[tuple[float, bytes]]:
        first, last = (-skip - count, -skip - 1) if newest_first else (skip, skip + count - 1)
        stored = self._keys.queue(queue, key)
        if QUEUE_KEYS[key].type == "zset":
            answer = self._wire.command("ZRANGE", stored, first, last, "WITHSCORES")
            found = [(float(score), id_in(key, each)) for each, score in zip(answer[::2], answer[1::2], strict=True)]
        else:
            answer = self._wire.command("LRANGE", stored, first, last)
            ids = [id_in(key, each) for each in answer]
            rows = self._rows(queue, ids) if key in FINISHED else [None] * len(ids)
            found = [(ended_at(row) if row else 0.0, each) for row, each in zip(rows, ids, strict=True)]
        return found[::-1] if newest_first else found

    def _in_order(self, entries: Sequence[tuple[float, str, bytes]], state: State) -> list[Message]:
        """The messages of ``entries`` that are still in ``state``."""
        found: dict[tuple[str, str], Message] = {}
        for queue in {queue for _, queue, _ in entries}:
            ids = [each for _, of, each in entries if of == queue]
            found |= {(queue, message.id): message for message in self._inspector.those(queue, ids)}
        ordered = dict.fromkeys((queue, id_text(each)) for _, queue, each in entries)
        return [found[name] for name in ordered if name in found and found[name].state is state]

    def _completed(self, queue: str, positions: Sequence[int]) -> dict[int, bytes]:
        """The rows of the messages completed there, by position; without those forgotten meanwhile."""
        key = self._keys.queue(queue, "completed")
        answers = self._wire.all([("LRANGE", key, at, at) for at in positions]) if positions else []
        ids = {at: answer[0] for at, answer in zip(positions, answers, strict=True) if answer}
        return {at: row for at, row in zip(ids, self._rows(queue, [*ids.values()]), strict=True) if row}

    def _rows(self, queue: str, ids: Sequence[bytes]) -> list[bytes | None]:
        rows: list[bytes | None] = self._wire.command("HMGET", self._keys.queue(queue, "rows"), *ids) if ids else []
        return rows


def _spread(first: int, end: int) -> list[int]:
    """At most SAMPLE positions from ``first`` to ``end``, the last one included."""
    count = min(SAMPLE, end - first)
    return [end - 1 - (end - first) * number // count for number in range(count)]
