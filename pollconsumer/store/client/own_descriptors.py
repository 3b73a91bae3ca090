"""Descriptors that are safe from handlers which close descriptors they did not open. And a wait that does not end late.

The system reuses the numbers of closed descriptors. A connection with number 1 would get a handler's output, so ours
are never 0, 1 or 2. A number is closed only while it still leads to the same file."""

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
"""Copies of descriptors have numbers just below this, or below a lower limit of the process: code that closes
descriptors in a loop often stops earlier. A fork copies the table up to the highest number, so this is no higher."""
COPIES = 16
LOWEST = 64
"""If the process may open no more descriptors than this, none is copied or reserved."""

changing_standard = Lock()
"""Held while one of the descriptors 0, 1 and 2 may be opened."""
HELD_FOR = 0.5
"""Seconds to wait for that lock. If it is held longer, a signal handler's exception has interrupted its holder."""
SHORT = 0.02
"""The longest wait, in seconds, that is one call of the system. A longer wait is split."""
LATE = 0.005
END = 0.0005
"""The last part of a split wait: a fraction ``LATE`` of the whole, and ``END`` seconds for the processor to wake up."""


class Opened(NamedTuple):
    """A descriptor, and device and inode of its file when it was opened."""

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
        """Close the descriptor, unless its number is closed already, or another file's now."""
        if self.is_open():
            os.close(self.number)


def high_copy(number: int) -> Opened | None:
    """A copy of descriptor 0, 1 or 2, with a high number. None if it is closed, or the process may open too few."""
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
    """In the block, newly opened descriptors have numbers from 3 on."""
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
    """The ``descriptors`` that are readable within ``seconds``; it waits until one is.

    Linux ends `select` late, so that timers expire together: by up to a thousandth of its timeout, or 50 µs; in a
    process with a positive nice value by up to five thousandths (``select_estimate_accuracy`` in ``fs/select.c``).
    After half a second a message would be late by half a millisecond. So a second, short wait follows the first."""
    until = monotonic() + seconds
    if seconds > SHORT and (ready := _readable(descriptors, seconds * (1 - LATE) - END)):
        return ready
    return _readable(descriptors, max(0.0, until - monotonic()))


def _readable(descriptors: Sequence[int], seconds: float) -> Sequence[int]:
    try:
        return select.select(descriptors, (), (), seconds)[0]
    except ValueError:  # select takes no number from 1024 on
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        return [descriptor for descriptor, _ in poll.poll(seconds * 1000)]
