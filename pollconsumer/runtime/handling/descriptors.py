"""Descriptors of ours that a handler closes though it did not open them: code that makes daemons closes all there are.
And those that it opens and never closes, until there are none for us.

A number that was closed is given away again, so that open is not enough: it must still be the same file.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress

from pollconsumer.store.own_descriptors import STANDARD, Opened, above_standard, changing_standard, is_open

HIGHEST = 8192
"""Copies get numbers just below this or, where fewer are allowed, just below the limit: what closes all there are
mostly ends before. The system's table of descriptors, which each fork copies, is as long as the highest number."""
COPIES = 16
LOWEST = 64
"""Where no more descriptors than this are allowed, none is spent on a copy, nor kept."""
SPARE = 8
USED_UP = (errno.EMFILE, errno.ENFILE)


class Outputs:
    """Standard output and error as they are now, to be put back where they are closed; what a handler has put in their
    place stays."""

    def __init__(self) -> None:
        self._copies: dict[int, Opened] = {}
        limit = os.sysconf("SC_OPEN_MAX")
        highest = min(limit, HIGHEST) if limit >= 0 else HIGHEST
        for number in (1, 2):
            with suppress(OSError):  # closed, or fewer descriptors are allowed
                copy = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, max(LOWEST, highest - COPIES))
                self._copies[number] = Opened.now(copy)

    def put_back(self) -> bool:
        """Those that were closed. Whether any was."""
        with changing_standard:
            if is_open(1) and is_open(2):
                return False
            for number in STANDARD:
                if not is_open(number):
                    with suppress(OSError):
                        self._open(number)
        return True

    def _open(self, number: int) -> None:
        """Unless a handler on another thread opens a file that gets the number first."""
        copy = self._copies.get(number)
        source = copy.number if copy is not None and copy.is_open() else os.open(os.devnull, os.O_RDWR)
        if source == number:
            os.set_inheritable(number, True)
            return
        given = fcntl.fcntl(source, fcntl.F_DUPFD, number)
        if given != number:
            os.close(given)
        if copy is None or source != copy.number:
            os.close(source)

    def close(self) -> None:
        for copy in self._copies.values():
            copy.close()
        self._copies.clear()

    __del__ = close


class Sample:
    """A descriptor of ours by which others are judged: what closes it closes more.

    It is one end of a pipe, a file that nobody else can have open: /dev/null under the same number may be anybody's.
    """

    def __init__(self) -> None:
        self._opened = self._open()

    @staticmethod
    def _open() -> Opened:
        with above_standard():
            end, other = os.pipe()
        os.close(other)
        return Opened.now(end)

    def was_closed(self) -> bool:
        """Since the last call."""
        if self._opened.is_open():
            return False
        self._opened = self._open()
        return True

    def close(self) -> None:
        self._opened.close()

    __del__ = close


class Spare:
    """Descriptors that are kept for the launch's own end, for which modules and scripts are read: what handlers leak is
    open for as long as the process lives."""

    def __init__(self) -> None:
        self._held = self._open()

    @staticmethod
    def _open() -> list[Opened]:
        """Ends of a pipe of their own, as in `Sample`."""
        held: list[Opened] = []
        if 0 <= os.sysconf("SC_OPEN_MAX") <= LOWEST:
            return held
        with above_standard(), suppress(OSError):
            end, other = os.pipe()
            os.close(other)
            held.append(Opened.now(end))
            while len(held) < SPARE:
                held.append(Opened.now(os.dup(end)))
        return held

    def given_up(self) -> bool:
        """Give them up where there is no other one left. Whether this call did."""
        try:
            if self._held:
                os.close(os.dup(self._held[-1].number))
        except OSError as error:
            if error.errno in USED_UP:
                self.close()
                return True
            self.close()  # a handler closed them
            self._held = self._open()
        return False

    def close(self) -> None:
        held, self._held = self._held, []
        for each in held:
            each.close()

    __del__ = close
