"""Reads for `status`, `list`, `launches`, `lease` and the dashboard, and selections of messages by their properties.
Nothing here writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from pollconsumer.core.errors import NotFound, UsageError
from pollconsumer.core.lifecycle import State, state_of
from pollconsumer.core.messages.continuation import not_there
from pollconsumer.core.messages.message import DIGESTED_BYTES, SCOPED_BY, digested_key, scoped_key
from pollconsumer.core.messages.message_steps import Recorded
from pollconsumer.core.messages.payloads import Malformed, decode_payload
from pollconsumer.store import server
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import QUEUE_KEYS, Keys
from pollconsumer.store.reading.batch_reader import BatchReader
from pollconsumer.store.reading.ledger import (
    InFlightSince,
    Totals,
    in_flight_of,
    launches_of,
    totals_of,
    working_leases_of,
)
from pollconsumer.store.reading.messages import Message, read_messages
from pollconsumer.store.records.rows import fence as fence_of
from pollconsumer.store.records.rows import id_bytes, id_text, read_row
from pollconsumer.store.records.steps import read_recorded

PAGE = 500
HEADS = 10
"""Number of a queue's first entries that are searched for the oldest ready message. Some may be cancelled."""
SEARCHED = 20 * PAGE
"""Number of entries that are searched if none of the first `HEADS` is ready."""
INDEXES: dict[State, list[str]] = {
    State.SCHEDULED: ["schedule"],
    State.READY: ["ready_by_priority", "ready", "waiting_for_place"],
    State.RESERVED: ["in_flight"],
    State.COMPLETED: ["completed"],
    State.DEAD: ["dead_letters"],
    State.CANCELLED: ["cancelled"],
    State.EXPIRED: ["expired"],
}
EVERY = 10**9
"""A limit that no number of messages reaches."""
Chosen = Sequence[tuple[str, str]]
"""Queue and id of each message."""


class QueueCounts(NamedTuple):
    """The numbers of a queue's messages by state. ``started``: reserved messages that a heartbeat has seen in flight
    twice, 0.4 seconds apart."""

    name: str
    ready: int
    reserved: int
    started: int
    scheduled: int
    completed: int
    dead: int
    cancelled: int
    expired: int
    parked: int
    paused: bool
    resumes_in_seconds: float | None
    overdue: int
    skipped: int
    oldest_ready_seconds: float | None
    """Seconds for which the oldest ready message has waited. Messages that wait for others with their concurrency or
    order key are left out, since they are not sorted by time."""
    load: server.Load


class Overview(NamedTuple):
    """An overview of a store. ``now``: epoch ms of the server's clock. ``mover_seen_seconds_ago``: 0 while a mover
    holds the lease; None if there never was one."""

    now: int
    queues: list[QueueCounts]
    overdue: int
    mover_seen_seconds_ago: float | None
    leases: list[dict[str, Any]]
    unreachable: list[str]
    """Queues that are left out, since their cluster node is lost."""
    paused_handlers: dict[str, int]
    """Name → when it was paused, in epoch ms."""


