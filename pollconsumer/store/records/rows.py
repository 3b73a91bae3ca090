"""Reads and rewrites rows and records, packed as bytes. `lua/parts/rows.lua` and `records.lua` have the same layout.

The row of a settled message is computed here, from its reserved row. A script stores it only if the stored row is still
the reserved one, so a concurrent change of the message is always noticed."""

import re
import struct
from functools import lru_cache
from typing import NamedTuple

from pollconsumer.core.lifecycle import Timestamps
from pollconsumer.core.messages.message import (
    EXTENSION,
    NO_EXTENSION,
    TRAVELLING,
    NewMessage,
    decoded_options,
    encoded_options,
    given_options,
    has_later,
)
from pollconsumer.core.spans import parse_rate

NEVER = bytes(6)
TRACE_FOLLOWS = "\0"
"""In a stored error, the text before the traceback ends with this."""
LARGE, UNIQUE_KEY, PARKED, CONCURRENCY_KEY, WAITING, BEGUN, CHECKPOINT, BOOKED = 1, 2, 4, 8, 16, 32, 64, 128
KEYED = UNIQUE_KEY | CONCURRENCY_KEY
SPENT = 255
"""The value of the field CRASHES in a message whose last attempt ended with a death."""
FLAGS, ENDING, PRIORITY, ATTEMPTS, CRASHES, GENERATION, FENCE = 0, 1, 2, 4, 6, 7, 8
RESERVED, STARTED, ENDED, SCHEDULED, DUE, ENQUEUED, FAILED, NEXT_ATTEMPT, HANDLER = 14, 20, 26, 32, 38, 44, 50, 56, 62
"""Offsets of the fields of a row."""
WRITTEN_BY_NEWER = "written by a newer pollconsumer"
"""Why a message is left alone: a newer version wrote it."""
WHY_PARKED = ("unknown_handler: ", "paused: ", "not begun: ")
"""How the stored problem of a parked message begins."""
BLANK = b"\0\0\x80".ljust(HANDLER, b"\0")
"""A row to read in place of a missing one."""
_READY_AT_ONCE = NEVER + b"%b" + 2 * NEVER
"""The fields from DUE to NEXT_ATTEMPT of a message that was ready at once. ``%b`` stands for the field ENQUEUED."""
RECORD_KEYS = 11
_RATE, _EXPIRY, _DIGEST, _OPTIONS, DIGEST_BYTES = 16, 32, 64, 128, 8
"""Flags that only records have; and the bytes of a digest."""
_CONTINUATION, _ORDER = 1, 2
"""Flags in the second byte of flags, which only records of letter C have."""
_HEAD = struct.Struct(">cBHB")
_OUT_OF_FLIGHT = ((RESERVED, NEVER), (STARTED, NEVER))
_NO_NEXT = (NEXT_ATTEMPT, NEVER)
_ROW = struct.Struct(">BcHHBB" + "HI" * 9)


def id_text(stored: bytes) -> str:
    """A stored id as text; the inverse of `id_bytes`. Valid ids are ASCII, but other programs may write any bytes.
    Bytes that are not UTF-8 are escaped, as ``\\xff``, and so are backslashes that would look like an escape."""
    if b"\\" in stored:
        stored = re.sub(rb"\\(?=x(?:5c|[89a-f][0-9a-f]))", rb"\\x5c", stored)
    return stored.decode("utf-8", "backslashreplace")


def id_bytes(text: str) -> bytes:
    """The inverse of `id_text`. Undecodable bytes of a command line's argument are kept."""
    stored = text.encode("utf-8", "surrogateescape")
    if b"\\" not in stored:
        return stored
    return re.sub(rb"\\x(5c|[89a-f][0-9a-f])", lambda escaped: bytes([int(escaped[1], 16)]), stored)


def pack6(number: int) -> bytes:
    return number.to_bytes(6, "big")


def is_newer(record: bytes) -> bool:
    """Whether a newer version wrote the record: its letter comes after C, or it has unknown flags."""
    if record[:1] == b"C" and len(record) > RECORD_KEYS:
        at = _after_rate_key(record)
        return not record[1] & _OPTIONS or not b"" < record[at : at + 1] <= bytes([_CONTINUATION | _ORDER])
    return b"C" <= record[:1] <= b"Z"


@lru_cache
def record_head(handler: str) -> bytes:
    """The part of a record between the instant of enqueueing and the payload, if the message has no options. The
    scripts that enqueue add that instant, and what precedes it, which is the same for all such messages."""
    return b"\0%b\n" % handler.encode()


