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
    from pollconsumer.runtime.handlers import Handler
    from pollconsumer.store.redis_store import Reservation


class Handled(NamedTuple):
    """One attempt: when it ran, on the monotonic clock in seconds, and what it raised."""

    reservation: Reservation
    handler: Handler
    started: float
    ended: float
    error: BaseException | None


class Executor(Protocol):
    slots: int

    def busy(self) -> int:
        """Messages being handled."""

    def start(self, reservation: Reservation, handler: Handler, payload: dict[str, Any]) -> None:
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

    def start(self, reservation: Reservation, handler: Handler, payload: dict[str, Any]) -> None:
        started = self._clock()
        error = handler.handle(payload)
        self._finished.append(Handled(reservation, handler, started, self._clock(), error))

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
        self._given: SimpleQueue[tuple[Reservation, Handler, dict[str, Any]]] = SimpleQueue()
        self._done: SimpleQueue[Handled] = SimpleQueue()
        self._bell, self._ring = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._ring, False)
        for n in range(slots):
            threading.Thread(target=self._serve, name=f"handler-{n}", daemon=True).start()

    def busy(self) -> int:
        return self._busy

    def start(self, reservation: Reservation, handler: Handler, payload: dict[str, Any]) -> None:
        self._busy += 1
        self._given.put((reservation, handler, payload))

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
            reservation, handler, payload = self._given.get()
            started = time.monotonic()
            error = handler.handle(payload)
            self._done.put(Handled(reservation, handler, started, time.monotonic(), error))
            with suppress(BlockingIOError):  # a full pipe rings as it is
                os.write(self._ring, b"\0")
