"""The order in which a launch polls its queues: as given, or by weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Turns:
    """The order in which queues are served. Without weights the first queue that has a message is served. With them,
    queues are served in proportion: each message advances its queue by 1/weight, and the queue that has advanced least
    comes first (stride scheduling; Waldspurger and Weihl, 1995).
    """

    def __init__(self, queues: Sequence[str], weights: Mapping[str, int] | None = None) -> None:
        self.queues = tuple(queues)
        self._strides = {queue: 1 / weights.get(queue, 1) for queue in queues} if weights else {}
        self._passed = dict.fromkeys(queues, 0.0)
        self._now = 0.0

    def leave_out(self, queue: str) -> None:
        """Serve ``queue`` no longer."""
        self.queues = tuple(each for each in self.queues if each != queue)

    def order(self) -> Sequence[str]:
        """Queues, in the order in which to poll them."""
        return sorted(self.queues, key=self._passed.__getitem__) if self._strides else self.queues

    def served(self, queue: str, messages: int) -> None:
        """Record that ``queue`` handed out ``messages``. A queue gains no credit while it is empty."""
        if self._strides:
            self._now = max(self._passed[queue], self._now)
            self._passed[queue] = self._now + messages * self._strides[queue]
