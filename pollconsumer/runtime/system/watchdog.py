"""The watchdog of this process, which ends it when its time is over: with 124, and every stack in the log.

It is set when the process starts, and again for what follows: a short command, a launch, the exit. SIGALRM strikes
before the heartbeat is forked, when no second thread may run; afterwards a thread does, since handlers have SIGALRM for
their timeouts. Where Python cannot act, as where a handler holds the GIL, or a mount does not answer, or where the
system refuses the thread, faulthandler's C thread ends the process, a little later and with 1, since it cannot set
another code.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from pollconsumer.runtime.system import standard_error
from pollconsumer.runtime.system.own_threads import start_thread

START_WITHIN = 30.0
"""Seconds until a process has read its settings: a launch is then bounded by its window."""
WITHOUT_INTERPRETER_AFTER = 0.5
"""Seconds after the limit of a start, a command or a launch at which faulthandler's thread ends the process, if the
watchdog could not."""
EXIT_CODE = 124
NOT_READ = "settings not read"
_ours = False
"""Whether the process is the command's, and not one that imports it."""


class Watchdog:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        """Held while the watchdog strikes: whoever sets or lifts the limit then, waits for the end of the process."""
        self._at: Callable[[], float] | None = None
        self._strike: Callable[[], object] = lambda: None
        self._watches = False

    def limit(self, seconds: float, strike: Callable[[], object]) -> None:
        """Have SIGALRM call ``strike`` after ``seconds``."""
        with suppress(OSError, RuntimeError):  # no descriptor is left, or the system refuses another thread
            self.bound(seconds)
        signal.signal(signal.SIGALRM, lambda *_: strike())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def watch(self, at: Callable[[], float], strike: Callable[[], object]) -> None:
        """Have a thread call ``strike`` ``at`` an instant of the monotonic clock, which may move while it is awaited,
        in place of an earlier limit."""
        with self._changed:
            self._at, self._strike = at, strike
            self._changed.notify()
            if not self._watches:
                with suppress(RuntimeError):
                    start_thread("watchdog", self._watch)
                    self._watches = True
        _clear_alarm()

    def bound(self, seconds: float, late: float = WITHOUT_INTERPRETER_AFTER) -> int:
        """Have faulthandler's thread end the process, with 1, ``late`` after ``seconds``, in place of an earlier bound.
        Returns the descriptor for its stacks. OSError, RuntimeError: no descriptor is left; no thread can be
        started."""
        output = standard_error.unblocked()
        faulthandler.dump_traceback_later(max(0.0, seconds) + late, exit=True, file=output)
        return output

    def lift(self, instead: Callable[[], object] = faulthandler.cancel_dump_traceback_later) -> None:
        """Lift the limit; ``instead`` bounds the process in its place."""
        with self._changed:
            self._at = None
            self._changed.notify()
            instead()
        _clear_alarm()

    def _watch(self) -> None:
        with self._changed:
            while self._at is not None:
                if (left := self._at() - time.monotonic()) <= 0:
                    self._strike()
                self._changed.wait(left)
            self._watches = False


WATCHDOG = Watchdog()


def limit_start() -> None:
    """Bound this process, the command's, from its first line on."""
    global _ours
    _ours = True
    limit()


def limit(seconds: float | None = None, what: str = NOT_READ) -> None:
    """End the command's process after ``seconds``, by default `START_WITHIN`, saying ``what``, unless the limit is
    lifted. It replaces an earlier limit."""
    if _ours:
        seconds = seconds or START_WITHIN
        WATCHDOG.limit(seconds, partial(end_with_stacks, f"{what}: {seconds:g}s"))


def lift() -> None:
    """Lift the limit: nothing bounds the command's process any more."""
    if _ours:
        WATCHDOG.lift()


def raise_interrupts() -> None:
    """Have Ctrl-C raise KeyboardInterrupt in the command's process. While modules are imported it ends the process at
    once: an exception leaves them half done, and some swallow it."""
    if _ours and signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, signal.SIG_DFL):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _end_if_interrupted


def watch(at: Callable[[], float], last_act: Callable[[], str]) -> None:
    """End the process ``at`` an instant, see `Watchdog.watch`, unless it is lifted. ``last_act`` is called then, and
    returns the line above the stacks. RuntimeError if the system refuses every thread."""
    faulthandler.enable(file=WATCHDOG.bound(at() - time.monotonic()))  # a handler may crash in C
    WATCHDOG.watch(at, lambda: end_with_stacks(last_act()))


def end_with_stacks(what: str) -> None:
    """End the process at its limit, telling ``what`` happened and every stack."""
    try:
        standard_error.write_stacks(f"pollconsumer: error: {what}; its stacks follow\n")
    finally:
        os._exit(EXIT_CODE)


def _clear_alarm() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _end_if_interrupted(unraisable: sys.UnraisableHookArgs) -> None:
    """End the process where a finaliser or an import was interrupted: Python would print that, and go on."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(unraisable)
