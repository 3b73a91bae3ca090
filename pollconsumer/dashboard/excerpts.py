"""Bounded reads for the dashboard: some messages of a state, a sample of the completed ones, and dead letters grouped
by error, without their payloads. This module itself writes nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pollconsumer.core.durations import Histogram
from pollconsumer.core.lifecycle import State, Timestamps
from pollconsumer.core.notation.digests import sha256
from pollconsumer.store.keyspace import FINISHED, QUEUE_KEYS
from pollconsumer.store.leases import read_histogram
from pollconsumer.store.reading.inspector import INDEXES, id_in
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.records import rows
from pollconsumer.store.records.rows import ended_at, id_bytes, id_text, read_row
from pollconsumer.store.server import instant_of, readable_queues
from pollconsumer.store.store import Store

SAMPLE = 120
"""Number of messages that are read to represent all that a queue completed in a period."""
AT_ONCE = 100
"""Number of dead letters that one step of `sweep` reads."""


class Completions(NamedTuple):
    """A sample of what a queue completed since an instant. For each sampled message: when it ended (epoch ms),
    ascending; its number among all completed messages; its timestamps."""

    instants: Sequence[int] = ()
    counts: Sequence[int] = ()
    samples: Sequence[Timestamps[int]] = ()

    def between(self, begin: float, end: float) -> float:
        """How many messages were completed from ``begin`` to ``end``, in epoch ms: an estimate by the samples."""
        return self._by(end) - self._by(begin) if self.instants else 0.0

    def _by(self, at: float) -> float:
        after = bisect_left(self.instants, at)
        if after == 0:
            return self.counts[0] - 1
        if after == len(self.instants):
            return self.counts[-1]
        (t0, t1), (n0, n1) = self.instants[after - 1 : after + 1], self.counts[after - 1 : after + 1]
        return n0 + (n1 - n0) * (at - t0) / max(1, t1 - t0)


class Wanted(NamedTuple):
    """A selection of dead letters that match each field given. ``error``: a digest, see `error_key_of`."""

    queue: str | None = None
    handler: str | None = None
    error: str | None = None


class Letter(NamedTuple):
    """A dead letter, without its payload. ``at``: when it died, in epoch ms."""

    queue: str
    id: str
    handler: str
    error: str
    at: int


class LetterGroup(NamedTuple):
    """Dead letters of one handler with the same error: their number, and the last one."""

    error_key: str
    number: int
    last: Letter


class Excerpts:
    def __init__(self, store: Store) -> None:
        self._wire, self._keys, self.inspector = store.wire, store.keys, store.inspector

    def messages(self, state: State, count: int, *, queue: str | None = None, skip: int = 0) -> list[Message]:
        """Messages in ``state``, at most ``count``, of ``queue`` or of all queues, after the first ``skip``. Ended ones
        come newest first, reserved ones by the end of their reservation, others in the order of their queue."""
        found: list[tuple[float, str, bytes]] = []
        for name in [queue] if queue else readable_queues(self._wire, self._keys):
            found += [(at, name, each) for at, each in self._entries(name, state, count, skip)]
        if state is not State.READY:  # ranks of ready messages compare only within a queue
            found.sort(key=lambda entry: entry[0], reverse=state.has_ended)
        return self._in_order(found[:count], state)

    def completions(self, queue: str, since: int) -> Completions:
        """What ``queue`` completed since the instant ``since`` (in epoch ms), by samples."""
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

    def queues(self, wanted: Wanted) -> list[str]:
        return [wanted.queue] if wanted.queue else readable_queues(self._wire, self._keys)

    def count_dead(self, queues: Sequence[str]) -> int:
        keys = [self._keys.queue(queue, "dead_letters") for queue in queues]
        return sum(self._wire.all([("ZCARD", key) for key in keys])) if keys else 0

    def last_dead(self, wanted: Wanted, count: int) -> list[Letter]:
        """The dead letters that match ``wanted`` among the last ``count``, newest first."""
        queues = self.queues(wanted)
        entries = [(at, queue, each) for queue in queues for at, each in self.entries(queue, -count, -1)]
        ids: dict[str, dict[bytes, int]] = {}
        for at, queue, each in sorted(entries, reverse=True)[:count]:
            ids.setdefault(queue, {})[each] = at
        found = [letter for queue, its_ids in ids.items() for letter in self.those(queue, its_ids, wanted)]
        return sorted(found, key=lambda letter: letter.at, reverse=True)

    def entries(self, queue: str, first: int, last: int) -> list[tuple[int, bytes]]:
        """The ids of dead letters from position ``first`` to ``last``, oldest first, each after its time of death."""
        found = self._wire.command("ZRANGE", self._keys.queue(queue, "dead_letters"), first, last, "WITHSCORES")
        return [(instant_of(at), each) for each, at in zip(found[::2], found[1::2], strict=True)]

    def those(self, queue: str, ids: dict[bytes, int], wanted: Wanted) -> list[Letter]:
        """The dead letters that match ``wanted`` among ``ids`` (id → instant of death)."""
        if not ids:
            return []
        held, errors = self._wire.all([("HMGET", self._keys.queue(queue, key), *ids) for key in ("rows", "errors")])
        bare = [each for each, row in zip(ids, held, strict=True) if not row]
        handlers = {id_bytes(each.id): each.handler for each in self.inspector.those(queue, bare, State.DEAD)}
        found = []
        for (each, at), row, error in zip(ids.items(), held, errors, strict=True):
            handler = rows.read_row(row).handler if row else handlers.get(each, "")
            error_text = (error or b"").decode("utf-8", "replace").partition(rows.TRACE_FOLLOWS)[0]
            if wanted.handler in (None, handler) and wanted.error in (None, error_key_of(error_text)):
                found.append(Letter(queue, id_text(each), handler, error_text, at))
        return found

    def _entries(self, queue: str, state: State, count: int, skip: int) -> list[tuple[float, bytes]]:
        """The ids of ``queue`` in ``state``, each with a number by which ids of several queues are sorted."""
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
            found |= {(queue, message.id): message for message in self.inspector.those(queue, ids)}
        ordered = dict.fromkeys((queue, id_text(each)) for _, queue, each in entries)
        return [found[name] for name in ordered if name in found and found[name].state is state]

    def _completed(self, queue: str, positions: Sequence[int]) -> dict[int, bytes]:
        """Position → row of the message completed there, for those of ``positions`` that are still stored."""
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


def sweep(
    excerpts: Excerpts, wanted: Wanted, act: Callable[[str, list[str]], list[str]]
) -> Iterator[tuple[int, int, bool]]:
    """Call ``act`` for all dead letters that match ``wanted``, queue by queue, in steps, oldest first. Letters that die
    after the sweep has begun are left out. ``act`` takes a queue and ids, and returns the ids that it has acted on.
    Each step yields how many letters were acted on so far, how many matching ones were not, and if more may come."""
    queues, until, done, left = excerpts.queues(wanted), excerpts.inspector.now(), 0, 0
    for queue in queues:
        first, more = 0, True
        while more:
            entries = excerpts.entries(queue, first, first + AT_ONCE - 1)
            ids = {each: at for at, each in entries if at <= until}
            asked = [letter.id for letter in excerpts.those(queue, ids, wanted)]
            acted = len(act(queue, asked))
            done, left = done + acted, left + len(asked) - acted
            first += len(ids) - acted  # letters that were acted on are gone from the list
            more = len(ids) >= AT_ONCE
            yield done, left, more or queue != queues[-1]
    if not queues:
        yield 0, 0, False


def groups_of(letters: Sequence[Letter]) -> list[LetterGroup]:
    """The groups of ``letters``, which are sorted newest first. The largest group comes first."""
    found: dict[tuple[str, str], LetterGroup] = {}
    for letter in letters:
        known = found.get((letter.handler, letter.error)) or LetterGroup(error_key_of(letter.error), 0, letter)
        found[letter.handler, letter.error] = known._replace(number=known.number + 1)
    return sorted(found.values(), key=lambda group: group.number, reverse=True)


def error_key_of(error: str) -> str:
    """A digest that stands for an error's text in addresses and forms."""
    return sha256(error.encode("utf-8", "replace"))[:16]
