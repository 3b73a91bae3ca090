"""Signals: the first asks the launch to finish what is in flight, the second ends it immediately.

If a handler, or another function of the user's, forks a process, the fork has Python's default handling of signals, and
exits when it returns from that function. Otherwise it would continue as a second launch: it would settle the message,
handle others under the same lease, and run beyond the window, since the fork has no watchdog thread. It would also keep
standard output open, and cron waits until that is closed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CALL = signal.SIGURG
"""The heartbeat sends this signal to the launch when a message in flight must stop. Its default action is to be
ignored, so it does no harm to a program that has replaced the launch (exec)."""
STDERR = 2
STOPS = b"\npollconsumer: stops as soon as what is in flight has ended; Ctrl-C again stops at once\n"
LOOK_EVERY = 0.1
"""Seconds between two checks for the stop file. The loop asks before every message, which would be too often."""


class Terminated(KeyboardInterrupt):
    """A signal other than Ctrl-C has asked a command to end."""


@contextmanager
def raising_terminations() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP raise `Terminated`, so that a command can clean up, or report. A signal that
    was ignored, or already had a handler, is left unchanged."""
    in_main = threading.current_thread() is threading.main_thread()
    by_default = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]

    def terminate(*_: object) -> NoReturn:
        raise Terminated

    for number in by_default if in_main else ():
        signal.signal(number, terminate)
    try:
        yield
    finally:
        for number in by_default if in_main else ():
            signal.signal(number, signal.SIG_DFL)


class StopRequest:
    """Whether the launch was asked to stop, by a signal or a file. The signal handler only sets a flag: it may run in
    the middle of any other code, so it must not take a lock or interrupt a reply of the store."""

    def __init__(self, file: str | None = None) -> None:
        """``file``: its existence also asks for a stop, as Azure's WEBJOBS_SHUTDOWN_FILE. None: only signals do."""
        self.signal: int | None = None
        self._file, self._look_at = file, 0.0

    def install(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._receive)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, as some shells leave it, waitpid fails

    def __bool__(self) -> bool:
        if self.signal is not None or self._file is None:
            return self.signal is not None
        if self._look_at <= (now := time.monotonic()):
            self._look_at = inf if os.path.exists(self._file) else now + LOOK_EVERY  # noqa: PTH110  it never raises
        return self._look_at == inf

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(130 if number == signal.SIGINT else 143)
        self.signal = number
        if number == signal.SIGINT and os.isatty(STDERR):
            with suppress(OSError):
                os.write(STDERR, STOPS)  # without a lock


def handle_signals_plainly_in_forks(numbers: Iterable[int]) -> None:
    """Let processes that are forked from now on have Python's default handlers for the signals ``numbers``, instead of
    this process's current ones. If users' code replaces a handler later, forks keep that replacement."""
    ours = {number: signal.getsignal(number) for number in numbers}

    masks = threading.local()

    def block() -> None:  # otherwise a signal before the fork has restored them would reach our handlers
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, ours)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def restore() -> None:
        for number, handler in ours.items():
            if signal.getsignal(number) == handler:
                by_default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
                signal.signal(number, by_default)
        if str(getattr(signal.getsignal(signal.SIGALRM), "__module__", "")).startswith("pollconsumer."):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a timeout's timer, which the fork has not
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)


def end_stray(pid: int, error: BaseException | None) -> None:
    """Exit if this process is a fork that returned from users' code, which the process ``pid`` had called. ``error``:
    the exception that users' code raised, or None."""
    if os.getpid() == pid:
        return
    flush_streams()
    os._exit(0 if error is None or (isinstance(error, SystemExit) and not error.code) else 1)


def flush_streams() -> None:
    """Flush ``sys.stdout`` and ``sys.stderr``, even if handlers have replaced them."""
    for name in ("stdout", "stderr"):
        with suppress(Exception):  # deleted or closed by a handler, full, or an object of a user's
            getattr(sys, name).flush()
