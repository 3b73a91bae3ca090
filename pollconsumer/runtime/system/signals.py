"""Signals: the first asks the launch to finish what is in flight, a second one ends it immediately.

A process that the user's code forks ends at signals as any Python program does.

One that returns from the user's code exits: it would continue as a second launch. It would settle the
message, handle others under the same lease, outlive the window without a watchdog, whose thread is not forked, and keep
open the output that cron waits for.
"""

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
"""The signal by which the heartbeat says that a message in flight is to stop. It is ignored where it is not expected,
as by a program that has replaced the launch."""
STDERR = 2
STOPS = b"\npollconsumer: stops as soon as what is in flight has ended; Ctrl-C again stops at once\n"
LOOK_EVERY = 0.1
"""Seconds between looks for the file: the loop asks between any two messages."""


class Terminated(KeyboardInterrupt):
    """A signal other than Ctrl-C has asked a command to end."""


@contextmanager
def raising_terminations() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise `Terminated` within the block, so that what was begun is cleared away, or told. A
    signal that is ignored, or has a handler, is left as it is."""
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
    """Whether the launch was asked to stop. The signal handler only sets a flag: it runs between any two instructions,
    where it must not take a lock or leave a reply unread."""

    def __init__(self, file: str | None = None) -> None:
        """``file``: one that asks for a stop, too, once it exists, as Azure's WEBJOBS_SHUTDOWN_FILE does."""
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
    """Have processes that are forked from now on end at these signals, as those of any Python program do, where this
    one has handlers of ours; those that the user's code has set meanwhile stay."""
    ours = {number: signal.getsignal(number) for number in numbers}

    masks = threading.local()

    def block() -> None:  # one that comes before the fork has restored them would be ours
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, ours)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def restore() -> None:
        for number, handler in ours.items():
            if signal.getsignal(number) == handler:
                by_default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
                signal.signal(number, by_default)
        if str(getattr(signal.getsignal(signal.SIGALRM), "__module__", "")).startswith("pollconsumer."):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a timeout's, which is not the fork's
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)


def end_stray(pid: int, error: BaseException | None) -> None:
    """Exit this process unless it is ``pid``, which called the handler, hook or module; ``error`` is its exception."""
    if os.getpid() == pid:
        return
    flush_streams()
    os._exit(0 if error is None or (isinstance(error, SystemExit) and not error.code) else 1)


def flush_streams() -> None:
    """Flush standard output and error, whatever handlers have put in their places, or left there."""
    for name in ("stdout", "stderr"):
        with suppress(Exception):  # deleted or closed by a handler, full, or an object of a user's
            getattr(sys, name).flush()
