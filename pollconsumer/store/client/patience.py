"""The clocks of a machine, and patience: how long a caller waits for a server that does not answer."""

from __future__ import annotations

import time
from functools import partial
from math import inf
from typing import Protocol

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
COMMAND_TIMEOUT = 2.0
"""A command that does not block must be answered within so many seconds."""


STEP = 0.1
"""The timeout of an answer is rounded up to a multiple of so many seconds: while it stays the same, the socket need not
be told."""


class Clocks:
    """Tells the time, in seconds, and waits, by the clocks of this machine. A simulated machine has its own clocks."""

    monotonic = staticmethod(time.monotonic)
    boot_time = staticmethod(partial(time.clock_gettime, _BOOT))
    """The time of a clock that goes on while the machine sleeps."""

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCKS = Clocks()


class Patience(Protocol):
    """A caller's retry budget."""

    def left(self) -> float:
        """Seconds until the caller gives up; 0: it gives up now."""

    def pause(self, seconds: float) -> None:
        """Wait before the next try."""

    def missed(self, address: str, reason: str, *, first: bool) -> None:  # noqa: ARG002  most tell nobody
        """Called when the server at ``address`` has not answered, before it is asked again. ``first``: for the first
        time in this call."""
        return

    def for_one_answer(self, blocking: float = 0.0) -> float:
        """Timeout of one command, in seconds: at most COMMAND_TIMEOUT, plus ``blocking``, for which the command
        blocks."""

    def to_connect(self) -> float:
        """Timeout of a new connection, in seconds; 0 if it is too late for one."""
        return self.for_one_answer()


def answer_within(left: float) -> float:
    """The timeout of one command, in seconds, if the caller's patience ends in ``left`` seconds."""
    return COMMAND_TIMEOUT if left >= COMMAND_TIMEOUT else max(STEP, -(-left // STEP) * STEP)


def left_until(until: float, most: float = inf) -> float:
    """Seconds until the instant ``until`` of the monotonic clock, at most ``most``. For calls with several answers.
    TimeoutError if no time is left."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("no time left")
    return min(most, left)


class Budget(Patience):
    """A patience that ends ``seconds`` from now, on the monotonic clock."""

    def __init__(self, seconds: float, clocks: Clocks = SYSTEM_CLOCKS) -> None:
        self._clocks, self._until = clocks, clocks.monotonic() + seconds

    def left(self) -> float:
        return max(0.0, self._until - self._clocks.monotonic())

    def pause(self, seconds: float) -> None:
        self._clocks.sleep(min(seconds, self.left()))

    def for_one_answer(self, blocking: float = 0.0) -> float:
        return answer_within(self.left()) + blocking
