"""Messages in hand, and those that have ended but are not settled, readable after their process has died."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.runtime.launch.shared_memory import entries
from pollconsumer.runtime.launch.shared_memory.series import Series
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    import mmap


class Flight:
    """Messages that are in hand or unsettled: each has a place of its own, except those of a `Series`."""

    MOST, _PLACE, _FROM = 1024, 1024, 4096
    _SERIES_AT = _FROM + MOST * _PLACE
    SIZE = _SERIES_AT + (Series.SIZE + 4095 & ~4095)
    _FREE, _IN_HAND, _ENDED = range(3)
    """States of a place, in the byte before its entry."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._places: dict[Reservation, int] = {}
        self._ended: list[Reservation] = []
        self._free = list(range(self._FROM, self._SERIES_AT, self._PLACE))[::-1]
        self._heads: dict[tuple[str, str, int, bool], bytes] = {}
        self.series = Series(memory, self._SERIES_AT)

    def head(self, handler: str, queue: str, id_length: int, *, last: bool) -> bytes:
        """The same as `entries.head`, but made once."""
        of = handler, queue, id_length, last
        head = self._heads.get(of)
        if head is None:
            head = self._heads[of] = entries.head(handler, queue, id_length, last=last)
        return head

    def enter(self, reservation: Reservation, *, last: bool) -> None:
        """Record that the handler of ``reservation`` begins. Requires a free place."""
        message_id, memory, at = reservation.id, self._memory, self._free.pop()
        text = self.head(reservation.handler, reservation.queue, len(message_id), last=last)
        text += message_id[: entries.LONGEST]
        self._places[reservation] = at
        memory[at + 1 : at + 1 + len(text)] = text
        memory[at] = self._IN_HAND

    def end(self, reservation: Reservation) -> None:
        """Record that its handler has ended: a later death of the process is not charged to the message."""
        at = self._places.get(reservation)
        if at is None:
            self.series.end()
        else:
            self._memory[at] = self._ENDED
            self._ended.append(reservation)

    def leave(self, reservation: Reservation) -> None:
        at = self._places.pop(reservation, None)
        if at is None:
            self.series.leave()
        else:
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
        self.series.settled()

    def free(self) -> int:
        """How many more messages may be in hand or unsettled, beside those of a series."""
        return len(self._free)

    def in_hand(self) -> list[Reservation]:
        """Messages whose handler has not ended, in this process. May be called in any thread."""
        return [
            each for each, at in [*self._places.items()] if self._memory[at] == self._IN_HAND
        ] + self.series.in_hand()

    def ids(self, queue: str) -> set[bytes]:
        """The ids of messages of ``queue`` that are in hand or unsettled, in this process."""
        in_flight = (*self._places, *self.series.in_flight())
        return {reservation.id for reservation in in_flight if reservation.queue == queue}

    def the_one(self) -> Reservation | None:
        """The message in hand in this process, if it is the only one. May be called in any thread."""
        in_hand = self.in_hand()
        return in_hand[0] if len(in_hand) == 1 else None

    def left_behind(self) -> list[entries.MessageInHand]:
        """Messages that are in hand or unsettled, read from the shared memory, in any process."""
        held, states = [], self._memory[self._FROM : self._SERIES_AT : self._PLACE]
        for number, state in enumerate(states.rstrip(b"\0") and states):
            if state != self._FREE:
                at = self._FROM + number * self._PLACE
                held.append(entries.read(self._memory, at + 1, ended=state == self._ENDED)[0])
        return held + self.series.left_behind()

    def uncalled(self) -> list[entries.MessageInHand]:
        """Messages that are recorded as begun, to be handled at most once, and have not begun. Read from the shared
        memory, in any process."""
        called = {(each.queue, each.id) for each in self.left_behind()}  # perhaps not as part of the series
        return [each for each in self.series.uncalled() if (each.queue, each.id) not in called]
