"""The watchdog of this process. When the time is over, it ends the process with exit code 124, and writes every stack
to the log.

It is set when the process starts, and again for what follows: a short command, a launch, the exit. Before the heartbeat
is forked, SIGALRM triggers it, since no second thread may run. Afterwards a thread does, since handlers use SIGALRM for
their timeouts. Python may be unable to act: a handler holds the GIL, a mount does not answer, or the system refuses the
thread. Then faulthandler's C thread ends the process a little later, with exit code 1, since it cannot set another.

A process that has done its work exits immediately, with its own code. The interpreter's normal exit joins every thread
that a handler left behind, and its teardown costs more than the work of many a launch. What must not be skipped is done
here, in one bounded time: what a launch does after it has released its lease, functions registered with ``atexit``
(Sentry and OpenTelemetry send their data there), and flushing the standard streams.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NoReturn

from pollconsumer.runtime.system import standard_error
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.runtime.system.signals import SIGNALS, flush_streams

START_WITHIN = 30.0
"""A process must have read its settings within so many seconds. After that its window bounds a launch."""
WITHOUT_INTERPRETER_AFTER = 0.5
"""Seconds. If the watchdog could not end the process at the limit of a start, a command or a launch, faulthandler's
thread ends it so many seconds later."""
EXIT_CODE = 124
NOT_READ = "settings not read"
_ours = False
"""Whether the process belongs to the command, and is no program that imports it."""
EXIT_WITHIN = 5.0
"""Maximum seconds of an exit."""
FOR_THE_REST = 0.5
"""So many seconds of an exit are kept for functions registered with ``atexit``."""
AT_LEAST = 0.2
NOTED_WITHIN = 0.2
"""Seconds for the last acts of a process that is ended by force."""
HELD_EXIT_ENDS_AFTER = 2.0
"""So many seconds after the exit's limit, faulthandler's thread ends the process with exit code 1, since a function may
hold the GIL. Even a busy machine delays the watchdog's thread by less."""
CUT_OFF = (
    b"pollconsumer: warning: hooks on_launch_end or functions registered with atexit took too long; they were cut off\n"
)
LateAct = Callable[[Callable[[], float]], None]
"""Something to do before the exit. It is called with a function that returns how many seconds it has left."""
_gone_by: list[float] = []
_cut_off_at: list[float] = []
_late_acts: list[LateAct] = []
_last_acts: list[Callable[[], None]] = []


class Watchdog:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        """Held while the watchdog ends the process. Whoever sets or lifts the limit then waits for that."""
        self._at: Callable[[], float] | None = None
        self._strike: Callable[[], object] = lambda: None
        self._watches = False

    def limit(self, seconds: float, strike: Callable[[], object]) -> None:
        """Let SIGALRM call ``strike`` after ``seconds``."""
        with suppress(OSError, RuntimeError):  # no descriptor is left, or the system refuses another thread
            self.bound(seconds)
        signal.signal(signal.SIGALRM, lambda *_: strike())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def watch(self, at: Callable[[], float], strike: Callable[[], object]) -> None:
        """Let a thread call ``strike`` at the instant ``at()`` of the monotonic clock, instead of at an earlier limit.
        The instant may move meanwhile."""
        with self._changed:
            self._at, self._strike = at, strike
            self._changed.notify()
            if not self._watches:
                with suppress(RuntimeError):
                    start_thread("watchdog", self._watch)
                    self._watches = True
        _clear_alarm()

    def bound(self, seconds: float, late: float = WITHOUT_INTERPRETER_AFTER) -> int:
        """Let faulthandler's thread end the process with exit code 1, ``late`` seconds after ``seconds``, instead of at
        an earlier bound. Returns the descriptor for its stacks. OSError if no descriptor is left, RuntimeError if no
        thread can be started."""
        output = standard_error.unblocked()
        faulthandler.dump_traceback_later(max(0.0, seconds) + late, exit=True, file=output)
        return output

    def lift(self, instead: Callable[[], object] = faulthandler.cancel_dump_traceback_later) -> None:
        """Lift the limit. ``instead`` bounds the process in its place."""
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
    """Bound the command's process from its first line on."""
    global _ours
    _ours = True
    limit()