def new_record(message: NewMessage) -> bytes:
    """The record of ``message``, without the instant of enqueueing, which `enqueue.lua` inserts."""
    key, flags = message.key.encode(), UNIQUE_KEY if message.key else 0
    if message.concurrency_key or message.order_key:
        concurrency_key = message.concurrency_key.encode()
        flags |= CONCURRENCY_KEY
        key += bytes([message.concurrency_limit, len(concurrency_key)]) + concurrency_key
    version, extension = b"A", b""
    if message[EXTENSION] != NO_EXTENSION:
        version, more, extension = _extension(message)
        flags |= more
    head = _HEAD.pack(version, flags, message.priority + 32768, len(message.key.encode()))
    return b"%b%b%b%b\n%b" % (head, key, extension, message.handler.encode(), message.payload)


def _extension(message: NewMessage) -> tuple[bytes, int, bytes]:
    """For a record with more than letter A allows: its letter, its flags, and the fields for these flags."""
    digest, options, continuation, rate = bytes.fromhex(message.digest), b"", message.continuation.encode(), b""
    if message.rate_key:
        most, period_ms = parse_rate(message.rate) if message.rate else (0, 0)
        key = message.rate_key.encode()
        rate = b"%b%b%c%b" % (most.to_bytes(2, "big"), pack6(period_ms), len(key), key)
    flags = _RATE * bool(rate) | _DIGEST * bool(digest) | _EXPIRY * bool(message.lifetime)
    is_later = bool(continuation or message.order_key)
    if any(getattr(message, name) for name in TRAVELLING):
        given = given_options(message)
        options, is_later = encoded_options(given), is_later or has_later(given)
    if is_later:
        rate += bytes([_CONTINUATION * bool(continuation) | _ORDER * bool(message.order_key)])
        if message.order_key:
            key = message.order_key.encode()
            rate += bytes([len(key)]) + key
    expiry = pack6(message.lifetime) if message.lifetime else b""
    tail = b""
    if options or is_later:
        flags |= _OPTIONS
        tail = len(options).to_bytes(2, "big") + options
    content = rate + digest + expiry + tail + (pack6(len(continuation)) + continuation if continuation else b"")
    return b"C" if is_later else b"B", flags, content


def bare_record(row: bytes) -> bytes:
    """A record with the handler's name in ``row`` and nothing else."""
    return b"A".ljust(RECORD_KEYS, b"\0") + _handler_in(row) + b"\n"


def _handler_in(row: bytes) -> bytes:
    """The handler's name in ``row``, without a digest that may follow it."""
    return row[HANDLER:].partition(b"\0")[0]


def content(record: bytes) -> tuple[str, bytes, bytes, int, bytes]:
    """The handler's name, payload, encoded options, expiry (epoch ms, 0: never), encoded continuation of a record."""
    at, options, expires, continuation = RECORD_KEYS, b"", 0, b""
    if record[1:2] > b"\0":  # most have neither key; a corrupt record may be empty
        at = _after_keys(record)
        if record[1] & _DIGEST:
            at += DIGEST_BYTES
        if record[1] & _EXPIRY:
            expires, at = int.from_bytes(record[at : at + 6], "big"), at + 6
        if record[1] & _OPTIONS:
            options, at = _sized(record, at, 2)
        if record[:1] == b"C" and _second_flags(record) & _CONTINUATION:
            continuation, at = _sized(record, at, 6)
    handler, _, payload = record[at:].partition(b"\n")
    return handler.decode("utf-8", "replace"), payload, options, expires, continuation


def message_in(record: bytes) -> NewMessage:
    """The message in a stored record, without its id, its queue, the digest of a chosen id, and the lifetime. Malformed
    or a LookupError for an invalid record."""
    handler, payload, stored, _, continuation = content(record)
    options, _ = decoded_options(stored)
    at = RECORD_KEYS + record[10]
    key, limit, concurrency_key, rate_key, rate = record[RECORD_KEYS:at], 1, b"", b"", ""
    if record[1] & CONCURRENCY_KEY:
        limit, (concurrency_key, at) = record[at], _sized(record, at + 1, 1)
    if record[1] & _RATE:
        most, period_ms = int.from_bytes(record[at : at + 2], "big"), int.from_bytes(record[at + 2 : at + 8], "big")
        rate_key, _ = _sized(record, at + 8, 1)
        rate = f"{most}/{period_ms}ms" if most else ""
    message = NewMessage("", "", handler, payload, (record[2] << 8 | record[3]) - 32768, key=key.decode())
    return message._replace(
        concurrency_key=concurrency_key.decode(),
        concurrency_limit=limit,
        rate_key=rate_key.decode(),
        rate=rate,
        continuation=continuation.decode(),
        order_key=order_key(record).decode(),
        **options._asdict() | {"headers": dict(options.headers) or None},
    )


