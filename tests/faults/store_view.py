"""How the store ended: every message, the indexes that hold it, the counts, and what a drained queue still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.core.lifecycle import State
from pollconsumer.store.keyspace import FINISHED, QUEUE_KEYS, Keys
from pollconsumer.store.reading.batch_reader import PER_CHUNK, BatchReader
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.records.rows import CRASHES, fence
from pollconsumer.store.recurrences import RecurrenceReader
from tests.faults.history import Counted, Lease, Queue, Recurred, Stored
from tests.faults.recording import digest
from tests.store.servers import snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pollconsumer.store.client.wire import Wire
    from pollconsumer.store.reading.messages import Message

INDEXES = ("schedule", "ready", "ready_by_priority", "in_flight", "dead_letters", *FINISHED)
"""Keys that hold ids."""
EMPTY_WHEN_DRAINED = (
    "ready",
    "ready_by_priority",
    "schedule",
    "in_flight",
    "parked",
    "ready_marker",
    "waiting_for_place",
    "places_taken",
    "unique_keys",
    "outbox",
)
"""Of a queue that has been drained: nothing ready, scheduled, in flight, parked, in line, unique, or to be sent."""
MOST = 10**9
CLOSED = 1
"""A batch's flag."""


def stored(wire: Wire, namespace: str) -> list[Stored]:
    inspector, keys = Inspector(wire, namespace), Keys(namespace)
    found = []
    for queue in inspector.queues():
        places = _places(wire, keys, queue)
        ids = {name.decode() for name in wire.command("HKEYS", keys.queue(queue, "rows"))}
        ids |= {name.decode() for name in wire.command("HKEYS", keys.queue(queue, "records"))}
        rows = _hash(wire, keys.queue(queue, "rows"))
        for name in sorted(ids | places.keys()):
            message = inspector.message(name, queue)
            found.append(_stored(message, rows.get(name, b""), places.get(name, [])))
    return found


def queues(wire: Wire, namespace: str) -> list[Queue]:
    keys, found = Keys(namespace), []
    content = snapshot(wire)
    for counts in Inspector(wire, namespace).overview().queues:
        leftovers = {
            f"{name} ({QUEUE_KEYS[name].type})": len(content[keys.queue(counts.name, name)])
            for name in EMPTY_WHEN_DRAINED
            if name != "ready_marker" and content.get(keys.queue(counts.name, name))
        }
        left_over = int(content.get(keys.queue(counts.name, "counters"), {}).get(b"left over", 0))
        if left_over:
            leftovers["counted as left over"] = left_over
        found.append(Queue(counts.name, {state.value: getattr(counts, state) for state in State}, leftovers))
    return found


def recurrences(wire: Wire, namespace: str) -> list[Recurred]:
    standing = RecurrenceReader(wire, namespace).statuses(lambda _: None)
    return [Recurred(each.name, each.enqueued, each.skipped) for each in standing]


def batches(wire: Wire, namespace: str) -> list[Counted]:
    keys, found = Keys(namespace), []
    for each in BatchReader(wire, namespace).batches():
        chunks = _hash(wire, keys.queue(each.queue, "batch_members"))
        codes = codes_of({chunk: held for chunk, held in chunks.items() if chunk.partition("\n")[0] == each.id})
        state = wire.command("HGET", keys.queue(each.queue, "batches"), each.id)
        counts = (each.total, each.completed, each.dead, each.cancelled, each.expired)
        found.append(Counted(each.id, each.queue, each.state, *counts, bool(state[0] & CLOSED), codes))
    return found


def codes_of(chunks: Mapping[str, bytes]) -> dict[int, int]:
    """The code of each member of a batch that has ended, by number."""
    return {
        int(chunk.partition("\n")[2]) * PER_CHUNK + number: code
        for chunk, held in chunks.items()
        for number in range(PER_CHUNK)
        if (code := held[number // 4] >> 2 * (number % 4) & 3)
    }


def leases(wire: Wire, namespace: str) -> list[Lease]:
    """From the ledger, the earliest first."""
    entries: list[dict[str, Any]] = Inspector(wire, namespace).launches(MOST)
    return [
        Lease(entry["lineage"], int(entry["fence"]), entry["acquired_ms"])
        for entry in reversed(entries)
        if "acquired_ms" in entry
    ]


def _stored(message: Message, row: bytes, places: list[str]) -> Stored:
    at = message.row.timestamps
    return Stored(
        id=message.id,
        queue=message.queue,
        handler=message.handler,
        state=message.state.value,
        attempts=message.attempts,
        generation=message.row.generation,
        crashes=row[CRASHES] if row else 0,
        fence=fence(row),
        scheduled_at=at.scheduled_at,
        reserved_at=at.reserved_at,
        ended_at=at.ended_at,
        digest=None if message.payload is None else digest(message.payload),
        last_error=message.last_error,
        places=tuple(places),
        result=message.result,
        due_at=at.due_at,
    )


def _places(wire: Wire, keys: Keys, queue: str) -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for name in INDEXES:
        command = "LRANGE" if QUEUE_KEYS[name].type == "list" else "ZRANGE"
        for entry in wire.command(command, keys.queue(queue, name), 0, -1):
            places.setdefault(entry.decode(), []).append(name)
    return places


def _hash(wire: Wire, key: str) -> dict[str, bytes]:
    found = wire.command("HGETALL", key)
    return {field.decode(): value for field, value in zip(found[::2], found[1::2], strict=True)}
