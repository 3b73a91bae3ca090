"""Reads batches for people and programs: their counts, and their members, which are found by their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import islice
from typing import NamedTuple, TypeGuard

from pollconsumer.core import json_values
from pollconsumer.core.errors import NotFound
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.continuation import INNER
from pollconsumer.core.messages.message import check_handler, check_id, check_queue
from pollconsumer.core.notation.instants import datetime_of, moment_of
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.reading.messages import Message, by_queue, forgotten_message, read_messages
from pollconsumer.store.records.rows import id_bytes, id_text
from pollconsumer.store.server import readable_queues

CALLED = {"then": 4, "failed": 8, "ended": 2}
"""The callbacks of a batch; for each, the flag in the batch's state that it was enqueued."""
PER_CHUNK, FIRST_ADDED = 512, 1 << 20
"""Number of members in a field of ``batch_members``; and the number of the first member that another member adds. Both
as in ``lua/parts/batches.lua``."""
NUMBERS, STATE_BYTES, LAST_NUMBER = 9, 55, 10**8
"""How many numbers, and how many bytes, a batch's stored state has. And a number above those of all members."""
LOOKED_THROUGH = 100
"""Number of chunks that `some` searches at most."""
OUTSTANDING, COMPLETED, DEAD, OTHERWISE = range(4)
"""The codes of members in ``batch_members``."""
_FLAGS = {"abandoned": 16, "expired": 32, "ended": 2, "closed": 1}
"""The state of a batch is the first of these whose flag is set."""
MALFORMED = "malformed"
STATES = ("open", "closed", "ended", "abandoned", "expired", MALFORMED)
UNFINISHED = STATES[:2]
UNCLOSED = ("open", "abandoned")
WAITING = "waiting"
"""The state of a callback that may still be enqueued."""
MOST_DEAD = 10_000
"""Number of an ended batch's dead members that are read to see whether they were redriven."""
LOOKS = 3
"""How many times a batch is read, at most, if it changes while its dead members are read."""
COUNTED = 1000
"""Number of batches of a queue that are read from each end, to count their states."""
EARLIER = timedelta(hours=1)
"""A message that was enqueued longer than this before a batch was opened is no member of the batch, even if its id is
that of a member."""
_WANTED = {
    "completed": {COMPLETED},
    "results": {COMPLETED},
    "failed": {DEAD, OTHERWISE},
    "dead": {DEAD},
    "outstanding": {OUTSTANDING},
    "unended": {OUTSTANDING, DEAD},  # a redriven member counts as dead here until it ends again
    "ended": {COMPLETED, DEAD, OTHERWISE},
}


class BatchCallback(NamedTuple):
    """A callback of a batch. ``name``: ``then``, ``failed`` or ``ended``. ``state``: that of its message; ``waiting``
    before it is enqueued; None if it was never enqueued, or is not kept any more."""

    name: str
    handler: str
    message_id: str
    queue: str
    state: str | None


class BatchStatus(NamedTuple):
    """A batch. ``state``: open, closed, ended, abandoned, expired; or malformed if it is unreadable, with all numbers
    0. ``queue``: the batch's own, not its members'. ``total``: the number of members. Of an open batch, it counts only
    those that other members have added; of an abandoned one, at least those that have ended."""

    id: str
    queue: str
    state: str
    total: int
    completed: int
    dead: int
    cancelled: int
    expired: int
    created_at: datetime
    ended_at: datetime | None
    expires_at: datetime | None
    callbacks: tuple[BatchCallback, ...]

    @property
    def outstanding(self) -> int:
        """The number of members that have not ended, as far as ``total`` is known."""
        return max(0, self.total - _ended(self))


