"""A wait for descriptors that does not end late.

Linux ends `select` late by up to a thousandth of its timeout, or 50 µs, so that timers expire together; in a process
with a positive nice value by up to five thousandths (``select_estimate_accuracy`` in ``fs/select.c``). Half a second of
waiting would make a due message late by half a millisecond. So the end of a wait is waited for by itself.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from time import monotonic

SHORT = 0.02
"""Seconds up to which a wait is left to the system."""
LATE = 0.005
END = 0.0005
"""The end of a longer wait, which is waited for by itself: ``LATE`` is a part of the whole, ``END`` is in seconds,
since a processor takes its time to wake up, too."""


def wait_readable(descriptors: Sequence[int], seconds: float) -> Sequence[int]:
    """Which of ``descriptors`` are readable within ``seconds``."""
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
