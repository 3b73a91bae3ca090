"""Detects handlers that close our descriptors, as daemonizing code does, or that leak theirs until none are left.

Closed numbers are reused, so an open number must also still be the same file.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress

from pollconsumer.store.client.own_descriptors import (
    LOWEST,
    STANDARD,
    Opened,
    above_standard,
    changing_standard,
    high_copy,
    is_open,
)

RESERVED = 8
USED_UP = (errno.EMFILE, errno.ENFILE)


class Outputs:
    """Copies of standard output and error, to restore them when they are closed, but not when they are replaced."""

    def __init__(self) -> None:
        self._copies = {number: copy for number in (1, 2) if (copy := high_copy(number)) is not None}

    def restore(self) -> bool:
        """Reopen those of the standard three that are closed. Returns whether any was closed."""
        with changing_standard:
            if is_open(1) and is_open(2):
                return False
            for number in STANDARD:
                if not is_open(number):
                    with suppress(OSError):
                        self._open(number)
        return True

    def _open(self, number: int) -> None:
        """Open ``number``, as what it was. Does nothing if another thread takes the number first."""
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


def lowest_free(open_number: int) -> int:
    """The lowest number that is free; -1 if none is, or if ``open_number`` is not open."""
    try:
        lowest = os.dup(open_number)
    except OSError:
        return -1
    os.close(lowest)
    return lowest


class ProbeDescriptor:
    """A descriptor that shows whether a handler closes ours. It is one end of a pipe, since no other descriptor can be
    the same file; /dev/null could be reopened by anyone."""

    def __init__(self) -> None:
        self._open()

    def _open(self) -> None:
        with above_standard():
            self.number, other = os.pipe()
        os.close(other)
        self._opened = Opened.now(self.number)

    def is_open_above_standard(self) -> bool:
        """Whether the descriptor is open, so are the standard three, and another number is free."""
        return lowest_free(self.number) > STANDARD[-1] and self._opened.is_open()

    def was_closed(self) -> bool:
        """Whether the descriptor was closed since the last call; then opens another one."""
        if self._opened.is_open():
            return False
        self._open()
        return True

    def close(self) -> None:
        self._opened.close()

    __del__ = close


class Reserve:
    """Descriptors reserved for the launch's end, which reads modules and scripts, in case handlers leak all others."""

    def __init__(self) -> None:
        self._held = self._open()

    @staticmethod
    def _open() -> list[Opened]:
        """Copies of an end of a pipe, as in `ProbeDescriptor`."""
        held: list[Opened] = []
        if 0 <= os.sysconf("SC_OPEN_MAX") <= LOWEST:
            return held
        with above_standard(), suppress(OSError):
            end, other = os.pipe()
            os.close(other)
            held.append(Opened.now(end))
            while len(held) < RESERVED:
                held.append(Opened.now(os.dup(end)))
        return held

    def lowest_free(self) -> int:
        """The lowest number that is free, as `lowest_free` returns it; -1 also if no descriptor is reserved."""
        return lowest_free(self._held[-1].number) if self._held else -1

    def freed(self) -> bool:
        """Free the reserved descriptors if no other one is left. Returns whether this call did."""
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


class Table:
    """The descriptors of a process in which one message is handled at a time."""

    def __init__(self) -> None:
        self._outputs, self._sample, self._reserve = Outputs(), ProbeDescriptor(), Reserve()

    def checked(self) -> tuple[bool, bool]:
        """Whether handlers have closed descriptors of ours, and whether they have used up all."""
        if self._sample.is_open_above_standard():
            return False, False
        restored, closed = self._outputs.restore(), self._sample.was_closed()
        return restored or closed, self._reserve.freed()

    def close(self) -> None:
        self._outputs.close()
        self._sample.close()
        self._reserve.close()