def keys(record: bytes) -> tuple[bytes, bytes]:
    """The unique key and the concurrency key in a record; empty for none. An order key follows the concurrency key
    after a zero byte."""
    if not record[1] & KEYED:
        return b"", b""
    end, key = RECORD_KEYS + record[10], b""
    if record[1] & CONCURRENCY_KEY:
        key = record[end + 2 : end + 2 + record[end + 1]]
        if ordered := order_key(record):
            key = b"%b\0%b" % (key, ordered)
    return record[RECORD_KEYS:end], key


def order_key(record: bytes) -> bytes:
    """The order key in a record; empty without one."""
    if record[:1] != b"C" or not _second_flags(record) & _ORDER:
        return b""
    return _sized(record, _after_rate_key(record) + 1, 1)[0]


def _sized(record: bytes, at: int, size: int) -> tuple[bytes, int]:
    """The text at position ``at``, whose length is in its first ``size`` bytes; and the position at which it ends."""
    begin, end = at + size, at + size + int.from_bytes(record[at : at + size], "big")
    return record[begin:end], end


def _after_keys(record: bytes) -> int:
    """The position after a record's keys; beyond the record's end if it is truncated."""
    at = _after_rate_key(record)
    if record[:1] != b"C":
        return at
    return _sized(record, at + 1, 1)[1] if _second_flags(record) & _ORDER else at + 1


def _second_flags(record: bytes) -> int:
    at = _after_rate_key(record)
    return int.from_bytes(record[at : at + 1], "big")


def _after_rate_key(record: bytes) -> int:
    """The position after a record's rate key, or after its keys if it has none; letter C has its second flags there."""
    at = RECORD_KEYS + (record[10] if len(record) >= RECORD_KEYS else 0)
    if len(record) > at + 1 and record[1] & CONCURRENCY_KEY:
        at += 2 + record[at + 1]
    if len(record) > at + 8 and record[1] & _RATE:
        at += 9 + record[at + 8]
    return at


def attempts(row: bytes) -> int:
    return row[ATTEMPTS] << 8 | row[ATTEMPTS + 1]


def generation(row: bytes | None) -> int:
    """The number of redrives."""
    return row[GENERATION] if row is not None and len(row) > GENERATION else 0


def fence(row: bytes) -> int:
    return int.from_bytes(row[FENCE:RESERVED], "big")


def reserved_at(row: bytes) -> int:
    """The instant of the last reservation, in epoch ms."""
    return int.from_bytes(row[RESERVED:STARTED], "big")


def due_at(row: bytes) -> int:
    """When the message was due or, if that is later, accepted, in epoch ms."""
    return max(int.from_bytes(row[SCHEDULED:DUE], "big"), int.from_bytes(row[DUE:ENQUEUED], "big"))


def ended_at(row: bytes) -> int:
    """When the message ended, in epoch ms; 0 if it has not ended."""
    return int.from_bytes(row[ENDED:SCHEDULED], "big")


def completed(row: bytes, started: int, ended: int) -> bytes:
    """The row of a completed message. Fields from DUE on are left out if the message was ready at once, never failed,
    and keeps its record, which has the handler's name."""
    # Hot path, once for each message: so it uses neither `_set` nor `pack6`.
    rest = row[SCHEDULED:DUE]
    if row[FLAGS] & LARGE or not row.startswith(_READY_AT_ONCE % rest, DUE):
        rest = row[SCHEDULED:]
    instants = (started << 48 | ended).to_bytes(12, "big")
    return b"".join((row[:ENDING], b"c", row[PRIORITY:STARTED], instants, rest))


def begun(row: bytes) -> bytes:
    """The row of a reserved message whose handler is about to be called at most once."""
    # Once for each message that is handled at most once: so it does not use `_set`.
    return b"%c%b" % (row[FLAGS] | BEGUN, row[ENDING:])


def checkpointed(row: bytes) -> bytes:
    return _set(row, (FLAGS, bytes([row[FLAGS] | CHECKPOINT])))


def retrying(row: bytes, failed: int) -> bytes:
    """The row of a message with a failed attempt, to be tried again. The script adds the next attempt's instant."""
    return _set(_unbegun(row), *_OUT_OF_FLIGHT, (ENDED, NEVER), (ENQUEUED, NEVER), (FAILED, pack6(failed)), _NO_NEXT)


