"""Signals: the first asks the launch to finish what is in hand, a second one ends it immediately."""

from __future__ import annotations

import os
import signal
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Interruption:
    """Whether the launch was asked to stop. The signal handler only sets a flag: it runs between any two instructions,
    where it must not take a lock or leave a reply unread."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._leave = os._exit

    def install(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._receive)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, as some shells leave it, waitpid fails

    def __bool__(self) -> bool:
        return self.signal is not None

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            self._leave(130 if number == signal.SIGINT else 143)
        self.signal = number