class Inspector:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire = wire
        self._keys = Keys(namespace)

    def queues(self) -> list[str]:
        """All queues, except those whose cluster node is lost if the wire skips these."""
        return server.readable_queues(self._wire, self._keys)

    def now(self) -> int:
        """The server's clock, in epoch ms."""
        return server.now_ms(self._wire)

    def counts(self, queue: str) -> QueueCounts:
        """The numbers of ``queue``'s messages. NotFound if there is no such queue."""
        self._refuse_unknown(queue)
        return self._count(queue, self.now(), in_flight_of(self._wire, self._keys))

    def message(self, message_id: str, queue: str | None = None) -> Message:
        """The message with this id in ``queue``; if that is None, in any queue. NotFound if there is none.
        StoreUnreachable if only a lost cluster node may have it. UsageError if two queues have one."""
        having = self._having(message_id) if queue is None else [queue]
        if len(having) > 1:
            raise UsageError("message id", message_id, f"queues {' and '.join(having)} have one each: give --queue")
        for name in having:
            for message in read_messages(self._wire, self._keys, name, [id_bytes(message_id)], with_log=True):
                self._wire.unread.clear()  # forget which queues earlier calls could not read
                return message
        if self._wire.unread:
            raise server.unreachable(self._wire.unread)
        if queue is None:
            raise not_there(message_id)
        raise not_there(message_id, f"queue {queue} has no message with this id")

    def with_id(self, message_id: str) -> list[Message]:
        """The messages with this id, from all queues."""
        stored = [id_bytes(message_id)]
        return [message for name in self._having(message_id) for message in self.those(name, stored)]

    def _having(self, message_id: str) -> list[str]:
        """The queues that have a message with this id."""
        queues, stored = self.queues(), id_bytes(message_id)
        commands = [("HEXISTS", self._keys.queue(name, key), stored) for name in queues for key in ("rows", "records")]
        held = self._wire.all(commands) if commands else []
        return [name for name, row, record in zip(queues, held[::2], held[1::2], strict=True) if row or record]

    def recorded(self, message: Message) -> tuple[dict[str, Any] | None, Recorded]:
        """A message's last checkpoint, which may be large; None if there is none, or it is corrupt. And its steps and
        signals."""
        key = self._keys.queue(message.queue, "checkpoints")
        stored, recorded = read_recorded(self._wire, key, id_bytes(message.id))
        try:
            checkpoint = None if stored is None else decode_payload(stored)
        except Malformed:
            checkpoint = None
        return checkpoint, recorded or Recorded()

    def overview(self) -> Overview:
        control = self._keys.control
        now = server.now_ms(self._wire)
        in_flight = in_flight_of(self._wire, self._keys)
        queues = [self._count(queue, now, in_flight) for queue in self.queues()]
        leases = self.leases()
        seen = self._wire.command("HGET", control("seen"), "mover")
        held = any(lease["role"] == "mover" for lease in leases)
        ago = 0.0 if held else None
        if not held and seen is not None and seen.isdigit():  # else the field is corrupt
            ago = max(0, now - int(seen)) / 1000
        overdue, unread = sum(queue.overdue for queue in queues), sorted(self._wire.unread)
        return Overview(now, queues, overdue, ago, leases, unread, self.paused_handlers())

    def paused_handlers(self) -> dict[str, int]:
        """When each paused handler was paused, in epoch ms, by name."""
        fields = self._wire.command("HGETALL", self._keys.control("paused_handlers"))
        paused = zip(fields[::2], fields[1::2], strict=True)
        return {id_text(name): int(since) if since.isdigit() else 0 for name, since in sorted(paused)}

    def messages(self, state: State | None, queue: str | None, limit: int) -> Iterator[Message]:
        """The messages of ``queue`` (None: of all) in ``state`` (None: any), ``limit`` at most, read in pages.
        Scheduled ones are sorted by due time, ended ones by their end. NotFound if there is no such queue."""
        if queue is not None:
            self._refuse_unknown(queue)
        left = limit
        for name in [queue] if queue else self.queues():
            for index in INDEXES if state is None else [state]:
                for key, page in self._ids(name, index):
                    for message in self.those(name, page, index):
                        # A message that is offered a place is in the ready list and still in the line for places.
                        if message.state is not index or message.row.waiting != (key == "waiting_for_place"):
                            continue
                        if left == 0:
                            return
                        left -= 1
                        yield message

    def those(self, queue: str, ids: Sequence[bytes], index: State | None = None) -> Iterator[Message]:
        """The messages with these stored ids: see `read_messages`."""
        return read_messages(self._wire, self._keys, queue, ids, index)

    def launches(self, limit: int, of_each: int = 0) -> list[dict[str, Any]]:
        return launches_of(self._wire, self._keys, limit, of_each)

    def totals(self) -> Totals:
        """The totals of all launches."""
        return totals_of(self._wire, self._keys)

    def batches(self) -> dict[str, Counter[str]]:
        """By queue, the number of batches in each state: see `BatchReader.states`."""
        return BatchReader(self._wire, self._keys.namespace).states(self.queues())

    def leases(self) -> list[dict[str, Any]]:
        return working_leases_of(self._wire, self._keys)

    def _refuse_unknown(self, queue: str) -> None:
        if queue not in (known := server.known_queues(self._wire, self._keys)):
            raise NotFound("no such queue", queue, f"queues are: {', '.join(known) or 'none yet'}")

    def _count(self, queue: str, now: int, in_flight: InFlightSince) -> QueueCounts:
        key = self._keys.queue
        commands: dict[str, tuple[Any, ...]] = {
            "ready": ("LLEN", key(queue, "ready")),
            "duplicates": ("HGET", key(queue, "counters"), "left over"),
            "ranked": ("ZCARD", key(queue, "ready_by_priority")),
            "in_line": ("ZCARD", key(queue, "waiting_for_place")),
            "reserved": ("ZCARD", key(queue, "in_flight")),
            "scheduled": ("ZCARD", key(queue, "schedule")),
            "completed": ("LLEN", key(queue, "completed")),
            "dead": ("ZCARD", key(queue, "dead_letters")),
            "cancelled": ("LLEN", key(queue, "cancelled")),
            "expired": ("LLEN", key(queue, "expired")),
            "parked": ("SCARD", key(queue, "parked")),
            "paused": ("GET", key(queue, "paused")),
            "overdue": ("ZCOUNT", key(queue, "schedule"), "-inf", now * 1000),
            "skipped": ("HGET", key(queue, "counters"), "skipped"),
            "heads": ("LRANGE", key(queue, "ready"), 0, HEADS - 1),
            "ranked_heads": ("ZRANGE", key(queue, "ready_by_priority"), 0, 0),
        }
        found = dict(zip(commands, self._wire.all([*commands.values()]), strict=True))
        first = self.those(queue, [*found["heads"], *found["ranked_heads"]])
        ages = [m.row.timestamps.enqueued_at for m in first if m.state is State.READY]
        left_over = server.count_of(found["duplicates"])
        if len(ages) <= len(found["ranked_heads"]) and found["ready"] > left_over > 0:
            ages.append(self._ready_behind(queue, left_over))
        since = [at for at in ages if at is not None]
        _, _, until = (found["paused"] or b"").partition(b" ")
        as_found = ("reserved", "scheduled", "completed", "dead", "cancelled", "expired", "parked", "overdue")
        return QueueCounts(
            name=queue,
            ready=max(0, found["ready"] - left_over + found["ranked"] + found["in_line"]),
            **{name: found[name] for name in as_found},
            started=self._started(queue, in_flight),
            paused=found["paused"] is not None,
            resumes_in_seconds=max(0, int(until) - now) / 1000 if until.isdigit() else None,
            skipped=server.count_of(found["skipped"]),
            oldest_ready_seconds=max(0, now - min(since)) / 1000 if since else None,
            load=server.load_of(self._wire, self._keys, queue, now),
        )

    def _started(self, queue: str, in_flight: InFlightSince) -> int:
        """How many of the messages that heartbeats have reported as taking long are still in flight."""
        named = {id_bytes(name): fence for of, name, fence in in_flight if of == queue}
        found = self._wire.command("HMGET", self._keys.queue(queue, "rows"), *named) if named else []
        held = [(row, fence) for row, fence in zip(found, named.values(), strict=True) if row is not None]
        return sum(
            fence_of(row) == fence and state_of(read_row(row).timestamps) is State.RESERVED for row, fence in held
        )

    def _ready_behind(self, queue: str, left_over: int) -> int | None:
        """When the first message after the ``left_over`` first ids of the ready list became ready, in epoch ms; None if
        there is none. If none of the searched entries is ready, when the last of them became ready, a little too
        early."""
        key, before = self._keys.queue, None
        for first in range(0, min(left_over + 1, SEARCHED), PAGE):
            ids = self._wire.command("LRANGE", key(queue, "ready"), first, first + PAGE - 1)
            if not ids:
                return None
            found = self._wire.command("HMGET", key(queue, "rows"), *ids)
            recorded = self._wire.all([("HEXISTS", key(queue, "records"), each) for each in ids])
            for message_id, row, has_record in zip(ids, found, recorded, strict=True):
                if row is not None:
                    before = read_row(row).timestamps.enqueued_at or before
                if has_record and (row is None or state_of(read_row(row).timestamps) is State.READY):
                    return next((each.row.timestamps.enqueued_at for each in self.those(queue, [message_id])), None)
        return before

    def _ids(self, queue: str, state: State) -> Iterator[tuple[str, list[bytes]]]:
        """The ids of all messages in a state, in pages, each with its key. Ids that move may be missed or repeated."""
        for name in INDEXES[state]:
            first, command = 0, "LRANGE" if QUEUE_KEYS[name].type == "list" else "ZRANGE"
            while True:
                entries = self._wire.command(command, self._keys.queue(queue, name), first, first + PAGE - 1)
                if not entries:
                    break
                yield name, [id_in(name, entry) for entry in entries]
                first += len(entries)


