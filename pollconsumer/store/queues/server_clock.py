"""When a server's clock showed an instant that a reply brings."""

from __future__ import annotations

from math import inf

SHOWN_FOR = 0.001
"""Seconds for which a server's clock shows an instant: instants are in milliseconds, rounded down."""
MOST_DELAYED = 0.5
"""Seconds by which a reply may come later than others did. More tells of a clock that was set."""


class ServerClock:
    """The clocks of a store's servers, by the monotonic clock of this machine.

    A reply comes a while after the instant that it brings, and the reply to a step that waits for a message comes any
    while after its step was sent. What is known: half of the shortest round trip, and which reply came the soonest.
    """

    def __init__(self) -> None:
        self._way = inf
        """Seconds that a reply takes at least."""
        self._ahead: dict[str, float] = {}
        """Seconds by which this machine's clock is ahead when the reply that came the soonest is read; by queue, since
        each may be on a server of its own."""

    def shown_at(self, queue: str, instant: int, sent: float, read: float) -> float:
        """When, on the monotonic clock, the server of ``queue`` showed ``instant``, in epoch ms, if a step was
        ``sent``, and its reply ``read``, then. ``sent`` is minus infinity where that took several round trips."""
        took, ahead, way = read - sent, read - instant / 1000, self._way
        if took < way + way:
            way = self._way = took / 2
        elif way == inf:
            way = 0.0
        late = ahead - self._ahead.get(queue, inf)
        # Otherwise this one came the soonest; or the clock was set, or has drifted: it cannot have shown that by then.
        if 0.0 < late <= took + SHOWN_FOR and late <= MOST_DELAYED:
            way += late
            return read - way if way < took + SHOWN_FOR else sent - SHOWN_FOR
        self._ahead[queue] = ahead
        return read - way
