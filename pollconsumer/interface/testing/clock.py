"""The virtual clock. A test advances it, and so do the waits of a launch under test."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pollconsumer.core.notation.instants import ceil_epoch_ms, ceil_ms, datetime_of


class VirtualClock:
    """The server's clock and the monotonic clock in one, in whole milliseconds.

    ``tick`` does what is due now, and returns the seconds until the next due time, or None. Advancing the clock stops
    at each due time.
    """

    def __init__(self, start: datetime) -> None:
        self.start_ms = self.now_ms = ceil_epoch_ms(start)
        self.tick: Callable[[], float | None] = lambda: None
        self.patience: Callable[[int, int | None], int | None] | None = None
        """Overrides the end of a wait, given its end and the next due time; None ends it now."""

    def __call__(self) -> float:
        """Seconds since the clock's start, like the monotonic clock."""
        return (self.now_ms - self.start_ms) / 1000

    def now(self) -> datetime:
        return datetime_of(self.now_ms)

    def next_due(self) -> int | None:
        """Do what is due now. Returns the next due time, or None."""
        left = self.tick()
        return None if left is None else self.now_ms + max(1, ceil_ms(left))

    def pass_until(self, instant: int) -> None:
        """Advance to an instant in epoch milliseconds, unless it is in the past."""
        due = self.next_due()
        while self.now_ms < instant:
            self.now_ms = instant if due is None else min(instant, due)
            due = self.next_due()

    def wait(self, seconds: float, woken: Callable[[], bool]) -> bool:
        """Wait until ``woken``, at most for ``seconds``. Returns whether it was woken."""
        until = self.now_ms + max(1, ceil_ms(seconds))
        while True:
            due = self.next_due()
            if woken():
                return True
            if self.now_ms >= until:
                return False
            if self.patience is not None:
                end = self.patience(until, due)
                if end is None:
                    return False
                until = end
            self.now_ms = until if due is None else min(until, due)
