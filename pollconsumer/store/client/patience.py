"""The clocks of a machine. And patience: how long a caller repeats a call that the server does not answer."""

from __future__ import annotations

import time
from functools import partial
from math import inf
from typing import Protocol

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
COMMAND_TIMEOUT = 2.0
"""Seconds within which a command that does not block must be answered."""


STEP = 0.1
"""Timeouts are rounded up to a multiple of this, in seconds, so that a socket's timeout seldom has to be set anew."""


class Clocks:
    """The clocks of this machine, in seconds, and a sleep by them. A simulated machine has others."""

    monotonic = staticmethod(time.monotonic)
    boot_time = staticmethod(partial(time.clock_gettime, _BOOT))
    """A clock that also runs while the machine is suspended."""

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCKS = Clocks()


class Patience(Protocol):
    """How long, and how, a caller repeats a call that is not answered."""

    def left(self) -> float:
        """Seconds for which calls are still repeated; 0: not any more."""

    def pause(self, seconds: float) -> None:
        """Wait ``seconds``, or less, before a repetition."""

    def missed(self, address: str, reason: str, *, first: bool) -> None:  # noqa: ARG002  most tell nobody
        """Called before each repetition of a call: the server at ``address`` did not answer, for ``reason``. ``first``:
        it is the call's first repetition."""
        return

    def for_one_answer(self, blocking: float = 0.0) -> float:
        """Timeout of one command in seconds: COMMAND_TIMEOUT at most, plus ``blocking``, which it waits in the
        server."""

    def to_connect(self) -> float:
        """Timeout of a new connection in seconds; 0: do not connect any more."""
        return self.for_one_answer()


def answer_within(left: float) -> float:
    """Timeout of one command in seconds, if patience lasts for ``left`` seconds."""
    return COMMAND_TIMEOUT if left >= COMMAND_TIMEOUT else max(STEP, -(-left // STEP) * STEP)


def left_until(until: float, most: float = inf) -> float:
    """Seconds until ``until``, on the monotonic clock; ``most`` at most. TimeoutError if ``until`` has passed."""
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
