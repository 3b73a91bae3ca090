"""Starts calls of handlers: what must be settled, recorded or awaited before one begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.core.durations import Durations
from pollconsumer.runtime.handling.executors.executor import Attempt, Executor
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.session.collector import Collector
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.runtime.session.pace import HORIZON, Pace
from pollconsumer.runtime.session.settlements import Settlements

if TYPE_CHECKING:
    from collections.abc import Sequence


class CallStarter:
    def __init__(
        self,
        launch: Launch,
        executor: Executor,
        durations: Durations,
        exchange: Exchange,
        settling: Settlements,
        collecting: Collector,
        pace: Pace,
    ) -> None:
        self._launch, self._flight = launch, launch.progress.flight
        self._executor, self._durations = executor, durations
        self._exchange, self._settling, self._collecting, self._pace = exchange, settling, collecting, pace

    def start(self, attempt: Attempt) -> bool:
        """Call the handler of a message. False if the message is to be handled at most once, and could not be recorded
        as begun."""
        self.settle_before(attempt.handler.name)
        if attempt.handler.at_most_once:
            self._exchange.begin([attempt.reservation])
            if not attempt.reservation.begun:
                return False
        self.begin(attempt, [attempt])
        return True

    def settle_before(self, handler: str) -> None:
        """Settle what has ended, if ``handler`` is not known to be brief: outcomes must not wait for a long one."""
        if self._settling.since is None:
            return
        expected = self._durations.expected(handler)
        if expected is None or expected > HORIZON:
            self._collecting.settle()

    def begin(self, call: Attempt, attempts: Sequence[Attempt]) -> None:
        """Begin a call that handles the messages of ``attempts``, for which there must be places in the flight."""
        self._pace.begun += len(attempts)
        suspect = False
        for each in attempts:
            suspect = suspect or each.reservation.crashes > 0
        self._pace.suspects = suspect
        if suspect:
            # Handle a suspected crasher alone, so that no other message is blamed, and with no other reservations,
            # because if the heartbeat dies as well, every reservation is charged.
            self._collecting.await_quiet()
            self._exchange.clear()
        if self._flight.free() < len(attempts):
            self._collecting.settle()
        began, end = self._launch.clock(), self._launch.end
        ends_by = end.ends_by(began, end.limit(call.handler.timeout))
        for each in attempts:
            last = each.reservation.attempt >= each.handler.max_attempts
            self._flight.enter(each.reservation, last=last, began=began, ends_by=ends_by)
        self._executor.start(call)
        self._collecting.collect()
        if suspect:
            self._collecting.await_quiet()
