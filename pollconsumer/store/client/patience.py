"""The clocks of a machine, and how long a caller waits for a server that does not answer."""

from __future__ import annotations

import time
from functools import partial
from math import inf
from typing import Protocol

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
COMMAND_TIMEOUT = 2.0
"""Seconds in which a command that does not block must be answered."""


STEP = 0.1
"""Seconds to which the timeout of an answer is rounded up: while it stays the same, the socket need not be told."""


class Clocks(Protocol):
    """What tells the time, in seconds, and waits; a simulated machine has its own."""

    def monotonic(self) -> float: ...

    def boot_time(self) -> float:
        """The instant on a clock that goes on while the machine sleeps."""

    def sleep(self, seconds: float) -> None: ...


class SystemClocks:
    """The clocks of this machine."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    boot_time = staticmethod(partial(time.clock_gettime, _BOOT))


SYSTEM_CLOCKS = SystemClocks()


class Patience(Protocol):
    """A caller's retry budget."""

    def left(self) -> float:
        """Seconds until giving up; 0 gives up now."""

    def pause(self, seconds: float) -> None:
        """Wait before another try."""

    def missed(self, address: str, reason: str, *, first: bool) -> None:  # noqa: ARG002  most tell nobody
        """Take note that the server at ``address`` has not answered, and is asked again. ``first``: in this call."""
        return

    def for_one_answer(self, blocking: float = 0.0) -> float:
        """Timeout of one command, in seconds: at most COMMAND_TIMEOUT, and the seconds for which the command is
        ``blocking``."""

    def to_connect(self) -> float:
        """Timeout of a new connection, in seconds; 0 if none is to be made any more."""
        return self.for_one_answer()


def answer_within(left: float) -> float:
    """The timeout of one command, in seconds, when the caller's patience ends in ``left`` seconds."""
    return COMMAND_TIMEOUT if left >= COMMAND_TIMEOUT else max(STEP, -(-left // STEP) * STEP)


def left_until(until: float, most: float = inf) -> float:
    """Seconds until this instant of the monotonic clock, at most ``most``, for one of several answers. TimeoutError if
    none are left."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("no time left")
    return min(most, left)


class Budget(Patience):
    """Patience for ``seconds`` from now on, on the monotonic clock."""

    def __init__(self, seconds: float, clocks: Clocks = SYSTEM_CLOCKS) -> None:
        self._clocks, self._until = clocks, clocks.monotonic() + seconds

    def left(self) -> float:
        return max(0.0, self._until - self._clocks.monotonic())

    def pause(self, seconds: float) -> None:
        self._clocks.sleep(min(seconds, self.left()))

    def for_one_answer(self, blocking: float = 0.0) -> float:
        return answer_within(self.left()) + blocking
