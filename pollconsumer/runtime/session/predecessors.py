"""What the last completed occurrences found, read for several reserved messages at once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.store.records.occurrences import PreviousOccurrence
from pollconsumer.store.records.reservations import Reservation

MOST = 100
"""Messages reserved ahead that are looked at."""
FRESH = 0.05
"""Seconds for which what was read counts: another instance may complete an occurrence."""


class Predecessors:
    def __init__(self, launch: Launch, reserved: Iterable[Reservation]) -> None:
        """``reserved``: the launch's queue of messages that are reserved and not begun."""
        self._launch, self._reserved = launch, reserved
        self._found: dict[tuple[str, bytes], PreviousOccurrence | None] = {}
        self._read_at = 0.0

    def of(self, reservation: Reservation) -> PreviousOccurrence | None:
        """The last completed occurrence of the recurrence of ``reservation``; None if that message is no occurrence."""
        occurrence = reservation.occurrence
        if occurrence is None:
            return None
        which = reservation.queue, occurrence.recurrence
        if which not in self._found or self._launch.clock() - self._read_at > FRESH:
            self._read(reservation)
        return self._found.pop(which)

    def forget(self) -> None:
        """Forget what was read: occurrences have been completed here."""
        self._found.clear()

    def _read(self, reservation: Reservation) -> None:
        """Read the last completed occurrence for ``reservation``, and in the same round trip those for messages
        reserved ahead."""
        queue = reservation.queue
        ahead = [*self._reserved]  # at once: another thread may return some meanwhile
        near = (reservation, *islice((each for each in ahead if each.queue == queue), MOST))
        names = list(dict.fromkeys(each.occurrence.recurrence for each in near if each.occurrence is not None))
        self._read_at = self._launch.clock()
        found = self._launch.store.previous(queue, names)
        self._found = {(queue, name): each for name, each in zip(names, found, strict=True)}
