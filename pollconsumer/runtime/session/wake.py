"""Waits for a marker on a separate connection, while the other is used for commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pollconsumer.runtime.handling.executors import Executor
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.client.wire import Wire

BLOCK = 5.0
"""Seconds for which the server blocks: that is how long the connection of a vanished client can swallow a marker."""


class Wake:
    """Waits for a marker. It times its waits itself: the server ends a blocking read up to 0.1 s late."""

    def __init__(self, wire: Wire, markers: Callable[[], Sequence[str]], clock: Callable[[], float]) -> None:
        self._wire, self._markers, self._clock = wire, markers, clock
        self.pending = False

    def wait(self, seconds: float, executor: Executor | None = None) -> bool:
        """Wait until a marker is set, an attempt has ended, or ``seconds`` have passed, or less where the connection
        has no descriptor. True for a marker."""
        until = self._clock() + seconds
        try:
            if not self.pending:
                self._wire.send([("BLPOP", *self._markers(), BLOCK)])
                self.pending = True
            left = max(0.0, until - self._clock())  # it may have had to connect
            if executor is not None:
                executor.wait(min(left, self._wire.look_every), self._wire.fileno())
                left = 0.0
            if not self._wire.readable(left):
                return False
            self.pending = False
            return self._wire.receive([()])[0] is not None
        except Unanswered:
            self.close()
            if executor is None:
                self._wire.patience().pause(min(seconds, 0.2))
            return True

    def close(self) -> None:
        self._wire.close()
        self.pending = False
