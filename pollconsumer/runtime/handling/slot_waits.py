"""The message that a thread handles, and the handlers of a launch that occupy slots while they wait for messages."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from threading import Lock
from typing import NamedTuple, Protocol

IN_SLOT: ContextVar[InFlight | None] = ContextVar("in_slot", default=None)
"""The message that this thread or task handles; None outside of a handler."""
ENDS_BEFORE = 0.2
of_process: SlotWaits | None = None
"""The waits of this process's launch; None if it handles no messages."""


class InFlight(Protocol):
    @property
    def name(self) -> str:
        """The message's id as text."""

    @property
    def handler(self) -> str: ...

    @property
    def attempt(self) -> int: ...


class ServedQueues(NamedTuple):
    """What a launch serves: ``queues``, with ``slots`` slots, until ``latest()`` on the monotonic clock. ``shared``:
    other launches may serve the queues, too. ``in_flight``: returns the launch's messages in flight."""

    launch: str
    queues: tuple[str, ...]
    slots: int
    latest: Callable[[], float]
    shared: bool
    in_flight: Callable[[], Iterable[InFlight]]


class SlotWaits:
    """The messages in flight whose handlers wait for other messages."""

    def __init__(self, serving: ServedQueues) -> None:
        self.serving = serving
        self._waiting: Counter[InFlight] = Counter()
        self._lock = Lock()

    def begin(self) -> InFlight | None:
        """Record that the calling handler waits. Returns its message; None if that is not known."""
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
        """Forget the wait of ``waiting``: its handler has ended."""
        with self._lock:
            self._waiting.pop(waiting, None)

    def seconds_left(self) -> float:
        """Seconds for which a handler may wait, and still report before ``latest()`` why it waited in vain."""
        return self.serving.latest() - ENDS_BEFORE - time.monotonic()

    def may_be_stuck(self, waiting: InFlight | None, queue: str, awaited: str) -> bool:
        """Whether ``waiting``, unless it is None, waits in vain for the unfinished message ``awaited``: only this
        launch serves ``queue``; and both are the same message, or all slots wait and ``awaited`` has no slot."""
        if waiting is None or queue not in self.serving.queues or self.serving.shared:
            return False
        if any(each.name == awaited for each in self.serving.in_flight()):
            return waiting.name == awaited
        return len(self._waiting) >= self.serving.slots

    def give_up(self, waiting: InFlight | None, queue: str, awaited: str) -> bool:
        """Whether `may_be_stuck` is still true. If so, the wait of ``waiting`` is forgotten: its handler must fail, so
        that its slot can handle a message for which others wait."""
        with self._lock:
            stuck = self.may_be_stuck(waiting, queue, awaited)
            if stuck and waiting is not None:
                del self._waiting[waiting]
            return stuck
