"""Signals: the first asks the launch to finish what is in hand, a second ends it at once."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Interruption:
    """Whether the launch was asked to stop.

    The signal's own code only notes the fact: it runs between any two instructions, where no lock may be taken and no
    reply left unread.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._leave = os._exit

    def install(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._receive)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as a shell may leave it, no child could be waited for

    def __bool__(self) -> bool:
        return self.signal is not None

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            self._leave(130 if number == signal.SIGINT else 143)
        self.signal = number
