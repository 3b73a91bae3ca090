"""Exits a process immediately, with its own code.

The interpreter's normal exit joins every thread that a handler left behind, and its teardown costs more than the work
of many a launch. What must not be skipped is done here, in one bounded time: what a launch has to do once its lease is
released, functions registered with ``atexit`` (Sentry and OpenTelemetry send their data there), and flushing of the
standard streams.
"""

from __future__ import annotations

import atexit
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NoReturn

from pollconsumer.runtime.system import standard_error
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.runtime.system.signals import SIGNALS
from pollconsumer.runtime.system.stray_forks import flush_streams
from pollconsumer.runtime.system.watchdog import WATCHDOG

EXIT_WITHIN = 5.0
"""Maximum seconds of an exit."""
FOR_THE_REST = 0.5
"""Seconds of an exit that are kept for functions registered with ``atexit``."""
AT_LEAST = 0.2
NOTED_WITHIN = 0.2
"""Seconds for the last acts of a process that is cut off."""
HELD_EXIT_ENDS_AFTER = 2.0
"""Seconds after the exit's limit at which faulthandler's thread ends the process, with 1: a function may hold the GIL.
A busy machine delays the watchdog's thread by less."""
CUT_OFF = (
    b"pollconsumer: warning: hooks on_launch_end or functions registered with atexit took too long; they were cut off\n"
)

LateAct = Callable[[Callable[[], float]], None]
"""What is done before the exit. It is given a function: how many seconds it has left."""

_gone_by: list[float] = []
_cut_off_at: list[float] = []
_late_acts: list[LateAct] = []
_last_acts: list[Callable[[], None]] = []


def leave_by(instant: float) -> None:
    """Bound a later exit by ``instant`` on the monotonic clock."""
    _gone_by[:] = [instant]


def before_exit(act: LateAct) -> None:
    """Have `finish` call ``act``, after acts that were given before."""
    _late_acts.append(act)


def at_the_end(act: Callable[[], None]) -> None:
    """Have `leave` call ``act`` last of all."""
    _last_acts.append(act)


def finish(code: int) -> None:
    """Do what was to be done before this process exits with ``code``."""
    if _late_acts:
        _limit(code)
    while _late_acts:
        _late_acts.pop(0)(_left)


def leave(code: int) -> NoReturn:
    """Exit this process with ``code``."""
    _limit(code)
    finish(code)
    flush_streams()
    atexit._run_exitfuncs()  # noqa: SLF001  # has no public name; multiprocessing calls it, too
    flush_streams()
    _act_last()
    os._exit(code)


def _limit(code: int) -> None:
    """Limit the time that is left, at the first call."""
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
    """Limit the time until the exit begins, now that the launch is over."""
    WATCHDOG.lift(lambda: _bound(EXIT_WITHIN))


def _bound(seconds: float) -> None:
    with suppress(OSError, RuntimeError):  # standard error is closed; the system refuses another thread
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