def limit(seconds: float | None = None, what: str = NOT_READ) -> None:
    """End the command's process after ``seconds``, by default `START_WITHIN`, and print ``what``, unless the limit is
    lifted before. Replaces an earlier limit."""
    if _ours:
        seconds = seconds or START_WITHIN
        WATCHDOG.limit(seconds, partial(end_with_stacks, f"{what}: {seconds:g}s"))


def lift() -> None:
    """Lift the limit: nothing bounds the command's process any more."""
    if _ours:
        WATCHDOG.lift()


def raise_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt in the command's process. While modules are imported, Ctrl-C ends the process
    at once: an exception would leave a module half imported, and some modules swallow it."""
    if _ours and signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, signal.SIG_DFL):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _end_if_interrupted


def watch(at: Callable[[], float], last_act: Callable[[], str]) -> None:
    """End the process at the instant ``at()``, see `Watchdog.watch`, unless the limit is lifted. Then ``last_act`` is
    called, and returns the line above the stacks. RuntimeError if the system refuses every thread."""
    faulthandler.enable(file=WATCHDOG.bound(at() - time.monotonic()))  # a handler may crash in C
    WATCHDOG.watch(at, lambda: end_with_stacks(last_act()))


def end_with_stacks(what: str) -> None:
    """End the process at its limit. Print ``what`` happened, and every stack."""
    try:
        standard_error.write_stacks(f"pollconsumer: error: {what}; its stacks follow\n")
    finally:
        os._exit(EXIT_CODE)


def _clear_alarm() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _end_if_interrupted(unraisable: sys.UnraisableHookArgs) -> None:
    """End the process if a finaliser or an import was interrupted: Python would print the exception, and continue."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(unraisable)


def leave_by(instant: float) -> None:
    """Let a later exit end before ``instant`` on the monotonic clock."""
    _gone_by[:] = [instant]


def before_exit(act: LateAct) -> None:
    """Let `finish` call ``act``, after acts that were given before."""
    _late_acts.append(act)


def at_the_end(act: Callable[[], None]) -> None:
    """Let `leave` call ``act`` last of all."""
    _last_acts.append(act)


def finish(code: int) -> None:
    """Call the functions that were given to `before_exit`, once each, within the time limit of an exit. If they exceed
    it, the watchdog ends the process with ``code``."""
    if _late_acts:
        _limit_exit(code)
    while _late_acts:
        _late_acts.pop(0)(_left)


def leave(code: int) -> NoReturn:
    """Exit this process with ``code``."""
    _limit_exit(code)
    finish(code)
    flush_streams()
    atexit._run_exitfuncs()  # noqa: SLF001  # has no public name; multiprocessing calls it, too
    flush_streams()
    _act_last()
    os._exit(code)


def _limit_exit(code: int) -> None:
    """Limit the time that is left, at the first call. From then on a signal ends the process at once, with ``code``."""
    if _cut_off_at:
        return
    for number in SIGNALS:
        signal.signal(number, lambda *_: os._exit(code))
    now = time.monotonic()
    seconds = max(AT_LEAST, min([EXIT_WITHIN, *(instant - now for instant in _gone_by)]))
    _cut_off_at.append(now + seconds)
    _bound(seconds)
    WATCHDOG.watch(lambda: _cut_off_at[0], partial(_cut_off, code))


def expect_exit() -> None:
    """The launch is over: limit the time until the exit begins."""
    WATCHDOG.lift(lambda: _bound(EXIT_WITHIN))


def _bound(seconds: float) -> None:
    with suppress(OSError, RuntimeError):  # standard error is closed, or the system refuses another thread
        WATCHDOG.bound(seconds, HELD_EXIT_ENDS_AFTER)


def _left() -> float:
    return max(AT_LEAST, _cut_off_at[0] - FOR_THE_REST - time.monotonic())


def _cut_off(code: int) -> None:
    with suppress(OSError):
        standard_error.write(CUT_OFF, within=NOTED_WITHIN)
    with suppress(RuntimeError):
        start_thread("last acts", _act_last).join(NOTED_WITHIN)
    os._exit(code)


def _act_last() -> None:
    while _last_acts:
        with suppress(Exception):
            _last_acts.pop()()
