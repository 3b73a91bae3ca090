"""Messages as people see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from pollconsumer.core.lifecycle import State, Timestamps, durations_of, state_of
from pollconsumer.core.message import Malformed, decode_payload
from pollconsumer.core.message_options import decoded
from pollconsumer.core.notation import strict_json
from pollconsumer.core.progress import Progress
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.reading.ledger import InHand, in_hand_of
from pollconsumer.store.records import rows
from pollconsumer.store.records.id_text import id_text
from pollconsumer.store.records.reports import read_progress

RAW_BYTES = 2000
_PARTS = ("rows", "records", "errors", "results", "progress", "stops")


class Message(NamedTuple):
    """``payload`` is None if it is malformed, of a newer version, or was dropped with a finished message."""

    id: str
    queue: str
    row: rows.Row
    payload: dict[str, Any] | None
    last_error: str | None
    raw: str | None = None
    """The stored bytes of a malformed payload."""
    traceback: str | None = None
    result: Any = None
    headers: Mapping[str, str] = MappingProxyType({})
    progress: Progress | None = None
    expires_at: int | None = None
    """In epoch ms; None for never, or if its large record was dropped."""
    stop_asked_at: int | None = None
    """When a person asked for its end while it was in hand, in epoch ms of the server's clock."""
    found: State | None = None
    """The index in which it was found, if its row does not say: it is of a newer version, or nothing is stored of
    it."""

    @property
    def handler(self) -> str:
        return self.row.handler

    @property
    def attempts(self) -> int:
        """So far, including one in progress."""
        return self.row.attempts

    @property
    def priority(self) -> int:
        return self.row.priority

    @property
    def generation(self) -> int:
        """The number of redrives."""
        return self.row.generation

    @property
    def timestamps(self) -> Timestamps:
        return self.row.timestamps

    @property
    def state(self) -> State:
        return self.found or state_of(self.row.timestamps)

    @property
    def durations(self) -> dict[str, float | None]:
        return durations_of(self.row.timestamps)


def read_messages(
    wire: Wire, keys: Keys, queue: str, ids: Sequence[bytes], index: State | None = None
) -> Iterator[Message]:
    """Those of ``ids`` that the queue knows; with ``index``, where they were found, also ids without row and
    record, except in the ready list, where the next step drops them."""
    if not ids:
        return
    found = wire.all([("HMGET", keys.queue(queue, name), *ids) for name in _PARTS])
    begun: InHand | None = None
    for stored_id, row, record, error, result, reported, stop in zip(ids, *found, strict=True):
        message_id = id_text(stored_id)
        if record is None and row is None:
            if index in (None, State.READY):
                continue
            yield Message(message_id, queue, rows.read_row(rows.BLANK), None, "nothing is stored of it", found=index)
            continue
        if record is not None and rows.is_newer(record):
            yield _newer(wire, keys, queue, stored_id, row or rows.BLANK, index)
            continue
        sent = _Sent() if record is None else _sent(record)
        read = rows.read_row(row, record) if row is not None else rows.read_record(record)
        times = read.timestamps
        if row is not None and times.started_at is None and state_of(times) is State.RESERVED:
            begun = in_hand_of(wire, keys) if begun is None else begun
            started = begun.get((queue, message_id, rows.fence(row)))
            read = read._replace(timestamps=times._replace(started_at=started))
        problem, _, traced = error.decode("utf-8", "replace").partition(rows.TRACE_FOLLOWS) if error else ("", "", "")
        if sent.newer and not problem and not state_of(read.timestamps).has_ended:
            problem = rows.WRITTEN_BY_NEWER
        said, found = (problem or None, sent.raw, traced or None), _read_result(result)
        asked_at = None if stop is None else int.from_bytes(stop, "big")
        told = read_progress(reported), sent.expires_at, asked_at
        yield Message(message_id, queue, read, sent.payload, *said, found, sent.headers, *told)


class _Sent(NamedTuple):
    """What a record has; ``raw`` is shown of what is malformed. ``newer``: it has options of a later version."""

    payload: Any = None
    headers: Mapping[str, str] = MappingProxyType({})
    expires_at: int | None = None
    newer: bool = False
    raw: str | None = None


def _sent(record: bytes) -> _Sent:
    _, stored, options, expires = rows.content(record)
    sent = _Sent(expires_at=expires or None)
    try:
        known, newer = decoded(options)
        sent = sent._replace(headers=known.headers, newer=newer)
        return sent._replace(payload=decode_payload(stored))
    except Malformed:
        return sent._replace(raw=repr((options + stored)[:RAW_BYTES]))


def _newer(wire: Wire, keys: Keys, queue: str, stored_id: bytes, row: bytes, index: State | None) -> Message:
    """A message of which only the row is readable, if any. While it is set aside, its row is out of date."""
    read = rows.read_row(row)
    found = state_of(read.timestamps)
    if found in (State.SCHEDULED, State.READY):
        aside = wire.command("ZSCORE", keys.queue(queue, "schedule"), stored_id) is not None
        found = index or (State.SCHEDULED if aside else State.READY)
    return Message(id_text(stored_id), queue, read, None, rows.WRITTEN_BY_NEWER, found=found)


def _read_result(stored: bytes | None) -> Any:
    """A result; None if it is corrupt."""
    try:
        return None if stored is None else strict_json.parse(stored)
    except ValueError:
        return None
