"""Messages as people see them, read from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from pollconsumer.core import json_values
from pollconsumer.core.lifecycle import State, Timestamps, durations_of, state_of
from pollconsumer.core.messages import continuation as continuations
from pollconsumer.core.messages.message import CREATED_BY, decoded_options
from pollconsumer.core.messages.message_steps import AttemptLog, Progress
from pollconsumer.core.messages.payloads import Malformed, decode_payload
from pollconsumer.core.notation.instants import datetime_of, moment_of
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.reading.ledger import InFlightSince, in_flight_of
from pollconsumer.store.records import rows
from pollconsumer.store.records.rows import id_text
from pollconsumer.store.records.steps import read_log, read_progress

T = TypeVar("T")
RAW_BYTES = 2000


class Message(NamedTuple):
    """A message, with all that the store has of it. ``payload``: None if it is malformed, written by a newer version,
    or not kept any more."""

    id: str
    queue: str
    row: rows.Row
    payload: dict[str, Any] | None
    last_error: str | None
    raw: str | None = None
    """The options and the payload as stored, escaped, 2,000 bytes at most, if one of them is malformed; else None."""
    traceback: str | None = None
    result: Any = None
    headers: Mapping[str, str] = MappingProxyType({})
    progress: Progress | None = None
    expires_at: datetime | None = None
    """When the message expires; None if never, or if its record, a large one, was deleted."""
    stop_asked_at: datetime | None = None
    """When somebody asked to stop the message while it was in flight, by the server's clock; None if nobody did."""
    found: State | None = None
    """The state in whose list the message was found. Set only if the row does not tell the state: the row is missing,
    or a newer version wrote it."""
    links: int = 0
    """The number of links that follow the message in its chain."""
    order_key: str | None = None
    """The message's order key, or None. Messages of a queue with the same key are handled one by one."""
    waits_for: str | None = None
    """While the message is ready and waits for one with the same order key: the id of that one."""
    batch: tuple[str, str] | None = None
    """Queue and id of the message's batch: the message is a member or a callback. None without a batch, or if the
    message's record was deleted."""
    log: Sequence[AttemptLog] = ()
    """What each attempt has logged and printed, the earliest first. Only set if a single message was read."""

    @property
    def handler(self) -> str:
        """The name of the message's handler."""
        return self.row.handler

    @property
    def created_by(self) -> str | None:
        """Who created the message, as the option ``created_by`` said; None if it was not given."""
        return self.headers.get(CREATED_BY)

    @property
    def attempts(self) -> int:
        """The number of attempts, including the current one."""
        return self.row.attempts

    @property
    def priority(self) -> int:
        """A number; a smaller one comes first."""
        return self.row.priority

    @property
    def generation(self) -> int:
        """How often the message was redriven."""
        return self.row.generation

    @property
    def timestamps(self) -> Timestamps[datetime]:
        """When the message entered each phase, by the server's clock, or None: ``scheduled_at``, ``due_at``,
        ``enqueued_at``, ``reserved_at``, ``started_at``, ``completed_at``, ``failed_at``, ``next_attempt_at``,
        ``dead_at``, ``cancelled_at``, ``expired_at``. While it is in flight, ``started_at`` is when a heartbeat first
        saw the message, up to 0.4 s late."""
        return Timestamps(*map(moment_of, self.row.timestamps))

    @property
    def state(self) -> State:
        """The message's state, which follows from its timestamps."""
        return self.found or state_of(self.row.timestamps)

    @property
    def durations(self) -> dict[str, float | None]:
        """``waited_seconds`` and ``handled_seconds``; None if unknown."""
        return durations_of(self.row.timestamps)


def read_messages(
    wire: Wire,
    keys: Keys,
    queue: str,
    ids: Sequence[bytes],
    index: State | None = None,
    *,
    for_producer: bool = False,
    with_log: bool = False,
) -> Iterator[Message]:
    """The messages with these stored ``ids``. ``index``: the state in whose list the ids were found. With it, ids
    without row and record are included, too; but not those of the ready list, from which the next step drops them.
    ``for_producer``: use only a producer's rights, so leave out what launches report of messages in flight.
    ``with_log``: include `Message.log`."""
    if not ids:
        return
    names = _Parts._fields if with_log else _Parts._fields[:-1]
    found = wire.all([("HMGET", keys.queue(queue, name), *ids) for name in names])
    in_flight: Callable[[], InFlightSince] = dict if for_producer else cache(partial(in_flight_of, wire, keys))
    order_keys = sorted({rows.order_key(record) for record in found[1] if record is not None} - {b""})
    heads = dict[bytes, bytes | None]()
    if order_keys and not for_producer:
        heads = dict(zip(order_keys, wire.command("HMGET", keys.queue(queue, "order_heads"), *order_keys), strict=True))
    for stored_id, *each in zip(ids, *found, strict=True):
        parts = _Parts(*each)
        if parts.records is not None and rows.is_newer(parts.records):
            yield _newer(wire, keys, queue, stored_id, parts.rows or rows.BLANK, index)
        elif parts.records is not None or parts.rows is not None:
            yield _message(queue, id_text(stored_id), parts, in_flight, heads)
        elif index not in (None, State.READY):
            yield Message(
                id_text(stored_id), queue, rows.read_row(rows.BLANK), None, "nothing is stored of it", found=index
            )


