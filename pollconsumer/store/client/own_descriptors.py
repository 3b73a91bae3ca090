"""Descriptors that we open, in a process whose handlers may close descriptors that they did not open; and a wait for
descriptors that does not end late.

The system reuses closed numbers: so ours must not be one of the standard three, where a connection would receive a
handler's output, and a number is closed only while it is still the same file.
"""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import NamedTuple

STANDARD = (0, 1, 2)
HIGHEST = 8192
"""The number below which copies get theirs, or a lower limit: code that closes all descriptors often stops earlier. It
is not higher, since each fork copies the table of descriptors up to the highest number."""
COPIES = 16
LOWEST = 64
"""The number of descriptors up to which, as a limit, none is copied or reserved."""

changing_standard = Lock()
"""A lock that is held while one of the standard three is opened."""
HELD_FOR = 0.5
"""Seconds after which its holder is taken to have been interrupted by a signal handler that raised."""
SHORT = 0.02
"""Seconds up to which a wait is left to the system."""
LATE = 0.005
END = 0.0005
"""The end of a longer wait, which is waited for by itself: ``LATE`` is a part of the whole, ``END`` is in seconds,
since a processor takes its time to wake up, too."""


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
            return Opened.now(self.number) == self
        except OSError:
            return False

    def close(self) -> None:
        """Close the descriptor, unless it was closed or is another file by now."""
        if self.is_open():
            os.close(self.number)


def high_copy(number: int) -> Opened | None:
    """A copy of one of the standard three; None if it is closed, or fewer descriptors are allowed."""
    limit = os.sysconf("SC_OPEN_MAX")
    highest = min(limit, HIGHEST) if limit >= 0 else HIGHEST
    try:
        return Opened.now(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, max(LOWEST, highest - COPIES)))
    except OSError:
        return None


def is_open(number: int) -> bool:
    """Whether ``number`` is an open descriptor."""
    try:
        os.get_inheritable(number)
    except OSError:
        return False
    return True


@contextmanager
def above_standard() -> Iterator[None]:
    """Give descriptors that are opened in this block numbers from 3 on."""
    if all(map(is_open, STANDARD)):
        yield
        return
    held, taken = changing_standard.acquire(timeout=HELD_FOR), list[int]()
    try:
        while (number := os.open(os.devnull, os.O_RDWR)) in STANDARD:
            taken.append(number)
        os.close(number)
        yield
    finally:
        for number in taken:
            os.close(number)
        if held:
            changing_standard.release()


def wait_readable(descriptors: Sequence[int], seconds: float) -> Sequence[int]:
    """Which of ``descriptors`` are readable within ``seconds``.

    Linux ends `select` late by up to a thousandth of its timeout, or 50 µs, so that timers expire together; in a
    process with a positive nice value by up to five thousandths (``select_estimate_accuracy`` in ``fs/select.c``). Half
    a second of waiting would make a due message late by half a millisecond. So the end of a wait is waited for by
    itself.
    """
    until = monotonic() + seconds
    if seconds > SHORT and (ready := _readable(descriptors, seconds * (1 - LATE) - END)):
        return ready
    return _readable(descriptors, max(0.0, until - monotonic()))


def _readable(descriptors: Sequence[int], seconds: float) -> Sequence[int]:
    try:
        return select.select(descriptors, (), (), seconds)[0]
    except ValueError:  # a number that select does not take, from 1024 on
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        return [descriptor for descriptor, _ in poll.poll(seconds * 1000)]
