"""Requests to stop messages in hand, and handlers that are paused, in memory that a launch shares with its heartbeat.

The heartbeat writes what it learns from the store; the launch only reads it, without a system call, so that it may
look as often as it likes.
"""

from __future__ import annotations

import mmap
import struct
from threading import RLock
from typing import TYPE_CHECKING

from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_LENGTHS = struct.Struct("HH")
_NO_QUEUE, _ALL_RESUMED = "", b""
"""What stand in place of a queue's name, and of a handler's."""


class Stops:
    MOST, _PLACE, _FROM = 256, 1024, 8
    SIZE = _FROM + MOST * _PLACE
    """Bytes for the number of requests so far, and for the last ones of them."""
    _LONGEST = 255
    """Maximum bytes of an id, or a name; valid ones are shorter."""

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory, self._at = memory, at
        self._count = memoryview(memory)[at : at + self._FROM].cast("Q")
        self._seen = 0
        self._asked: set[tuple[str, bytes]] = set()
        self._handlers: Mapping[bytes, str] = {}
        """The own names of the launch's handlers, by each name: other pauses do not concern it."""
        self.paused = frozenset[str]()
        """Own names of the handlers that a person has paused, as `standing` last found."""
        self._act: Callable[[], None] | None = None
        self._lock = RLock()  # a signal handler may look while its thread does

    def ask(self, *requests: tuple[str, bytes]) -> None:
        """Record requests of queues and ids, in the heartbeat. The launch sees all of them or none."""
        for number, (queue, message_id) in enumerate(requests, self._count[0]):
            texts = queue.encode()[: self._LONGEST], message_id[: self._LONGEST]
            entry = _LENGTHS.pack(*map(len, texts)) + b"".join(texts)
            at = self._place(number)
            self._memory[at : at + len(entry)] = entry
        self._count[0] += len(requests)

    def pause(self, names: Iterable[bytes]) -> None:
        """Record, in the heartbeat, that the handlers with these names are paused, and no others."""
        self.ask((_NO_QUEUE, _ALL_RESUMED), *((_NO_QUEUE, name) for name in names))

    def serve(self, handlers: Mapping[str, str], paused: Iterable[str]) -> None:
        """Name the launch's handlers, by each name, and which of them were paused before."""
        self._handlers = {name.encode(): own for name, own in handlers.items()}
        self.paused = frozenset(paused)

    def answer_by(self, act: Callable[[], None]) -> None:
        """Have `called` call ``act``, in a signal handler of the main thread."""
        self._act = act

    def called(self) -> None:
        """Answer the signal that the heartbeat sends after a request."""
        if self._act is not None:
            self._act()

    def any(self) -> bool:
        """Whether there may be a request, or news of pauses."""
        return bool(self._asked) or self._count[0] != self._seen

    def asked(self, reservation: Reservation) -> bool:
        """Whether this message is to stop."""
        return self.any() and (reservation.queue, reservation.id) in self.standing()

    def standing(self) -> set[tuple[str, bytes]]:
        """Queue and id of each message that is to stop."""
        with self._lock:
            count, paused = self._count[0], set(self.paused)
            for number in range(max(self._seen, count - self.MOST), count):
                at = self._place(number)
                queue, message_id = _LENGTHS.unpack_from(self._memory, at)
                begin = at + _LENGTHS.size
                ends = begin + queue, begin + queue + message_id
                name, asked = self._memory[begin : ends[0]].decode("utf-8", "replace"), self._memory[slice(*ends)]
                if name != _NO_QUEUE:
                    self._asked.add((name, asked))
                elif asked == _ALL_RESUMED:
                    paused.clear()
                elif asked in self._handlers:
                    paused.add(self._handlers[asked])  # by whichever name
            self._seen, self.paused = count, frozenset(paused)
            return set(self._asked)

    def forget(self, queue: str, message_id: bytes) -> None:
        """Drop a request: its message is not in hand, or no longer."""
        with self._lock:
            self._asked.discard((queue, message_id))

    def _place(self, number: int) -> int:
        return self._at + self._FROM + number % self.MOST * self._PLACE
