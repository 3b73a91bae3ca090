"""Time that passes only when a test says so, and while a launch under test waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.core.instants import ceil_epoch_ms, ceil_ms, datetime_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


class VirtualClock:
    """Server's clock and monotonic clock in one, in whole milliseconds.

    ``tick`` does what is due at an instant, and returns the seconds until something is due next, None for never: time
    stops at each such instant on its way, as it would for a mover that lives through it.
    """

    def __init__(self, start: datetime) -> None:
        self.start_ms = self.now_ms = ceil_epoch_ms(start)
        self.tick: Callable[[], float | None] = lambda: None
        self.patience: Callable[[int, int | None], int | None] | None = None
        """Until when to wait instead, given until when it was meant to be and when something is due next; None for no
        longer."""

    def __call__(self) -> float:
        """Seconds since the clock's start, as those of the monotonic clock."""
        return (self.now_ms - self.start_ms) / 1000

    def now(self) -> datetime:
        return datetime_of(self.now_ms)

    def next_due(self) -> int | None:
        """The instant at which something is due next, after all that is due now was done; None for never."""
        left = self.tick()
        return None if left is None else self.now_ms + max(1, ceil_ms(left))

    def pass_until(self, instant: int) -> None:
        """Until an instant in epoch milliseconds; not back, where it lies in the past."""
        due = self.next_due()
        while self.now_ms < instant:
            self.now_ms = instant if due is None else min(instant, due)
            due = self.next_due()

    def wait(self, seconds: float, woken: Callable[[], bool]) -> bool:
        """At most so many seconds, until ``woken``, which is what it returns; or as long as it makes sense to wait."""
        until = self.now_ms + max(1, ceil_ms(seconds))
        while True:
            due = self.next_due()
            if woken():
                return True
            if self.now_ms >= until:
                return False
            if self.patience is not None:
                meant = self.patience(until, due)
                if meant is None:
                    return False
                until = meant
            self.now_ms = until if due is None else min(until, due)
