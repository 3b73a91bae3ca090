"""A launch's exchange with a cluster: it goes on with the other queues while a node is lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

from pollconsumer.core.errors import NodeLost, StoreUnreachable
from pollconsumer.runtime.launch_upkeep import announce
from pollconsumer.runtime.session.cluster.away import Away
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.store.records.reservations import Reservation
from pollconsumer.store.records.steps import Done, Share, Stepped
from pollconsumer.store.server import unreachable


class ClusterExchange(Exchange):
    """A launch's exchange with a cluster. Imported only where the store is one."""

    def __init__(self, *arguments: Any, away: Away) -> None:
        """``arguments``: those of `Exchange`."""
        super().__init__(*arguments)
        self._away, self.lost = away, away.queues

    def reserve(self, only: str | None = None, wanted: int | None = None) -> bool:
        self._look()
        return super().reserve(only, wanted)

    def reserve_when_woken(self, wait: float) -> None:
        self._look()
        super().reserve_when_woken(wait)

    def give_back(self) -> None:
        """Give back what an exchange with one server does. StoreUnreachable if a queue's node is lost to the end."""
        super().give_back()
        if self._away:
            raise unreachable(self._away.queues)

    def _give_back(self) -> None:
        super()._give_back()
        if self._away:
            self._await_lost()

    def begin(self, reservations: Sequence[Reservation], done: Sequence[Done] = ()) -> int:
        """Record the first of ``reservations`` alone: of several that wait for a lost node it would be unknown which
        are begun."""
        return super().begin(reservations[:1], done)

    def _begin(self, reservations: Sequence[Reservation], share: Share) -> int:
        while share.queue not in self._away.queues:
            with self._leaving():
                return super()._begin(reservations, share)
        self._away.keep([share])
        self._away.reserved += reservations
        return 0

    def _send(self, shares: list[Share], wait: float = 0.0, promoting: Sequence[str] = ()) -> Stepped:
        if self._away:
            shares, promoting = self._without_lost(shares), [each for each in promoting if each in self.queues()]
            if not shares and not promoting:
                return Stepped()
        with self._leaving():
            return super()._send(shares, wait, promoting)
        return self._send_again(shares, promoting)

    def _repair(self, queue: str, live_fences: list[bytes]) -> None:
        if queue not in self._away.queues:
            with self._leaving():
                super()._repair(queue, live_fences)

    def _send_outgoing(self, queue: str) -> None:
        with self._leaving():  # a repair sends it later
            super()._send_outgoing(queue)

    def _tick(self, queue: str) -> None:
        with self._leaving():
            super()._tick(queue)

    def _trim(self, queue: str) -> None:
        if queue not in self._away.queues:
            with self._leaving():
                super()._trim(queue)

    def _unstarted(self) -> Iterable[Reservation]:
        return *super()._unstarted(), *self._away.reserved

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        """Go on without queues whose node is lost."""
        try:
            yield
        except NodeLost:
            self._leave()

    def _leave(self) -> None:
        """Leave lost queues out, unless all are lost by now: the next call then waits for them, as for a single
        server."""
        lost = self._store.lost(self._turns.queues) | self._away.queues
        if not lost.issuperset(self._turns.queues):
            self._away.add(lost)
        with self.passing:
            self._away.hold(self.gathered)
            self._away.hold(self.reserved)

    def _without_lost(self, shares: Sequence[Share]) -> list[Share]:
        """``shares``, but for those whose outcomes wait for a lost node."""
        others = self._away.keep(shares)
        self._settling.waiting = self._away.unsettled()
        return others

    def _send_again(self, shares: Sequence[Share], promoting: Sequence[str]) -> Stepped:
        """Send what was not answered again, to the nodes that are left."""
        shares = self._without_lost(shares)
        with self._leaving():
            self._store.give_back(self._launch.holder, shares, self.held)
            return self._send(shares, promoting=promoting)
        return self._send_again(shares, promoting)

    def _look(self) -> None:
        """Go on with queues whose node, or a replica of it, is there again."""
        if not self._away or not self._away.is_time_to_look():
            return
        began = self._launch.clock()
        lost = self._store.lost(self._turns.queues)
        for queue in sorted(self._away.queues - lost):
            with self._leaving():
                self._go_on_with(queue)
        self._away.looked(began)

    def _go_on_with(self, queue: str) -> None:
        """Announce ``queue`` again, since a replica may not know of the announcement; settle what has waited for it."""
        announce(self._launch, queue, self._add_dead_letter)
        kept = self._away.kept_of(queue)
        settling = [each for share in kept for each in share.ids()]
        self._store.unreserve(self._launch.holder, queue, [*self.held(queue), *settling])
        with self.passing:
            self._away.come_back(queue, self.reserved)
        self._settling.waiting = self._away.unsettled()
        if kept:
            self._send(kept)

    def _await_lost(self) -> None:
        """Settle, at the end, what waits for lost nodes, as long as patience lasts."""
        self._store.part(())
        lost = self._store.lost(self._turns.queues)
        try:
            for queue in sorted(self._away.queues):
                if queue not in lost or (self._away.has_outcomes(queue) and self.called == inf):
                    self._go_on_with(queue)
        except StoreUnreachable:
            return
        self.clear()
