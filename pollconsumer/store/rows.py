"""Packed rows and records, read and rewritten. Their layout is shared with `lua/parts/rows.lua`.

A settled row is made here, from the row as it was reserved, and put in place by comparing the whole of it: whatever
happened to the message meanwhile, whoever did it, shows as a difference.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pollconsumer.core.lifecycle import Timestamps

if TYPE_CHECKING:
    from pollconsumer.core.message import NewMessage

NEVER = bytes(6)
TRACE_FOLLOWS = "\0"
"""Stands between an error and its traceback, where they are kept."""
UNIQUE_KEY, PARKED, CONCURRENCY_KEY, WAITING, BEGUN, CHECKPOINT = 2, 4, 8, 16, 32, 64
SPENT = 255
"""Deaths of what has no attempt left."""
FLAGS, ENDING, PRIORITY, ATTEMPTS, CRASHES, GENERATION, FENCE = 0, 1, 2, 4, 6, 7, 8
RESERVED, STARTED, ENDED, SCHEDULED, DUE, ENQUEUED, FAILED, NEXT_ATTEMPT, HANDLER = 14, 20, 26, 32, 38, 44, 50, 56, 62
"""Where the fields of a row begin."""
BLANK = b"\0\0\x80".ljust(HANDLER, b"\0")
"""The row of what has none, as people see it."""
_RECORD_HEADER = 11


def pack6(number: int) -> bytes:
    return number.to_bytes(6, "big")


def is_newer(record: bytes) -> bool:
    """Of a later version: letters after A. Nothing else in it is known here."""
    return b"B" <= record[:1] <= b"Z"


def new_record(message: NewMessage) -> bytes:
    """A record as `enqueue.lua` takes it: without the instant, which is the server's to say."""
    key, flags = message.key.encode(), UNIQUE_KEY if message.key else 0
    if message.concurrency_key:
        concurrency_key = message.concurrency_key.encode()
        flags |= CONCURRENCY_KEY
        key += bytes([message.concurrency_limit, len(concurrency_key)]) + concurrency_key
    head = struct.pack(">cBHB", b"A", flags, message.priority + 32768, len(message.key.encode()))
    return b"%b%b%b\n%b" % (head, key, message.handler.encode(), message.payload)


def bare_record(row: bytes) -> bytes:
    """A record that says no more than whose handler's it is."""
    return b"A".ljust(_RECORD_HEADER, b"\0") + row[HANDLER:] + b"\n"


def content(record: bytes) -> tuple[str, bytes]:
    """Handler name and payload of a record."""
    at = _RECORD_HEADER + (record[10] if len(record) >= _RECORD_HEADER else 0)
    if len(record) > at + 1 and record[1] & CONCURRENCY_KEY:
        at += 2 + record[at + 1]
    handler, _, payload = record[at:].partition(b"\n")
    return handler.decode("utf-8", "replace"), payload


def attempts(row: bytes) -> int:
    return row[ATTEMPTS] << 8 | row[ATTEMPTS + 1]


def crashes(row: bytes) -> int:
    return row[CRASHES]


def fence(row: bytes) -> int:
    return int.from_bytes(row[FENCE:RESERVED], "big")


def completed(row: bytes, started: int, ended: int) -> bytes:
    # Once for each message: in one piece.
    return b"%bc%b%b%b%b" % (row[:ENDING], row[PRIORITY:STARTED], pack6(started), pack6(ended), row[SCHEDULED:])


def begun(row: bytes) -> bytes:
    """Reserved, and handled for the only time."""
    return _set(row, (FLAGS, bytes([row[FLAGS] | BEGUN])))


def checkpointed(row: bytes) -> bytes:
    return _set(row, (FLAGS, bytes([row[FLAGS] | CHECKPOINT])))


def retrying(row: bytes, failed: int) -> bytes:
    """Back into the schedule; the script adds the due time of the next attempt."""
    return _set(_unbegun(row), *_OUT_OF_FLIGHT, (ENDED, NEVER), (ENQUEUED, NEVER), (FAILED, pack6(failed)), _NO_NEXT)


def dead(row: bytes, started: int, failed: int) -> bytes:
    ended = pack6(failed)
    return _set(row, (ENDING, b"d"), (STARTED, pack6(started)), (ENDED, ended), (FAILED, ended))


def released(row: bytes) -> bytes:
    """Ready again, as if it had not been reserved: the attempt is not counted."""
    return _set(unstarted(_unbegun(row)), *_OUT_OF_FLIGHT)


def parked(row: bytes) -> bytes:
    """Back into the schedule, uncharged, until a consumer knows its handler."""
    flags = (FLAGS, bytes([row[FLAGS] | PARKED]))
    return _set(unstarted(row), flags, *_OUT_OF_FLIGHT, (ENDED, NEVER), (ENQUEUED, NEVER), _NO_NEXT)


def unstarted(row: bytes) -> bytes:
    """Reserved, and not to be handled: the attempt is not counted."""
    return _set(row, (ATTEMPTS, (attempts(row) - 1).to_bytes(2, "big")))


def _unbegun(row: bytes) -> bytes:
    """For what is to be handled again: its process may die before that begins."""
    return _set(row, (FLAGS, bytes([row[FLAGS] & ~BEGUN])))


_OUT_OF_FLIGHT = ((RESERVED, NEVER), (STARTED, NEVER))
_NO_NEXT = (NEXT_ATTEMPT, NEVER)


def _set(row: bytes, *changes: tuple[int, bytes]) -> bytes:
    for field, value in changes:
        row = row[:field] + value + row[field + len(value) :]
    return row


class Row(NamedTuple):
    """A row as people see it."""

    handler: str
    priority: int
    attempts: int
    generation: int
    parked: bool
    waiting: bool
    timestamps: Timestamps


_ROW = struct.Struct(">BcHHBB" + "HI" * 9)


def read_row(row: bytes) -> Row:
    row = row.ljust(HANDLER, b"\0")  # whatever somebody else wrote there can be shown
    flags, ending, priority, attempted, _crashes, generation, *halves = _ROW.unpack(row[:HANDLER])
    instants = [(high << 32 | low) or None for high, low in zip(halves[::2], halves[1::2], strict=True)]
    _fence, reserved, started, ended, scheduled, due, enqueued, failed, next_attempt = instants
    return Row(
        handler=row[HANDLER:].decode("utf-8", "replace"),
        priority=priority - 32768,
        attempts=attempted,
        generation=generation,
        parked=bool(flags & PARKED),
        waiting=bool(flags & WAITING),
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
        ),
    )


def read_record(record: bytes) -> Row:
    """What a record alone says: the message is ready, and was never reserved."""
    record = record.ljust(_RECORD_HEADER, b"\0")
    accepted = int.from_bytes(record[4:10], "big")
    handler, _ = content(record)
    priority = (record[2] << 8 | record[3]) - 32768
    timestamps = Timestamps(accepted, None, accepted, None, None, None, None, None, None, None)
    return Row(handler, priority, 0, 0, parked=False, waiting=False, timestamps=timestamps)
