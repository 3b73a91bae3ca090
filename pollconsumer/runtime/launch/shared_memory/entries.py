"""Entries of messages in shared memory: whether this is the last attempt, handler, queue and id."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import mmap

_HEAD = struct.Struct("BBBB")
"""What an entry begins with: whether it is the last attempt, and the lengths of handler, queue and id; these follow."""
LONGEST = 255
"""Maximum bytes of an id, or a name; valid ones are shorter."""
SIZE = _HEAD.size + 3 * LONGEST
"""Maximum bytes of an entry."""


class MessageInHand(NamedTuple):
    """A message that is handled or not settled yet. ``ended``: its handler has. ``last``: its last attempt.
    ``began`` and ``ends_by``: when its handler began, and must have ended, on the monotonic clock."""

    queue: str
    id: bytes
    handler: str
    ended: bool
    last: bool
    began: float = 0.0
    ends_by: float = 0.0


def head(handler: str, queue: str, id_length: int, *, last: bool) -> bytes:
    """An entry but for the first `LONGEST` bytes of the id, which follow."""
    name, place = handler.encode("utf-8", "replace")[:LONGEST], queue.encode("utf-8", "replace")[:LONGEST]
    return _HEAD.pack(last, len(name), len(place), min(id_length, LONGEST)) + name + place


def read(memory: mmap.mmap, at: int, *, ended: bool) -> MessageInHand:
    """The entry that begins ``at``."""
    last, *lengths = _HEAD.unpack_from(memory, at)
    at, parts = at + _HEAD.size, []
    for length in lengths:
        parts.append(memory[at : at + length])
        at += length
    handler, queue, message_id = parts
    return MessageInHand(
        queue.decode("utf-8", "replace"), message_id, handler.decode("utf-8", "replace"), ended, bool(last)
    )
