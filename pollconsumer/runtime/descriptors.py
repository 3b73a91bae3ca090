"""Descriptors of ours that a handler closes though it did not open them: code that makes daemons closes all there are.

A number that was closed is given away again, so that open is not enough: it must still be the same file.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import NamedTuple

COPIES_FROM = 200
"""Copies get numbers from here on: what closes all there are mostly ends before."""


class Opened(NamedTuple):
    """A descriptor, and the file that it was opened for."""

    number: int
    file: tuple[int, int]

    @classmethod
    def now(cls, number: int) -> Opened:
        status = os.fstat(number)
        return cls(number, (status.st_dev, status.st_ino))

    def is_open(self) -> bool:
        try:
            status = os.fstat(self.number)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self.file

    def close(self) -> None:
        """Unless it was closed, or is somebody else's by now."""
        if self.is_open():
            os.close(self.number)


def is_open(number: int) -> bool:
    """Whether anything is open under it."""
    try:
        os.get_inheritable(number)
    except OSError:
        return False
    return True


class Outputs:
    """Standard output and error as they are now, to be put back where they are closed; what a handler has put in their
    place stays."""

    def __init__(self) -> None:
        self._copies: dict[int, Opened] = {}
        for number in (1, 2):
            with suppress(OSError):  # closed, or fewer descriptors are allowed
                copy = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, COPIES_FROM)
                self._copies[number] = Opened.now(copy)

    def put_back(self) -> bool:
        """Those that were closed. Whether any was."""
        if is_open(1) and is_open(2):
            return False
        for number in (0, 1, 2):
            if not is_open(number):
                with suppress(OSError):
                    self._open(number)
        return True

    def _open(self, number: int) -> None:
        copy = self._copies.get(number)
        if copy is not None and copy.is_open():
            os.dup2(copy.number, number)
            return
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, number)  # where it is that number already, it becomes inheritable
        if nowhere != number:
            os.close(nowhere)

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
