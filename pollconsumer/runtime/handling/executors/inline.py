"""Runs handlers in the launch's thread: the executor of one slot."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.executors.executor import Attempt, Handled
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.in_hand import IN_SLOT
from pollconsumer.runtime.handling.outcome import Outcome
from pollconsumer.runtime.handling.shield import in_force
from pollconsumer.runtime.system.stray_forks import end_stray
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from pollconsumer.runtime.handling.coroutines.event_loop import EventLoop


class InlineExecutor:
    """The executor of one slot: `start` returns after the message was handled."""

    slots = 1
    busy = 0

    def __init__(self, clock: Any = time.monotonic) -> None:
        self._clock = clock
        self._finished: list[Handled] = []
        self._loop: EventLoop | None = None
        self._pid = os.getpid()

    def start(self, attempt: Attempt) -> None:
        token = IN_SLOT.set(attempt.reservation)
        started = self._clock()
        _, handler, payload, context = attempt
        handle = self._turning(handler) if handler.asynchronous else handler.handle
        outcome = handle(payload, context)
        end_stray(self._pid, outcome.error)
        ended = self._clock()
        IN_SLOT.reset(token)
        self._finished.append(Handled(attempt, started, ended, outcome))

    def _turning(self, handler: Handler) -> Callable[[dict[str, Any], LaunchContext | None], Outcome]:
        if self._loop is None:
            from pollconsumer.runtime.handling.coroutines.event_loop import EventLoop

            try:
                self._loop = EventLoop(thread=False)
            except (RuntimeError, OSError):
                return handler.handle  # `handle` tries to make a loop again, and has the error as outcome
        return self._loop.turning(handler)

    def finished(self) -> list[Handled]:
        finished, self._finished = self._finished, []
        return finished

    def lock(self) -> AbstractContextManager[Any]:
        return threading.Lock()

    def wait(self, seconds: float, descriptor: int | None = None) -> None:  # noqa: ARG002  the protocol has it
        raise AssertionError("there is nothing to wait for")

    def stop(
        self,
        reservation: Reservation,  # noqa: ARG002  the one in hand
        seconds: float,
        in_hand: Callable[[], bool],
    ) -> None:
        limit = in_force.get(threading.get_ident())
        if limit is not None:
            limit.hasten(seconds)
            return
        from pollconsumer.runtime.handling.interrupts import untimed

        if not untimed.interrupt(seconds, in_hand) and self._loop is not None:
            self._loop.stop(None, seconds)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()