def dead(row: bytes, started: int, failed: int) -> bytes:
    ended = pack6(failed)
    return _set(_unbegun(row), (ENDING, b"d"), (STARTED, pack6(started)), (ENDED, ended), (FAILED, ended))


def expired(row: bytes, ended: int) -> bytes:
    """The row of a message that expired before it was handled. The attempt is not charged."""
    return _set(unstarted(row), (ENDING, b"e"), *_OUT_OF_FLIGHT, (ENDED, pack6(ended)))


def stopped(row: bytes, started: int, ended: int) -> bytes:
    """The row of a message that was cancelled while it was in flight."""
    return _set(row, (ENDING, b"x"), (STARTED, pack6(started)), (ENDED, pack6(ended)))


def released(row: bytes, deaths: int = 0) -> bytes:
    """The row of a message that is ready again. No attempt is charged; ``deaths`` are added to its deaths."""
    ready = _set(unstarted(row), *_OUT_OF_FLIGHT)
    return _set(ready, (CRASHES, bytes([row[CRASHES] + deaths]))) if deaths else ready


def parked(row: bytes) -> bytes:
    """The row of a message that is parked, uncharged: its handler is unknown or paused."""
    row = deferred(row)
    return _set(row, (FLAGS, bytes([row[FLAGS] | PARKED])))


def deferred(row: bytes) -> bytes:
    """The row of a message that is scheduled again, uncharged: it is deferred, asleep or parked."""
    return _set(unstarted(row), *_OUT_OF_FLIGHT, (ENDED, NEVER), (ENQUEUED, NEVER), _NO_NEXT)


def unstarted(row: bytes) -> bytes:
    """The row of a message that was reserved and not begun. The attempt is not charged."""
    return _set(_unbegun(row), (ATTEMPTS, (attempts(row) - 1).to_bytes(2, "big")))


def _unbegun(row: bytes) -> bytes:
    """``row`` without the flag BEGUN: a death before the handler begins again makes the message no dead letter."""
    return _set(row, (FLAGS, bytes([row[FLAGS] & ~BEGUN])))


def _set(row: bytes, *changes: tuple[int, bytes]) -> bytes:
    for field, value in changes:
        row = row[:field] + value + row[field + len(value) :]
    return row


class Row(NamedTuple):
    """An unpacked row."""

    handler: str
    priority: int
    attempts: int
    generation: int
    parked: bool
    waiting: bool
    booked: bool
    timestamps: Timestamps[int]


def read_row(row: bytes, record: bytes | None = None) -> Row:
    """``row``, unpacked. The row of a completed message may lack the handler's name; then ``record`` has the name."""
    if len(row) == DUE:
        row += _READY_AT_ONCE % row[SCHEDULED:DUE]
        if record is not None:
            row += content(record)[0].encode()
    row = row.ljust(HANDLER, b"\0")  # so that corrupt rows can be shown, too
    flags, ending, priority, attempted, _crashes, generation, *halves = _ROW.unpack(row[:HANDLER])
    instants = [(high << 32 | low) or None for high, low in zip(halves[::2], halves[1::2], strict=True)]
    _fence, reserved, started, ended, scheduled, due, enqueued, failed, next_attempt = instants
    return Row(
        handler=_handler_in(row).decode("utf-8", "replace"),
        priority=priority - 32768,
        attempts=attempted,
        generation=generation,
        parked=bool(flags & PARKED),
        waiting=bool(flags & WAITING),
        booked=bool(flags & BOOKED) and not enqueued,
        timestamps=Timestamps(
            scheduled_at=scheduled,
            due_at=due,
            enqueued_at=enqueued,
            reserved_at=reserved,
            started_at=started if reserved else None,
            completed_at=ended if ending == b"c" else None,
            failed_at=failed,
            next_attempt_at=next_attempt,
            dead_at=ended if ending == b"d" else None,
            cancelled_at=ended if ending == b"x" else None,
            expired_at=ended if ending == b"e" else None,
        ),
    )


def read_record(record: bytes) -> Row:
    """The unpacked row of a message that was never reserved, so that it has only a record."""
    record = record.ljust(RECORD_KEYS, b"\0")
    accepted = int.from_bytes(record[4:10], "big")
    handler, *_ = content(record)
    priority = (record[2] << 8 | record[3]) - 32768
    timestamps = Timestamps(scheduled_at=accepted, enqueued_at=accepted)
    return Row(handler, priority, 0, 0, parked=False, waiting=False, booked=False, timestamps=timestamps)