class BatchReader:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire, self._keys = wire, Keys(namespace)

    def batch(self, batch_id: str, batch_queue: str | None = None) -> BatchStatus:
        """The batch with this id in ``batch_queue``; if that is None, in any queue. NotFound if there is none."""
        for queue in readable_queues(self._wire, self._keys) if batch_queue is None else [batch_queue]:
            if (found := self._read(queue, [batch_id])) and found[0] is not None:
                return found[0]
        raise NotFound("no such batch", batch_id, "an ended batch is kept for two days")

    def status(self, batch_id: str, batch_queue: str | None = None) -> BatchStatus:
        """The batch, as `with_redriven` corrects it. NotFound if there is none."""
        return self.with_redriven(self.batch(batch_id, batch_queue))

    def with_redriven(self, batch: BatchStatus) -> BatchStatus:
        """The batch. If it had ended, and dead members were redriven and have not ended again, its state is ``closed``.
        It reads the first MOST_DEAD dead members."""
        for _ in range(LOOKS):
            if batch.state != "ended" or not batch.dead:
                return batch
            dead = islice(self._dead(batch), MOST_DEAD)
            again = sum(state != State.DEAD for state in dead)
            before, batch = batch, self.batch(batch.id, batch.queue)
            if batch == before:
                break
            again = max(again, 1)  # an end was counted between the two looks: the members go on to the end
        if not again:
            return batch
        waiting = [
            each._replace(state=each.state or WAITING) if each.name == "then" else each for each in batch.callbacks
        ]
        return batch._replace(state="closed", dead=batch.dead - again, ended_at=None, callbacks=tuple(waiting))

    def _dead(self, batch: BatchStatus) -> Iterator[str]:
        """The current states of the members that a batch counts as dead; ``closed`` for an inner batch that goes on."""
        at: int | None = 0
        while at is not None:
            chunk, (found, at) = at, self.page(batch, "dead", at)
            yield from (each.state for each in found)
            inner = map(self.with_redriven, self.inner(batch, "dead", chunk))
            yield from ("closed" if each.state == "closed" else State.DEAD for each in inner)

    def inner(self, batch: BatchStatus, which: str, chunk: int) -> list[BatchStatus]:
        """The members of a chunk that are batches themselves. ``which``: see `members`."""
        ids = [f"{batch.id}.{number}{INNER}" for number in self._numbers(batch.queue, batch.id, which, chunk)]
        return [each for each in self._read(batch.queue, ids) if each is not None]

    def batches(self) -> Iterator[BatchStatus]:
        """All batches, queue by queue."""
        for queue in readable_queues(self._wire, self._keys):
            stored = self._wire.command("ZRANGE", self._keys.queue(queue, "batch_instants"), 0, -1)
            for at in range(0, len(stored), 100):
                found = self._read(queue, [id_text(each) for each in stored[at : at + 100]])
                yield from (each for each in found if each is not None)

    def part(self, batch_queue: str, first: int, last: int) -> list[tuple[float, BatchStatus]]:
        """The batches of ``batch_queue`` at positions ``first`` to ``last`` (negative: from the end), sorted by the
        instant at which each is abandoned, expires or is deleted. Each comes after this instant, in epoch ms; infinite
        for none."""
        stored = self._wire.command(
            "ZRANGE", self._keys.queue(batch_queue, "batch_instants"), first, last, "WITHSCORES"
        )
        found = self._read(batch_queue, [id_text(each) for each in stored[::2]])
        return [(float(at), each) for at, each in zip(stored[1::2], found, strict=True) if each is not None]

    def counts(self, batch_queues: Sequence[str]) -> list[int]:
        """The number of batches in each of ``batch_queues``."""
        keys = [self._keys.queue(batch_queue, "batch_instants") for batch_queue in batch_queues]
        return [int(each) for each in self._wire.all([("ZCARD", key) for key in keys])] if keys else []

    def states(self, batch_queues: Sequence[str]) -> dict[str, Counter[str]]:
        """By queue, the number of batches in each state. Of each queue, the first and the last COUNTED batches are
        read. Queues without batches are left out."""
        return {
            batch_queue: self._states(batch_queue)
            for batch_queue, count in zip(batch_queues, self.counts(batch_queues), strict=True)
            if count
        }

    def _states(self, batch_queue: str) -> Counter[str]:
        instants = self._keys.queue(batch_queue, "batch_instants")
        first, last = self._wire.all([("ZRANGE", instants, 0, COUNTED - 1), ("ZRANGE", instants, -COUNTED, -1)])
        ids = {*first, *last}
        stored = self._wire.command("HMGET", self._keys.queue(batch_queue, "batches"), *ids) if ids else []
        return Counter(_state_of(each[0]) if _is_sound(each) else MALFORMED for each in stored if each is not None)

    def queues_ahead(self, batch: BatchStatus, most: int) -> list[str]:
        """The queues of some members that have not ended: of at most ``most``, from the first and the last chunk."""
        last = min(max(0, batch.total - 1), FIRST_ADDED - 1) // PER_CHUNK
        chunks = [self._numbers(batch.queue, batch.id, "outstanding", chunk) for chunk in sorted({0, last})]
        numbers = [number for chunk in chunks for number in chunk[: most // len(chunks)]]
        return [*dict.fromkeys(message.queue for message in self._find([f"{batch.id}.{each}" for each in numbers]))]

    def members(self, batch: BatchStatus, which: str | None = None) -> Iterator[Message]:
        """The members of a batch, sorted by number. ``which``: None for all; ``completed``, ``failed`` or ``dead``:
        those that the batch counts as such; ``unended``: those that it counts as not ended, or as dead, since these may
        be redriven; ``results``: the completed ones, including members that were deleted, of which only the result is
        kept. Others that were deleted are left out. A chain is represented by its latest link."""
        at: int | None = 0
        while at is not None:
            found, at = self.page(batch, which, at)
            yield from found

    def page(self, batch: BatchStatus, which: str | None, chunk: int) -> tuple[list[Message], int | None]:
        """The members of a chunk, and the number of the next chunk; None after the last. ``which``: see `members`."""
        numbers = self._numbers(batch.queue, batch.id, which, chunk)
        found = self._find([f"{batch.id}.{number}" for number in numbers], results=which == "results")
        # A batch that was not closed has no known end: go on past every member that exists, or has ended.
        is_past = batch.state in UNCLOSED and bool(found or self.ended(batch.queue, batch.id, chunk))
        is_open = is_past or (batch.state == "open" and which not in (None, "unended"))
        return found, self._next_chunk(batch, chunk, is_open=is_open)

    def some(self, batch: BatchStatus, which: str, first: int, count: int) -> tuple[list[Message], int | None]:
        """The members from number ``first`` on, at most ``count``, and the number from which to go on; None after the
        last. It searches LOOKED_THROUGH chunks at most."""
        numbers, chunk, after = list[int](), first // PER_CHUNK, None
        for _ in range(LOOKED_THROUGH):
            numbers += [number for number in self._numbers(batch.queue, batch.id, which, chunk) if number >= first]
            is_open = batch.state == "open" or (batch.state == "abandoned" and bool(numbers))
            following = self._next_chunk(batch, chunk, is_open=is_open)
            if len(numbers) > count or following is None:
                after = numbers[count] if len(numbers) > count else None
                break
            chunk, after = following, following * PER_CHUNK
        return self._find([f"{batch.id}.{number}" for number in numbers[:count]]), after

    def ended(self, batch_queue: str, batch: str, chunk: int) -> frozenset[int]:
        """The numbers of the members of a chunk that have ended."""
        return frozenset(self._numbers(batch_queue, batch, "ended", chunk))

    def others(self, batch_queue: str, batch_id: str, sent: Sequence[tuple[str, str]]) -> list[str]:
        """The ids of members in ``sent`` (pairs of queue and id) that were not enqueued, because a message outside this
        batch has the id. The queue keeps that message, or remembers its id."""
        batch = self._counted(batch_queue, batch_id)
        if batch is None:
            return []
        members = {
            message.id: _may_be_of(batch, message)
            for queue, ids in by_queue(sent).items()
            for message in self._sent_to(queue, ids)
        }
        ended = cache(partial(self.ended, batch_queue, batch_id))

        def has_ended(message_id: str) -> bool:
            number = int(message_id.rpartition(".")[2])
            return number in ended(number // PER_CHUNK)

        return [each for _, each in sent if not (members[each] if each in members else has_ended(each))]

    def at_least(self, batch_queue: str, batch_id: str, count: int) -> int:
        """How many members the producer has added at least. The producer knows of ``count``, but an earlier call may
        have added more: members that have ended, or the one with number ``count``, show that."""
        batch = self._counted(batch_queue, batch_id)
        if batch is None:
            return count
        queues, following = readable_queues(self._wire, self._keys), [f"{batch_id}.{count}"]
        is_kept = any(_may_be_of(batch, each) for queue in queues for each in self._sent_to(queue, following))
        is_kept = is_kept or self._counted(batch_queue, f"{batch_id}.{count}{INNER}") is not None
        has_next = is_kept or count in self.ended(batch_queue, batch_id, count // PER_CHUNK)
        return max(_ended(batch) - batch.total, count + has_next)

    def _next_chunk(self, batch: BatchStatus, chunk: int, *, is_open: bool) -> int | None:
        first_added = FIRST_ADDED // PER_CHUNK
        if chunk < first_added and (is_open or (chunk + 1) * PER_CHUNK < batch.total):
            return chunk + 1
        after = max(chunk + 1, first_added)
        state = self._wire.command("HGET", self._keys.queue(batch.queue, "batches"), batch.id)
        return after if _is_sound(state) and after * PER_CHUNK < _numbers_of(state)[-1] else None

    def _numbers(self, batch_queue: str, batch: str, which: str | None, chunk: int) -> list[int]:
        first = chunk * PER_CHUNK
        if which is None:
            return [*range(first, first + PER_CHUNK)]
        held = self._wire.command("HGET", self._keys.queue(batch_queue, "batch_members"), f"{batch}\n{chunk}") or b""
        codes = held.ljust(PER_CHUNK // 4, b"\0")
        return [first + n for n in range(PER_CHUNK) if codes[n // 4] >> 2 * (n % 4) & 3 in _WANTED[which]]

    def _find(self, ids: Sequence[str], *, results: bool = False) -> list[Message]:
        """The messages with these ids, in this order, in any queue; for a chain the latest link. ``results``: also
        deleted messages of which the result is kept."""
        found, left = dict[str, Message](), [*ids]
        queues = readable_queues(self._wire, self._keys)
        for queue in queues:
            for message in read_messages(self._wire, self._keys, queue, [id_bytes(each) for each in left]):
                found[message.id] = message
            left = [each for each in left if each not in found]
            if not left:
                break
        if results and left:
            fields = [id_bytes(each) for each in left]
            stored = self._wire.all([("HMGET", self._keys.queue(queue, "results"), *fields) for queue in queues])
            for queue, its_results in zip(queues, stored, strict=True):
                for each, result in zip(left, its_results, strict=True):
                    if result is not None:
                        found[each] = forgotten_message(queue, each, result)
        return [self._last_link(found[each]) for each in ids if each in found]

    def _last_link(self, message: Message) -> Message:
        base, link = message.id, 1
        while message.links and message.state is State.COMPLETED:
            link += 1
            after = self._find([f"{base}+{link}"])
            if not after:
                break
            message = after[0]
        return message

    def _sent_to(self, queue: str, ids: Sequence[str]) -> list[Message]:
        return [*read_messages(self._wire, self._keys, queue, list(map(id_bytes, ids)), for_producer=True)]

    def _counted(self, batch_queue: str, batch_id: str) -> BatchStatus | None:
        """The batch, without callbacks. None if there is none, or its state is malformed, as scripts see it."""
        state = self._wire.command("HGET", self._keys.queue(batch_queue, "batches"), batch_id)
        return _status(batch_queue, batch_id, state, [None] * len(CALLED)) if _is_sound(state) else None

    def _read(self, batch_queue: str, ids: Sequence[str]) -> list[BatchStatus | None]:
        fields = [f"{each}\n{name}" for each in ids for name in CALLED]
        if not ids:
            return []
        states, stored = self._wire.all(
            [
                ("HMGET", self._keys.queue(batch_queue, "batches"), *ids),
                ("HMGET", self._keys.queue(batch_queue, "batch_callbacks"), *fields),
            ]
        )
        found = [
            _status(batch_queue, each, state, stored[3 * at : 3 * at + 3])
            for at, (each, state) in enumerate(zip(ids, states, strict=True))
        ]
        flags = [state[0] if _is_sound(state) else 0 for state in states]
        enqueued = self._states_of(
            each
            for batch, known in zip(found, flags, strict=True)
            for each in (() if batch is None else batch.callbacks)
            if known & CALLED[each.name]
        )
        return [batch and batch._replace(callbacks=_with_states(batch, enqueued)) for batch in found]

    def _states_of(self, callbacks: Iterable[BatchCallback]) -> dict[str, str]:
        """By id, the states of the callbacks' messages that are kept."""
        return {
            message.id: str(message.state)
            for queue, ids in by_queue((each.queue, id_bytes(each.message_id)) for each in callbacks).items()
            if queue not in self._wire.unread
            for message in read_messages(self._wire, self._keys, queue, ids)
        }


def _may_be_of(batch: BatchStatus, message: Message) -> bool:
    """Whether ``message``, which has a member's id, is a member of ``batch``, and not of an earlier batch with the same
    id. Such a batch's message would be older by days, and clocks of a cluster's nodes differ by less than an hour."""
    sent = message.timestamps.scheduled_at
    if sent is not None and sent < batch.created_at - EARLIER:
        return False
    is_dropped = message.batch is None and message.payload is None  # its record was dropped, which would name its batch
    return is_dropped or message.batch == (batch.queue, batch.id)


def _ended(batch: BatchStatus) -> int:
    return batch.completed + batch.dead + batch.cancelled + batch.expired


def _status(batch_queue: str, batch_id: str, state: bytes | None, stored: Sequence[bytes | None]) -> BatchStatus | None:
    """The batch with the stored ``state`` and callbacks. None if ``state`` is None."""
    if state is None:
        return None
    is_how, numbers = MALFORMED, [0] * NUMBERS
    if _is_sound(state):
        is_how, numbers = _state_of(state[0]), _numbers_of(state)
    total, completed, dead, cancelled, expired, created, ended, expires, _ = numbers
    if is_how == "abandoned":  # its producer reported no total
        total = max(total, completed + dead + cancelled + expired)
    callbacks = tuple(
        BatchCallback(name, given["handler"], given["id"], given["queue"], None)
        for name, each in zip(CALLED, stored, strict=True)
        for given in _messages_in(each or b"[]")
    )
    instants = datetime_of(created), moment_of(ended or None), moment_of(expires or None)
    counts = (total, completed, dead, cancelled, expired)
    return BatchStatus(batch_id, batch_queue, is_how, *counts, *instants, callbacks)


def _is_sound(state: bytes | None) -> TypeGuard[bytes]:
    """Whether ``state`` is a valid state of a batch, by the rules of ``lua/parts/batches.lua``."""
    return state is not None and len(state) == STATE_BYTES and _numbers_of(state)[-1] <= LAST_NUMBER


def _messages_in(entry: bytes) -> list[dict[str, str]]:
    """The messages in the stored callback that have handler, id and queue; none if it is corrupt."""
    try:
        given = [each for each in json_values.parse(entry) if "ended" not in each]
        for each in given:
            check_handler(each["handler"]), check_id(each["id"]), check_queue(each["queue"])
    except (ValueError, TypeError, KeyError):
        return []
    return given


def _with_states(batch: BatchStatus, enqueued: Mapping[str, str]) -> tuple[BatchCallback, ...]:
    missing = WAITING if batch.state in UNFINISHED else None
    return tuple(each._replace(state=enqueued.get(each.message_id, missing)) for each in batch.callbacks)


def _numbers_of(state: bytes) -> list[int]:
    """The numbers in a batch's state. The last one is the next number for a member that members add."""
    return [int.from_bytes(state[at : at + 6], "big") for at in range(1, len(state), 6)]


def _state_of(flags: int) -> str:
    return next((word for word, flag in _FLAGS.items() if flags & flag), "open")
