"""Which message the caller handles, and which of a launch's handlers wait for messages that cannot end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from threading import Lock
from typing import NamedTuple, Protocol

IN_SLOT: ContextVar[InFlight | None] = ContextVar("in_slot", default=None)
"""The message that this thread or task handles."""
ENDS_BEFORE = 0.2
_launch_waits: SlotWaits | None = None


class InFlight(Protocol):
    @property
    def name(self) -> str:
        """The message's id as text."""

    @property
    def handler(self) -> str: ...

    @property
    def attempt(self) -> int: ...


class ServedQueues(NamedTuple):
    """What a launch serves with ``slots`` slots, until ``latest()`` on the monotonic clock. ``shared``: by its
    settings, other launches serve the same queues. ``in_flight``: its messages whose handlers run in this process."""

    launch: str
    queues: tuple[str, ...]
    slots: int
    latest: Callable[[], float]
    shared: bool
    in_flight: Callable[[], Iterable[InFlight]]


class SlotWaits:
    """Which messages in flight wait for other messages."""

    def __init__(self, serving: ServedQueues) -> None:
        self.serving = serving
        self._waiting: Counter[InFlight] = Counter()
        self._lock = Lock()

    def begin(self) -> InFlight | None:
        """Begin a wait. Returns the message that waits; None if the calling message is unknown."""
        waiting = IN_SLOT.get()
        if waiting is None:
            in_flight = [*self.serving.in_flight()]
            waiting = in_flight[0] if len(in_flight) == 1 else None
        if waiting is not None:
            with self._lock:
                self._waiting[waiting] += 1
        return waiting

    def end(self, waiting: InFlight | None) -> None:
        with self._lock:
            if waiting is not None and waiting in self._waiting:
                self._waiting[waiting] -= 1
                self._waiting += Counter()  # removes counts of 0

    def forget(self, waiting: InFlight) -> None:
        """Forget the wait of ``waiting``, however its handler has ended."""
        with self._lock:
            self._waiting.pop(waiting, None)

    def seconds_left(self) -> float:
        """Seconds for which a wait may go on: it ends just before the handler's limit, so that the handler can say
        why."""
        return self.serving.latest() - ENDS_BEFORE - time.monotonic()

    def may_be_stuck(self, waiting: InFlight | None, queue: str, awaited: str) -> bool:
        """Whether the wait of ``waiting`` for the unfinished message ``awaited`` cannot end: this launch alone serves
        its queue, and all slots wait, or the message waits for itself."""
        if waiting is None or queue not in self.serving.queues or self.serving.shared:
            return False
        if any(each.name == awaited for each in self.serving.in_flight()):
            return waiting.name == awaited
        return len(self._waiting) >= self.serving.slots

    def give_up(self, waiting: InFlight | None, queue: str, awaited: str) -> bool:
        """Whether `may_be_stuck` is still true. If it is, the wait ends: ``waiting`` fails, so that its slot can handle
        a message for which others wait."""
        with self._lock:
            stuck = self.may_be_stuck(waiting, queue, awaited)
            if stuck and waiting is not None:
                del self._waiting[waiting]
            return stuck


def serve_here(waits: SlotWaits | None) -> None:
    """Have this process handle messages for the launch that has ``waits``."""
    global _launch_waits  # one for the process
    _launch_waits = waits


def slot_waits() -> SlotWaits | None:
    """The waits of this process; None if it handles no messages."""
    return _launch_waits
