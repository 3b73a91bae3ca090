"""How long a caller waits for a server that does not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pollconsumer.store.clocks import SYSTEM_CLOCKS

if TYPE_CHECKING:
    from pollconsumer.store.clocks import Clocks

COMMAND_TIMEOUT = 2.0
"""Seconds in which a command that does not block must be answered."""


class Patience(Protocol):
    """A caller's retry budget."""

    def left(self) -> float:
        """Seconds until giving up; 0 gives up now."""

    def pause(self, seconds: float) -> None:
        """Wait before another try."""

    def for_one_answer(self) -> float:
        """Timeout of one command, in seconds; at most COMMAND_TIMEOUT."""


class Budget:
    """Patience for ``seconds`` from now on, on the monotonic clock."""

    def __init__(self, seconds: float, clocks: Clocks = SYSTEM_CLOCKS) -> None:
        self._clocks, self._until = clocks, clocks.monotonic() + seconds

    def left(self) -> float:
        return max(0.0, self._until - self._clocks.monotonic())

    def pause(self, seconds: float) -> None:
        self._clocks.sleep(min(seconds, self.left()))

    def for_one_answer(self) -> float:
        return COMMAND_TIMEOUT
