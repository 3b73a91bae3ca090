"""The last lines that handlers log and print, by message.

A message that logs nothing has no entry. A line belongs to the message that `IN_SLOT` has in the thread or task that
writes it. A thread that a handler starts has a message only if it was given the handler's context variables."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from pollconsumer.runtime.handling.slot_waits import IN_SLOT, InFlight

CUT = "[what came earlier is left out]\n"
ROOT = logging.getLogger()
LOGGING = "logging"
MOST_FRAMES = 16
"""How many callers of a stream's ``write`` may be between it and the module logging, as with the handlers of Rich."""
of_process: KeptLines | None = None
"""Where this process keeps lines; None if it keeps none."""


class Tail:
    """The last ``most`` bytes of what one attempt has logged and printed. Between cuts it holds up to twice as many."""

    __slots__ = ("_held", "_is_cut", "_most", "is_new")

    def __init__(self, most: int) -> None:
        self._held, self._most, self._is_cut = bytearray(), most, False
        self.is_new = True
        """Whether text was added since this was set to False."""

    def add(self, text: str, *, is_line: bool = False) -> None:
        """Add ``text``. ``is_line``: begin a new line before it, if the last one is unfinished."""
        held, most = self._held, self._most
        if is_line and held and not held.endswith(b"\n"):
            held += b"\n"
        held += text[-most:].encode("utf-8", "backslashreplace")
        if len(held) > 2 * most or len(text) > most:  # rarely, so that each byte is moved once at most
            self._is_cut = True
            del held[:-most]
        self.is_new = True

    def replace(self, text: str) -> None:
        """Replace all text by ``text``."""
        self._held.clear()
        self.add(text)

    def text(self) -> str:
        """The last ``most`` bytes. If there were more, a line before them says so."""
        held = bytes(self._held)
        if not self._is_cut and len(held) <= self._most:
            return held.decode()
        return CUT + held[-self._most :].decode("utf-8", "ignore")  # it may begin in the middle of a character


class KeptLines:
    """What each message in flight has logged and printed, up to ``most`` bytes. ``begun`` is called at a message's
    first text, in the thread that logs it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.tails: dict[InFlight, Tail] = {}
        self.begun: Callable[[], object] = bool
        self.keeper: logging.Handler | None = None
        """The log handler that adds records here. The logger `ROOT` has it, unless users' code has removed it."""

    def add(self, text: str, *, is_line: bool = False) -> None:
        """Keep ``text`` with the message that this thread handles. Without one, drop it."""
        message = IN_SLOT.get()
        if message is not None:
            tail = self.tails.get(message)
            if tail is None:
                tail = self.tails.setdefault(message, Tail(self.most))
                self.begun()
            tail.add(text, is_line=is_line)

    def add_printed(self, text: str) -> None:
        """Keep what was printed, unless the module logging wrote it: `keeper` keeps log records."""
        if IN_SLOT.get() is not None and not _is_written_by_logging():
            self.add(str.__str__(text))  # a str, and no subclass of the user's

    def replace(self, message: InFlight, text: str) -> None:
        """Replace what is kept of ``message`` by ``text``, which its handler's own process has reported."""
        if message not in self.tails:
            self.tails[message] = Tail(self.most)
            self.begun()
        self.tails[message].replace(text)

    def unreported(self, message: InFlight) -> str | None:
        """What ``message`` has logged and printed; None if that has not changed since the last call."""
        tail = self.tails.get(message)
        if tail is None or not tail.is_new:
            return None
        tail.is_new = False
        return tail.text()


def _is_written_by_logging() -> bool:
    frame = sys._getframe(3)  # noqa: SLF001  documented
    for _ in range(MOST_FRAMES):
        if frame.f_globals.get("__name__") == LOGGING:
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False
