"""The watchdog of this process. At the time limit it ends the process with exit code 124, and logs the stacks of all
threads.

Its limit is set when the process starts, and is replaced for what follows: a short command, a launch, the exit. Before
the heartbeat is forked, SIGALRM triggers it, since a fork is safe only in a process without a second thread. Afterwards
a thread triggers it, since handlers use SIGALRM for their timeouts. If Python cannot act, because a handler holds the
GIL, a mount does not answer, or no thread can be started, faulthandler's C thread ends the process a little later. The
exit code is then 1, since faulthandler has no other.

A process that has done its work exits by ``os._exit``, with its own code. Python's normal exit would join every thread
that a handler has left running, and takes longer than many launches work. `leave` does what must not be skipped, within
one time limit: what a launch does after it has released its lease, functions registered with ``atexit`` (Sentry and
OpenTelemetry send their data there), and flushing the standard streams."""

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
"""Seconds within which a process must have read its settings. Then the limit of its launch replaces this one."""
WITHOUT_INTERPRETER_AFTER = 0.5
"""Seconds after the limit of a start, a command or a launch. If the watchdog has not ended the process by then,
faulthandler's thread does."""
EXIT_CODE = 124
NOT_READ = "settings not read"
_ours = False
"""Whether this process runs our command. False in a program that only imports pollconsumer: it has no watchdog."""
EXIT_WITHIN = 5.0
"""The time limit of an exit, in seconds."""
FOR_THE_REST = 0.5
"""Seconds within `EXIT_WITHIN` that are kept for functions registered with ``atexit``."""
AT_LEAST = 0.2
NOTED_WITHIN = 0.2
"""Seconds each for a line in the log and the functions of `at_the_end`, if the exit exceeds its time limit."""
HELD_EXIT_ENDS_AFTER = 2.0
"""Seconds after the exit's time limit. If a function holds the GIL, so that the watchdog could not end the process by
then, faulthandler's thread ends it, with exit code 1. A busy machine delays the watchdog by less."""
CUT_OFF = (
    b"pollconsumer: warning: hooks on_launch_end or functions registered with atexit took too long; they were cut off\n"
)
LateAct = Callable[[Callable[[], float]], None]
"""Called before the exit, with a function that returns how many seconds are left for it."""
_gone_by: list[float] = []
_cut_off_at: list[float] = []
_late_acts: list[LateAct] = []
_last_acts: list[Callable[[], None]] = []


class Watchdog:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        """A lock, too: held while the watchdog ends the process, so that no other thread changes the limit then."""
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
        """Let a thread call ``strike`` at the instant ``at()`` of the monotonic clock. ``at`` is called again and
        again, so the instant may change. Replaces an earlier limit."""
        with self._changed:
            self._at, self._strike = at, strike
            self._changed.notify()
            if not self._watches:
                with suppress(RuntimeError):
                    start_thread("watchdog", self._watch)
                    self._watches = True
        _clear_alarm()

    def bound(self, seconds: float, late: float = WITHOUT_INTERPRETER_AFTER) -> int:
        """Let faulthandler's thread end the process with exit code 1, after ``seconds`` and ``late``. Replaces an
        earlier bound. Returns the descriptor to which it writes stacks. OSError if no descriptor is left, RuntimeError
        if no thread can be started."""
        output = standard_error.unblocked()
        faulthandler.dump_traceback_later(max(0.0, seconds) + late, exit=True, file=output)
        return output

    def lift(self, instead: Callable[[], object] = faulthandler.cancel_dump_traceback_later) -> None:
        """Lift the limit. ``instead`` is called then; by default it cancels faulthandler's bound, too."""
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
    """Limit the start of the command: `START_WITHIN`. Without this call, `limit` and `lift` do nothing."""
    global _ours
    _ours = True
    limit()


def limit(seconds: float | None = None, what: str = NOT_READ) -> None:
    """End the command's process after ``seconds``, by default `START_WITHIN`, with the error ``what`` and all stacks.
    Replaces an earlier limit, and is undone by `lift`."""
    if _ours:
        seconds = seconds or START_WITHIN
        WATCHDOG.limit(seconds, partial(end_with_stacks, f"{what}: {seconds:g}s"))


def lift() -> None:
    """Lift the limit: nothing bounds the command's process any more."""
    if _ours:
        WATCHDOG.lift()


def raise_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt in the command's process from now on. Until then it ends the process at once,
    since an exception during an import would leave a module half imported, and some modules swallow it."""
    if _ours and signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, signal.SIG_DFL):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _end_if_interrupted


def watch(at: Callable[[], float], last_act: Callable[[], str]) -> None:
    """At the instant ``at()`` of the monotonic clock (see `Watchdog.watch`), call ``last_act``, print the line that it
    returns, print all stacks, and end the process. `lift` undoes this. RuntimeError if no thread can be started."""
    faulthandler.enable(file=WATCHDOG.bound(at() - time.monotonic()))  # a handler may crash in C
    WATCHDOG.watch(at, lambda: end_with_stacks(last_act()))


def end_with_stacks(what: str) -> None:
    """End the process with the watchdog's exit code, after printing ``what`` as an error, and all stacks."""
    try:
        standard_error.write_stacks(f"pollconsumer: error: {what}; its stacks follow\n")
    finally:
        os._exit(EXIT_CODE)


def _clear_alarm() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _end_if_interrupted(unraisable: sys.UnraisableHookArgs) -> None:
    """End the process if Ctrl-C interrupted a finaliser or an import: Python would print the exception and continue."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(unraisable)


def leave_by(instant: float) -> None:
    """Let a later exit end before ``instant``, on the monotonic clock."""
    _gone_by[:] = [instant]


def before_exit(act: LateAct) -> None:
    """Let `finish` call ``act``, after those that were added before."""
    _late_acts.append(act)


def at_the_end(act: Callable[[], None]) -> None:
    """Let `leave` call ``act`` last of all."""
    _last_acts.append(act)


def finish(code: int) -> None:
    """Call each function given to `before_exit` once, within the time limit of an exit. If they take longer, the
    watchdog ends the process with ``code``."""
    if _late_acts:
        _limit_exit(code)
    while _late_acts:
        _late_acts.pop(0)(_left)


def leave(code: int) -> NoReturn:
    """Exit this process with ``code``, after the functions of `before_exit`, ``atexit`` and `at_the_end`."""
    _limit_exit(code)
    finish(code)
    flush_streams()
    atexit._run_exitfuncs()  # noqa: SLF001  # has no public name; multiprocessing calls it, too
    flush_streams()
    _act_last()
    os._exit(code)


def _limit_exit(code: int) -> None:
    """Start the time limit of the exit, at the first call. From then on a signal exits at once, with ``code``."""
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
    """The launch is over: replace its limit by `EXIT_WITHIN`, within which the exit must begin."""
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