def id_in(key: str, entry: bytes) -> bytes:
    """The id in an entry of the list ``key``. A message's key and its position in line may precede it."""
    return entry[entry.find(b"\0") + 20 :] if key == "waiting_for_place" else entry


class Selection(NamedTuple):
    """A selection of messages: those that meet every field that is given. ``key``: they hold this unique key, of their
    handler or of their queue. ``recurrence``: they are its occurrences. ``older_than``: they have been in their state
    for at least so many seconds, by the server's clock. ``headers``: they have all of these."""

    state: State | None = None
    queue: str | None = None
    handler: str | None = None
    recurrence: str | None = None
    key: str | None = None
    older_than: float | None = None
    headers: Mapping[str, str] | None = None


class MessageSelector:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire, self._keys, self._inspector = wire, Keys(namespace), Inspector(wire, namespace)

    def messages(self, selection: Selection) -> Iterator[Message]:
        """The selected messages, queue by queue, state by state, in the order of `Inspector.messages`, read in pages.

        A message that changes its state meanwhile may be missed or repeated. NotFound if there is no such queue."""
        entered_by = None
        if selection.older_than is not None:
            entered_by = server.now_ms(self._wire) - selection.older_than * 1000
        if selection.key is None:
            found = self._inspector.messages(selection.state, selection.queue, EVERY)
        else:
            found = self._holders(selection.key, selection.handler, selection.queue)
        for message in found:
            if (
                selection.state in (None, message.state)
                and selection.handler in (None, message.handler)
                and selection.recurrence in (None, recurrence_of(message.id))
                and (entered_by is None or (entered_at(message) or 0) <= entered_by)
                and (not selection.headers or selection.headers.items() <= message.headers.items())
            ):
                yield message

    def _holders(self, key: str, handler: str | None, queue: str | None) -> Iterator[Message]:
        """The messages that hold the unique key ``key``. A queue has at most one for each handler, and one more whose
        key is shared by all handlers."""
        queues = server.readable_queues(self._wire, self._keys) if queue is None else [queue]
        for name in queues:
            unique_keys = self._keys.queue(name, "unique_keys")
            fields = [key.encode()]
            if handler is None:
                patterns = {f"*{SCOPED_BY}{server.literal(each)}" for each in (key, digested_key(key, DIGESTED_BYTES))}
                for pattern in patterns:
                    fields += chain.from_iterable(server.fields_like(self._wire, unique_keys, pattern))
            else:
                fields.append(scoped_key(handler, key).encode())
            holders = self._wire.command("HMGET", unique_keys, *fields)
            ids = [holder.partition(b"\n")[0] for holder in holders if holder is not None]
            found = self._inspector.those(name, list(dict.fromkeys(ids)))
            yield from (message for message in found if not message.state.has_ended)


def unreserved(selecting: MessageSelector, selection: Selection) -> Chosen:
    """The selected messages that are scheduled or ready; scheduled ones first, since they may become ready."""
    return _chosen(selecting, selection, (State.SCHEDULED, State.READY))


def dead_letters(selecting: MessageSelector, selection: Selection) -> Chosen:
    return _chosen(selecting, selection, (State.DEAD,))


def _chosen(selecting: MessageSelector, selection: Selection, states: Sequence[State]) -> Chosen:
    """The selected messages in ``states``, each once. All are read before the caller changes any, since changes move
    messages from page to page."""
    states = [state for state in states if selection.state in (None, state)]
    found = (each for state in states for each in selecting.messages(selection._replace(state=state)))
    return list(dict.fromkeys((message.queue, message.id) for message in found))


def recurrence_of(message_id: str) -> str | None:
    """The name of the recurrence in an occurrence's id. None for the id of another message."""
    name, _, instant = message_id.rpartition("@")
    return name if name and instant.endswith("Z") else None


def entered_at(message: Message) -> int | None:
    """When a message entered its state, in epoch ms; None if its row does not tell that."""
    times = message.row.timestamps
    return times.ended_at or times.reserved_at or times.enqueued_at or times.failed_at or times.scheduled_at
