"""Messages that one slot handles one after the other: written together, each begins and ends with a byte."""

from __future__ import annotations

from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING

from pollconsumer.runtime.launch.shared_memory import entries
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    import mmap
    from collections.abc import Sequence


BEGUN, ENDED, SETTLED, RECORDED = range(4)
"""Places of the counts: how many have begun, how many of these have ended, how many of these are settled; and how many
there are with those that follow and are recorded as begun, to be handled at most once."""
_COUNTS = 4
_NONE = bytes(_COUNTS)
_is_begun = attrgetter("begun")


class Series:
    """A series in shared memory: the counts, a byte each, and the entries of all messages."""

    MOST = 255
    SIZE = _COUNTS + MOST * entries.SIZE

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory, self._entries_at = memory, at + _COUNTS
        self._laid: list[Reservation] = []
        self._texts: list[bytes] = []
        self.counts = memoryview(memory)[at : at + _COUNTS]
        """The counts. Whoever handles the messages counts in them how many have begun and ended: a death of the process
        is not charged to a message that is counted as ended."""

    def room(self) -> int:
        """How many more messages can be written down."""
        begun = self.counts[BEGUN]
        return self.MOST - (begun if begun > self.counts[SETTLED] else 0)

    def lay(self, reservations: Sequence[Reservation], texts: Sequence[bytes]) -> None:
        """Write down the messages that begin next, in place of earlier ones that have not begun."""
        counts = self.counts
        begun = counts[BEGUN]
        if begun == counts[SETTLED]:
            begun = 0
            counts[:] = _NONE
        counts[RECORDED] = 0
        del self._laid[begun:], self._texts[begun:]
        at, text = self._entries_at + sum(map(len, self._texts)), b"".join(texts)
        self._memory[at : at + len(text)] = text
        self._laid += reservations
        self._texts += texts
        counts[RECORDED] = begun + len([*takewhile(_is_begun, reservations)])

    def end(self) -> None:
        """Count the message in hand as ended."""
        self.counts[ENDED] += 1

    def leave(self) -> None:
        """Count the message in hand as not begun: it was not handled."""
        self.counts[BEGUN] -= 1

    def settled(self) -> None:
        """Count the messages that have ended as settled."""
        self.counts[SETTLED] = self.counts[ENDED]

    def in_hand(self) -> list[Reservation]:
        """The message whose handler has not ended, in this process, if there is one."""
        begun, ended, *_ = self.counts
        return self._laid[ended:begun]

    def is_in_hand(self) -> bool:
        """Whether a message's handler has not ended, in any process."""
        return self.counts[ENDED] < self.counts[BEGUN]

    def in_flight(self) -> list[Reservation]:
        """The message in hand and those that are not settled, in this process."""
        begun, _, settled, _ = self.counts
        return self._laid[settled:begun]

    def left_behind(self) -> list[entries.MessageInHand]:
        """The same messages, read from the shared memory, in any process."""
        begun, _, settled, _ = self.counts
        return self._read(begun)[settled:]

    def uncalled(self) -> list[entries.MessageInHand]:
        """Messages that are recorded as begun, and have not begun. Read from the shared memory, in any process."""
        begun, _, _, recorded = self.counts
        return self._read(recorded)[begun:]

    def _read(self, most: int) -> list[entries.MessageInHand]:
        ended, held, at = self.counts[ENDED], [], self._entries_at
        for number in range(most):
            each, at = entries.read(self._memory, at, ended=number < ended)
            held.append(each)
        return held
