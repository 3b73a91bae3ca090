"""Ends a process that exceeds its time: exit code 124, with every stack in the log.

A thread does it, unless a handler holds the GIL, or the system refused the thread; then faulthandler's C thread does,
half a second later and with exit code 1, since it cannot set another.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from pollconsumer.runtime.system import standard_error
from pollconsumer.runtime.system.own_threads import start_thread

WITHOUT_INTERPRETER_AFTER = 0.5
EXIT_CODE = 124


class Watchdog:
    def __init__(self, seconds: float, last_act: Callable[[], str]) -> None:
        """Strikes after ``seconds``, unless disarmed. ``last_act`` is called then, and returns the line above the
        stacks."""
        self._last_act = last_act
        unblocked = standard_error.unblocked()
        faulthandler.enable(file=unblocked)  # a handler may crash in C
        self._disarmed = threading.Event()
        self._striking = threading.Lock()
        faulthandler.dump_traceback_later(seconds + WITHOUT_INTERPRETER_AFTER, exit=True, file=unblocked)
        with suppress(RuntimeError):
            start_thread(self._watch, seconds)

    def disarm(self, instead: Callable[[], None] = faulthandler.cancel_dump_traceback_later) -> None:
        """``instead`` sets another limit in its place."""
        with self._striking:
            self._disarmed.set()
            instead()

    def _watch(self, seconds: float) -> None:
        if not self._disarmed.wait(seconds):
            with self._striking:
                if not self._disarmed.is_set():
                    self._strike()

    def _strike(self) -> None:
        message = f"pollconsumer: error: {self._last_act()}; its stacks follow\n"
        try:
            standard_error.write_stacks(message)
        finally:
            os._exit(EXIT_CODE)