def by_queue(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """The second parts of ``pairs``, such as ids, grouped by the first, the queue."""
    found: dict[str, list[T]] = {}
    for queue, each in pairs:
        found.setdefault(queue, []).append(each)
    return found


def forgotten_message(queue: str, message_id: str, result: bytes) -> Message:
    """A completed message that was deleted, of which only the result is kept."""
    row = rows.read_row(rows.BLANK)
    return Message(message_id, queue, row, None, None, result=_read_result(result), found=State.COMPLETED)


class _Parts(NamedTuple):
    """A message's stored values, each named as its key."""

    rows: bytes | None
    records: bytes | None
    errors: bytes | None
    results: bytes | None
    progress: bytes | None
    stops: bytes | None
    logs: bytes | None = None


def _message(
    queue: str,
    message_id: str,
    parts: _Parts,
    in_flight: Callable[[], InFlightSince],
    heads: Mapping[bytes, bytes | None],
) -> Message:
    sent = _Sent() if parts.records is None else _sent(parts.records)
    read = _row(queue, message_id, parts, in_flight)
    stored_error = (parts.errors or b"").decode("utf-8", "replace")
    problem, _, traceback = stored_error.partition(rows.TRACE_FOLLOWS)
    problem = _problem(problem, read, newer=sent.newer)
    order_key = b"" if parts.records is None else rows.order_key(parts.records)
    head = heads.get(order_key) if state_of(read.timestamps) is State.READY else None
    head_id = None if head is None else id_text(head)
    member = continuations.member_of(message_id) if sent.batch else None
    batch_id = member[0] if member else message_id.rpartition(":")[0]
    return Message(
        message_id,
        queue,
        read,
        sent.payload,
        last_error=problem or None,
        raw=sent.raw,
        traceback=traceback or None,
        result=_read_result(parts.results),
        headers=sent.headers,
        progress=read_progress(parts.progress),
        expires_at=sent.expires_at,
        stop_asked_at=None if parts.stops is None else datetime_of(int.from_bytes(parts.stops, "big")),
        links=sent.links,
        order_key=order_key.decode("utf-8", "replace") or None,
        waits_for=None if head_id == message_id else head_id,
        batch=(sent.batch, batch_id) if sent.batch else None,
        log=read_log(parts.logs),
    )


def _problem(stored: str, read: rows.Row, *, newer: bool) -> str:
    """What is shown of a message's stored problem."""
    at = read.timestamps
    if newer and not stored and not state_of(at).has_ended:
        return rows.WRITTEN_BY_NEWER
    if at.completed_at and not at.failed_at and not read.generation:
        return ""  # it never failed: this is why it was parked or deferred
    if at.completed_at and stored.startswith(rows.WHY_PARKED):
        return ""  # its last error was not kept when it was parked
    return stored


def _row(queue: str, message_id: str, parts: _Parts, in_flight: Callable[[], InFlightSince]) -> rows.Row:
    """The row of a message. While the message is in flight, ``started_at`` is the time that a heartbeat reported."""
    if parts.rows is None:
        return rows.read_record(parts.records or b"")
    read = rows.read_row(parts.rows, parts.records)
    times = read.timestamps
    if times.started_at is not None or state_of(times) is not State.RESERVED:
        return read
    began = in_flight().get((queue, message_id, rows.fence(parts.rows)))
    return read._replace(timestamps=times._replace(started_at=began))


class _Sent(NamedTuple):
    """The content of a record. ``raw``: bytes to show if it is malformed. ``newer``: it has options of a newer version.
    ``batch``: the queue of its batch."""

    payload: Any = None
    headers: Mapping[str, str] = MappingProxyType({})
    expires_at: datetime | None = None
    newer: bool = False
    raw: str | None = None
    links: int = 0
    batch: str = ""


def _sent(record: bytes) -> _Sent:
    _, stored, options, expires, continuation = rows.content(record)
    sent = _Sent(expires_at=moment_of(expires or None))
    try:
        known, newer = decoded_options(options)
        follows, newer_continuation = continuations.decoded(continuation)
        sent = sent._replace(headers=known.headers, newer=newer or newer_continuation, links=len(follows.links))
        sent = sent._replace(batch=follows.batch or follows.called_by)
        return sent._replace(payload=decode_payload(stored))
    except Malformed:
        return sent._replace(raw=repr((options + stored)[:RAW_BYTES]))


def _newer(wire: Wire, keys: Keys, queue: str, stored_id: bytes, row: bytes, index: State | None) -> Message:
    """A message that a newer version wrote. Only its row can be read, which is out of date while the message is
    deferred."""
    read = rows.read_row(row)
    found = state_of(read.timestamps)
    if found in (State.SCHEDULED, State.READY):
        is_scheduled = wire.command("ZSCORE", keys.queue(queue, "schedule"), stored_id) is not None
        found = index or (State.SCHEDULED if is_scheduled else State.READY)
    return Message(id_text(stored_id), queue, read, None, rows.WRITTEN_BY_NEWER, found=found)


def _read_result(stored: bytes | None) -> Any:
    """A result, parsed; None if it is missing or corrupt."""
    try:
        return None if stored is None else json_values.parse(stored)
    except ValueError:
        return None
