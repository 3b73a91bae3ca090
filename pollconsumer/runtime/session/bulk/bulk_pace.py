"""How long calls of bulk handlers take, by their size, and how large a call may be in what remains of the window."""

from __future__ import annotations

from collections.abc import Mapping

from pollconsumer.core.durations import Durations, MarginRule, margin_in
from pollconsumer.core.histogram import Histogram
from pollconsumer.core.window import Window


class BulkPace:
    """The durations of a launch's calls: those of sizes 2 to 3, 4 to 7, 8 to 15 … are measured together."""

    def __init__(self, window: Window, rule: MarginRule, slots: int, every: Durations, most: Mapping[str, int]) -> None:
        """``every``: the durations of all calls in this launch and earlier ones, whatever their size. ``most``: how
        many messages a call of each handler has at most."""
        self._window, self._rule, self._slots, self._every, self._most = window, rule, slots, every, most
        self._measured: dict[tuple[str, int], Durations] = {}

    def add(self, handler: str, size: int, seconds: float) -> None:
        """Add the duration of a call with ``size`` messages."""
        of_size = self._measured.setdefault((handler, size.bit_length()), Durations({}))
        of_size.add(handler, seconds)

    def margin(self, handler: str, size: int) -> float:
        """Seconds that must remain for a call with ``size`` messages to begin."""
        of_size = self._measured.get((handler, size.bit_length()))
        if of_size is None:
            expected = self._expected(handler, size.bit_length())
            of_size = Durations({} if expected is None else {handler: _histogram(expected)})
        return margin_in(self._window, of_size, self._rule, self._slots)

    def fitting(self, handler: str, most: int, left: float) -> int:
        """How many messages a call may have, ``most`` at most, that is to end within ``left`` seconds. At least 1: a
        call with one message begins where any message does."""
        size = most
        while size > 1 and self.margin(handler, size) >= left:
            size //= 2
        return size

    def _expected(self, handler: str, of_size: int) -> float | None:
        """Seconds of a call of a size that this launch has not measured: in proportion to the next smaller size that it
        has, else to the next larger one, else to the longest call of earlier launches, as if that was a full one."""
        means = {size: each.own_mean or 0.0 for (name, size), each in self._measured.items() if name == handler}
        if not means:
            longest = self._every.longest_of(handler)
            if longest is None:
                return None
            means = {self._most[handler].bit_length(): longest}
        known = max((size for size in means if size < of_size), default=min(means))
        return means[known] * 2.0 ** (of_size - known)


def _histogram(duration: float) -> Histogram:
    one = Histogram()
    one.add(duration)
    return one
