"""Ends a process that exceeds its time: exit code 124, with every stack in the log.

A thread does it, unless a handler holds the GIL, or the system refused the thread; then faulthandler's C thread does,
half a second later and with exit code 1, since it cannot set another.
"""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.runtime.system.start_limit import (
    WITHOUT_INTERPRETER_AFTER,
    end_with_stacks,
    end_without_interpreter,
)


class Watchdog:
    def __init__(self, at: Callable[[], float], last_act: Callable[[], str]) -> None:
        """End the process ``at`` an instant of the monotonic clock, which may move while it is awaited, unless
        disarmed. ``last_act`` is called then, and returns the line above the stacks."""
        self._at, self._last_act = at, last_act
        self._disarmed = threading.Event()
        self._striking = threading.Lock()
        faulthandler.enable(file=self.bound(at()))  # a handler may crash in C
        with suppress(RuntimeError):
            start_thread("watchdog", self._watch)

    def bound(self, latest: float) -> int:
        """Have the process end a little after ``latest`` even where Python cannot act. Returns the descriptor for its
        stacks."""
        return end_without_interpreter(max(0.0, latest - time.monotonic()) + WITHOUT_INTERPRETER_AFTER)

    def disarm(self, instead: Callable[[], None] = faulthandler.cancel_dump_traceback_later) -> None:
        """Lift the limit; ``instead`` sets another one in its place."""
        with self._striking:
            self._disarmed.set()
            instead()

    def _watch(self) -> None:
        while (left := self._at() - time.monotonic()) > 0:
            if self._disarmed.wait(left):
                return
        with self._striking:
            if not self._disarmed.is_set():
                end_with_stacks(self._last_act())
