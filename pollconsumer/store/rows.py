"""The packed rows and records of `lua/_prelude.lua`, read and rewritten.

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
_FIXED = 62
BLANK = b"\0\0\x80".ljust(_FIXED, b"\0")
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
    return b"A".ljust(_RECORD_HEADER, b"\0") + row[_FIXED:] + b"\n"


def content(record: bytes) -> tuple[str, bytes]:
    """Handler name and payload of a record."""
    at = _RECORD_HEADER + (record[10] if len(record) >= _RECORD_HEADER else 0)
    if len(record) > at + 1 and record[1] & CONCURRENCY_KEY:
        at += 2 + record[at + 1]
    handler, _, payload = record[at:].partition(b"\n")
    return handler.decode("utf-8", "replace"), payload


def attempts(row: bytes) -> int:
    return row[4] << 8 | row[5]


def completed(row: bytes, started: int, ended: int) -> bytes:
    return b"%bc%b%b%b%b" % (row[:1], row[2:20], pack6(started), pack6(ended), row[32:])


def begun(row: bytes) -> bytes:
    """Reserved, and handled for the only time."""
    return bytes([row[0] | BEGUN]) + row[1:]


def checkpointed(row: bytes) -> bytes:
    return bytes([row[0] | CHECKPOINT]) + row[1:]


def retrying(row: bytes, failed: int) -> bytes:
    """Back into the schedule; the script adds the due time of the next attempt."""
    row = _unbegun(row)
    return b"%b%b%b%b%b" % (row[:14], NEVER * 3, row[32:44], NEVER, pack6(failed) + NEVER + row[62:])


def dead(row: bytes, started: int, failed: int) -> bytes:
    ended = pack6(failed)
    return b"%bd%b%b%b%b%b%b" % (row[:1], row[2:20], pack6(started), ended, row[32:50], ended, row[56:])


def released(row: bytes) -> bytes:
    """Ready again, as if it had not been reserved: the attempt is not counted."""
    row = _unbegun(row)
    return b"%b%b%b%b%b" % (row[:4], _uncharged(row), row[6:14], NEVER * 2, row[26:])


def parked(row: bytes) -> bytes:
    """Back into the schedule, uncharged, until a consumer knows its handler."""
    flags = bytes([row[0] | PARKED])
    return b"%b%b%b%b%b%b%b" % (
        flags, row[1:4], _uncharged(row), row[6:14], NEVER * 3, row[32:44], NEVER + row[50:56] + NEVER + row[62:]
    )  # fmt: skip


def unstarted(row: bytes) -> bytes:
    """Reserved, and not to be handled: the attempt is not counted."""
    return b"%b%b%b" % (row[:4], _uncharged(row), row[6:])


def _unbegun(row: bytes) -> bytes:
    """For what is to be handled again: its process may die before that begins."""
    return bytes([row[0] & ~BEGUN]) + row[1:]


def _uncharged(row: bytes) -> bytes:
    return (attempts(row) - 1).to_bytes(2, "big")


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
    row = row.ljust(_FIXED, b"\0")  # whatever somebody else wrote there can be shown
    flags, ending, priority, attempted, _crashes, generation, *halves = _ROW.unpack(row[:_FIXED])
    instants = [(high << 32 | low) or None for high, low in zip(halves[::2], halves[1::2], strict=True)]
    _fence, reserved, started, ended, scheduled, due, enqueued, failed, next_attempt = instants
    return Row(
        handler=row[_FIXED:].decode("utf-8", "replace"),
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
