"""Messages in hand, and those that have ended but are not settled, readable after their process has died."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    import mmap

_HEAD = struct.Struct("BBBB")
"""What an entry begins with: whether it is the last attempt, and the lengths of handler, queue and id; these follow."""
LONGEST = 255
"""Maximum bytes of an id, or a name; valid ones are shorter."""


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


def _read(memory: mmap.mmap, at: int, *, ended: bool) -> MessageInHand:
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


class Flight:
    """Messages that are in hand or unsettled: each has a place."""

    MOST, _PLACE, _FROM = 1024, 1024, 4096
    _TIMES_AT = _FROM + MOST * _PLACE
    _LAST = 2 * MOST
    """Where it stands among the times when the last handling ended."""
    SIZE = _TIMES_AT + (8 * (_LAST + 1) + 4095 & ~4095)
    _FREE, _IN_HAND, _ENDED = range(3)
    """States of a place, in the byte before its entry."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._places: dict[Reservation, int] = {}
        self._ended: list[Reservation] = []
        self._free = list(range(self._FROM, self._TIMES_AT, self._PLACE))[::-1]
        self._heads: dict[tuple[str, str, int, bool], bytes] = {}
        self._times = memoryview(memory)[self._TIMES_AT : self._TIMES_AT + 8 * (self._LAST + 1)].cast("d")
        """Two instants for each place: when its handling began, and when the handling must have ended."""

    def _head_of(self, handler: str, queue: str, id_length: int, *, last: bool) -> bytes:
        """An entry but for the first `LONGEST` bytes of the id, which follow; made once."""
        of = handler, queue, id_length, last
        head = self._heads.get(of)
        if head is None:
            name, place = handler.encode("utf-8", "replace")[:LONGEST], queue.encode("utf-8", "replace")[:LONGEST]
            head = _HEAD.pack(last, len(name), len(place), min(id_length, LONGEST)) + name + place
            self._heads[of] = head
        return head

    def enter(self, reservation: Reservation, *, last: bool, began: float = 0.0, ends_by: float = 0.0) -> None:
        """Record that the handler of ``reservation`` begins, and until when it may go on, on the monotonic clock.
        Requires a free place."""
        message_id, memory, at = reservation.id, self._memory, self._free.pop()
        times, number = self._times, (at - self._FROM) // self._PLACE
        times[2 * number], times[2 * number + 1] = began, ends_by
        text = self._head_of(reservation.handler, reservation.queue, len(message_id), last=last)
        text += message_id[:LONGEST]
        self._places[reservation] = at
        memory[at + 1 : at + 1 + len(text)] = text
        memory[at] = self._IN_HAND

    def extend(self, reservation: Reservation, ends_by: float) -> None:
        """Record anew until when a handler may go on: its timeout begins now."""
        if (at := self._places.get(reservation)) is not None:
            self._times[2 * ((at - self._FROM) // self._PLACE) + 1] = ends_by

    def end(self, reservation: Reservation, ended: float = 0.0) -> None:
        """Record that its handler has ended, and when: a later death of the process is not charged to the message."""
        self._times[self._LAST] = ended
        self._memory[self._places[reservation]] = self._ENDED
        self._ended.append(reservation)

    def last_ended(self) -> float:
        """When the last message ended; 0 if none has."""
        return self._times[self._LAST]

    def ends_by(self, before: float | None = None, since: float = 0.0) -> float:
        """The last instant at which a message that is handled must have ended, or has ended; read from the shared
        memory, in any process. With ``before``, of handlings that go on, and began before that and before ``since``."""
        times, found = self._times, [] if before is not None else [self.last_ended()]
        for number in self._handled():
            began, ends_by = times[2 * number], times[2 * number + 1]
            if before is None or began < min(before, since):
                found.append(ends_by)
        return max(found, default=0.0)

    def _handled(self) -> list[int]:
        """Where the times are of messages whose handler has not ended."""
        states = self._memory[self._FROM : self._TIMES_AT : self._PLACE]
        return [number for number, state in enumerate(states.rstrip(b"\0")) if state == self._IN_HAND]

    def overdue(self, now: float) -> list[Reservation]:
        """Messages that are handled for longer than they may be, in this process."""
        times = self._times
        return [
            each
            for each, at in [*self._places.items()]
            if self._memory[at] == self._IN_HAND and 0.0 < times[2 * ((at - self._FROM) // self._PLACE) + 1] <= now
        ]

    def leave(self, reservation: Reservation) -> None:
        at = self._places.pop(reservation)
        self._memory[at] = self._FREE
        self._free.append(at)

    def settled(self) -> None:
        """Forget messages that have ended: they are settled."""
        memory, places, free = self._memory, self._places, self._free
        for reservation in self._ended:  # `leave`, for many
            at = places.pop(reservation)
            memory[at] = self._FREE
            free.append(at)
        self._ended.clear()

    def free(self) -> int:
        """How many more messages may be in hand or unsettled."""
        return len(self._free)

    def in_hand(self) -> list[Reservation]:
        """Messages whose handler has not ended, in this process. May be called in any thread."""
        return [each for each, at in [*self._places.items()] if self._memory[at] == self._IN_HAND]

    def ids(self, queue: str) -> set[bytes]:
        """The ids of messages of ``queue`` that are in hand or unsettled, in this process."""
        return {reservation.id for reservation in self._places if reservation.queue == queue}

    def the_one(self) -> Reservation | None:
        """The message in hand in this process, if it is the only one. May be called in any thread."""
        in_hand = self.in_hand()
        return in_hand[0] if len(in_hand) == 1 else None

    def left_behind(self) -> list[MessageInHand]:
        """Messages that are in hand or unsettled, read from the shared memory, in any process."""
        held, states = [], self._memory[self._FROM : self._TIMES_AT : self._PLACE]
        for number, state in enumerate(states.rstrip(b"\0") and states):
            if state != self._FREE:
                at, ended = self._FROM + number * self._PLACE, state == self._ENDED
                message = _read(self._memory, at + 1, ended=ended)
                if not ended:
                    began, ends_by = self._times[2 * number], self._times[2 * number + 1]
                    message = message._replace(began=began, ends_by=ends_by)
                held.append(message)
        return held
