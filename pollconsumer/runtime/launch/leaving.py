"""Exits a process immediately, with its own code.

The interpreter's normal exit joins every thread that a handler left behind, and its teardown costs more than the work
of many a launch. What must not be skipped is done here: functions registered with ``atexit`` (Sentry and OpenTelemetry
send their data there), for a bounded time, and flushing of the standard streams.
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
from typing import NoReturn

from pollconsumer.runtime.launch.signals import SIGNALS

LEAVE_WITHIN = 5.0
"""Seconds for functions registered with ``atexit``."""
AT_LEAST = 0.2
WITHOUT_INTERPRETER_AFTER = 2.0
"""Seconds later faulthandler's thread ends the process, with 1: a function may hold the GIL. More than the first thread
may be delayed on a busy machine."""
CUT_OFF = b"pollconsumer: warning: functions registered with atexit took too long; they were cut off\n"

_gone_by: list[float] = []
_last_acts: list[Callable[[], None]] = []


def leave_by(instant: float) -> None:
    """Bound a later `leave` by ``instant`` on the monotonic clock: a launch's hard end."""
    _gone_by[:] = [instant]


def at_the_end(act: Callable[[], None]) -> None:
    """Have `leave` call it last of all."""
    _last_acts.append(act)


def leave(code: int) -> NoReturn:
    """Exit this process with ``code``."""
    for number in SIGNALS:
        signal.signal(number, lambda *_: os._exit(code))
    left = min(LEAVE_WITHIN, *(instant - time.monotonic() for instant in _gone_by), LEAVE_WITHIN)
    left = max(AT_LEAST, left)
    with suppress(RuntimeError):  # no thread can be started
        threading.Thread(target=_cut_off, args=(left, code), daemon=True).start()
        faulthandler.dump_traceback_later(left + WITHOUT_INTERPRETER_AFTER, exit=True, file=2)
    _flush()
    atexit._run_exitfuncs()  # noqa: SLF001  # has no public name; multiprocessing calls it, too
    _flush()
    while _last_acts:
        with suppress(Exception):
            _last_acts.pop()()
    os._exit(code)


def _cut_off(seconds: float, code: int) -> None:
    time.sleep(seconds)
    with suppress(OSError):
        os.write(2, CUT_OFF)
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, full, or a user's object
            stream.flush()
