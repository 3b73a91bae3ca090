"""Messages that one slot handles one after the other: written together, each begins and ends with a byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.runtime.launch.shared_memory import entries

if TYPE_CHECKING:
    import mmap
    from collections.abc import Sequence

    from pollconsumer.store.reservations import Reservation


class Series:
    """In shared memory: how many have begun, how many of these have ended, how many of these are settled; and the
    entries of all."""

    MOST = 255
    _ENTRIES = 3
    SIZE = _ENTRIES + MOST * entries.SIZE

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory, self._at = memory, at
        self._laid: list[Reservation] = []
        self._sizes: list[int] = []
        self._begun = self._ended = self._settled = 0

    def room(self) -> int:
        """How many can be laid."""
        return self.MOST - (self._begun if self._begun > self._settled else 0)

    def lay(self, reservations: Sequence[Reservation], texts: Sequence[bytes]) -> None:
        """Write the entries of those that begin next, instead of those laid earlier and not begun."""
        if self._begun == self._settled:
            self._begun = self._ended = self._settled = 0
            self._memory[self._at : self._at + self._ENTRIES] = bytes(self._ENTRIES)
        del self._laid[self._begun :], self._sizes[self._begun :]
        at, text = self._at + self._ENTRIES + sum(self._sizes), b"".join(texts)
        self._memory[at : at + len(text)] = text
        self._laid += reservations
        self._sizes += map(len, texts)

    def begin(self) -> None:
        """The handler of the next one begins."""
        self._begun += 1
        self._memory[self._at] = self._begun

    def end(self) -> None:
        """It has ended: a later death of the process is not charged to the message."""
        self._ended += 1
        self._memory[self._at + 1] = self._ended

    def leave(self) -> None:
        """It was not handled, after all."""
        self._begun -= 1
        self._memory[self._at] = self._begun

    def settled(self) -> None:
        """Those that had ended are settled."""
        self._settled = self._ended
        self._memory[self._at + 2] = self._settled

    def in_hand(self) -> list[Reservation]:
        """In this process: the one whose handler has not ended."""
        return self._laid[self._ended : self._begun]

    def in_flight(self) -> list[Reservation]:
        """In this process: that one, and those that are not settled."""
        return self._laid[self._settled : self._begun]

    def left_behind(self) -> list[entries.Held]:
        """Read from the shared memory, in any process."""
        begun, ended, settled = self._memory[self._at : self._at + self._ENTRIES]
        held, at = [], self._at + self._ENTRIES
        for number in range(begun):
            each, at = entries.read(self._memory, at, ended=number < ended)
            held.append(each)
        return held[settled:]
