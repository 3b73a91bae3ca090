"""Signals: the first asks the launch to finish what is in hand, a second one ends it immediately."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CALL = signal.SIGURG
"""The signal by which the heartbeat says that a message in hand is to stop. It is ignored where it is not expected, as
by a program that has replaced the launch."""
STDERR = 2
STOPS = b"\npollconsumer: stops as soon as what is in hand has ended; Ctrl-C again stops at once\n"
LOOK_EVERY = 0.1
"""Seconds between looks for the file: the loop asks between any two messages."""


class Terminated(KeyboardInterrupt):
    """A signal other than Ctrl-C has asked a command to end."""


@contextmanager
def raising_terminations() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise `Terminated` within the block, so that what was begun is cleared away, or told. A
    signal that is ignored, or has a handler, is left as it is."""
    in_main = threading.current_thread() is threading.main_thread()
    plain = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]

    def terminate(*_: object) -> NoReturn:
        raise Terminated

    for number in plain if in_main else ():
        signal.signal(number, terminate)
    try:
        yield
    finally:
        for number in plain if in_main else ():
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
        return self.signal is not None or (self._file is not None and self._exists(self._file))

    def _exists(self, file: str) -> bool:
        if self._look_at <= (now := time.monotonic()):
            self._look_at = inf if os.path.exists(file) else now + LOOK_EVERY  # noqa: PTH110  it never raises
        return self._look_at == inf

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(130 if number == signal.SIGINT else 143)
        self.signal = number
        if number == signal.SIGINT and os.isatty(STDERR):
            with suppress(OSError):
                os.write(STDERR, STOPS)  # without a lock
