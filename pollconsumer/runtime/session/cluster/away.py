"""Queues whose node of a cluster is lost, while a launch goes on with the others; and what waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.store.records.reservations import Reservation
from pollconsumer.store.records.steps import Share

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Sequence


LOOK_EVERY = 0.5
"""Seconds between two looks at whether the nodes of lost queues are there again."""
LONGER_THAN_LOOKS = 5
"""The least time between two looks, as a multiple of how long the last one took: each look has to wait for a node that
says nothing, instead of refusing."""


class Away:
    """Queues whose node is lost, and what waits for them: none, unless the store is a cluster that has lost a node."""

    def __init__(self, clock: Callable[[], float], queues: set[str]) -> None:
        """``queues``: the set of those that are lost by now, which is changed here."""
        self._clock, self.queues = clock, queues
        self.reserved: list[Reservation] = []
        """Reserved messages of the lost queues, in their order, that were not started."""
        self._shares: list[Share] = []
        self._look_at = clock() + LOOK_EVERY

    def __bool__(self) -> bool:
        """Whether any queues are lost."""
        return bool(self.queues)

    def add(self, queues: Iterable[str]) -> None:
        self.queues |= {*queues}
        self._look_at = self._clock() + LOOK_EVERY

    def hold(self, reserved: deque[Reservation]) -> None:
        """Take the messages of lost queues from those ``reserved``."""
        everything = [*reserved]
        reserved.clear()
        for each in everything:
            (self.reserved if each.queue in self.queues else reserved).append(each)

    def keep(self, shares: Sequence[Share]) -> list[Share]:
        """Keep the outcomes of lost queues. Returns the shares of the others."""
        self._shares += [share for share in shares if share.queue in self.queues]
        return [share for share in shares if share.queue not in self.queues]

    def unsettled(self) -> set[bytes]:
        """Ids of messages whose outcomes are kept."""
        return {each for share in self._shares for each in share.ids()}

    def has_outcomes(self, queue: str) -> bool:
        return any(share.queue == queue and share.ids() for share in self._shares)

    def kept_of(self, queue: str) -> list[Share]:
        """The shares of ``queue`` that wait to be settled, without claims."""
        kept = [share for share in self._shares if share.queue == queue]
        for share in kept:
            share.claim = 0
        return kept

    def come_back(self, queue: str, reserved: deque[Reservation]) -> None:
        """Have ``queue`` no longer be lost, and add its messages to those ``reserved`` again. The caller settles what
        `kept_of` returned before."""
        self.queues.discard(queue)
        self._shares = [share for share in self._shares if share.queue != queue]
        reserved += [each for each in self.reserved if each.queue == queue]
        self.reserved = [each for each in self.reserved if each.queue != queue]

    def is_time_to_look(self) -> bool:
        return self._clock() >= self._look_at

    def looked(self, since: float) -> None:
        """Note that a look took from ``since`` until now."""
        now = self._clock()
        self._look_at = now + max(LOOK_EVERY, LONGER_THAN_LOOKS * (now - since))
