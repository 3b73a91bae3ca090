"""Where handlers run: in the launch's own thread for one slot, on threads for more."""

from __future__ import annotations

import os
import select
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from pollconsumer.runtime.context import Context
    from pollconsumer.runtime.handlers import Handler, Outcome
    from pollconsumer.store.reservations import Reservation


class Attempt(NamedTuple):
    """One delivery of a message to its handler."""

    reservation: Reservation
    handler: Handler
    payload: dict[str, Any]
    context: Context | None = None

    def handle(self) -> Outcome:
        return self.handler.handle(self.payload, self.context)


class Handled(NamedTuple):
    """An attempt that has ended: when it ran, on the monotonic clock in seconds, and what came of it."""

    attempt: Attempt
    started: float
    ended: float
    outcome: Outcome


class Executor(Protocol):
    slots: int

    def busy(self) -> int:
        """Messages being handled."""

    def start(self, attempt: Attempt) -> None:
        """Handle a message. There must be a free slot."""

    def finished(self) -> list[Handled]:
        """What has been handled since the last call."""

    def wait(self, seconds: float, descriptor: int | None = None) -> None:
        """Until something has been handled, ``descriptor`` is readable, or ``seconds`` have passed."""


class InlineExecutor:
    """One slot: `start` returns when the message has been handled."""

    slots = 1

    def __init__(self, clock: Any = time.monotonic) -> None:
        self._clock = clock
        self._finished: list[Handled] = []

    def busy(self) -> int:
        return 0

    def start(self, attempt: Attempt) -> None:
        started = self._clock()
        outcome = attempt.handle()
        self._finished.append(Handled(attempt, started, self._clock(), outcome))

    def finished(self) -> list[Handled]:
        finished, self._finished = self._finished, []
        return finished

    def wait(self, seconds: float, descriptor: int | None = None) -> None:  # noqa: ARG002
        raise AssertionError("nothing runs beside the loop")


class ThreadExecutor:
    """n slots. The threads are daemons: one that hangs must not keep the process from its end."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._busy = 0
        self._given: SimpleQueue[Attempt] = SimpleQueue()
        self._done: SimpleQueue[Handled] = SimpleQueue()
        self._bell, self._ring = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._ring, False)
        for n in range(slots):
            threading.Thread(target=self._serve, name=f"handler-{n}", daemon=True).start()

    def busy(self) -> int:
        return self._busy

    def start(self, attempt: Attempt) -> None:
        self._busy += 1
        self._given.put(attempt)

    def finished(self) -> list[Handled]:
        finished: list[Handled] = []
        try:
            while True:
                finished.append(self._done.get_nowait())
        except Empty:
            self._busy -= len(finished)
            return finished

    def wait(self, seconds: float, descriptor: int | None = None) -> None:
        watched = [self._bell] if descriptor is None else [self._bell, descriptor]
        if self._bell in select.select(watched, [], [], seconds)[0]:
            os.read(self._bell, 65536)

    def _serve(self) -> None:
        while True:
            attempt = self._given.get()
            started = time.monotonic()
            outcome = attempt.handle()
            self._done.put(Handled(attempt, started, time.monotonic(), outcome))
            with suppress(BlockingIOError):  # a full pipe rings as it is
                os.write(self._ring, b"\0")
