"""Takes the messages whose handlers have ended from the executor, and has the store settle them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.core.durations import Durations
from pollconsumer.core.news.events import DescriptorsUsedUp
from pollconsumer.core.retry import Stopped
from pollconsumer.core.users_code import TimeIsUp
from pollconsumer.runtime.handling.executors.executor import Executor, Handled
from pollconsumer.runtime.handling.outcome import Outcome
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.session.consumer_options import LONGEST_WAIT
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.runtime.session.message_stopper import MessageStopper
from pollconsumer.runtime.session.pace import HORIZON
from pollconsumer.runtime.session.settlements import Settlements
from pollconsumer.runtime.system.system_limits import SpareDescriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Collector:
    def __init__(
        self,
        launch: Launch,
        executor: Executor,
        durations: Durations,
        exchange: Exchange,
        settling: Settlements,
        stopping: MessageStopper,
        each_of: Callable[[Handled], Iterable[Handled]] | None = None,
    ) -> None:
        """``each_of`` tells what became of each message of a bulk handler's call, where there are such handlers."""
        self._launch, self._executor, self._durations = launch, executor, durations
        self._exchange, self._settling, self._stopping = exchange, settling, stopping
        self._each_of = each_of
        self.spare_descriptors = SpareDescriptors()
        self.leaking = False
        """Whether handlers have left so few descriptors that the launch must end."""

    def await_quiet(self) -> None:
        """Wait until no message is in hand."""
        while self._executor.busy:
            self.await_end()

    def await_end(self) -> None:
        """Wait until a handler ends, or for as long as outcomes may wait."""
        soon = self._settling.since is not None or bool(self._exchange.reserved)
        self._executor.wait(HORIZON if soon else LONGEST_WAIT)
        self._stopping.attend()
        self.collect()

    def collect(self) -> None:
        for handled in self._executor.finished():
            self._add(handled)
        settling = self._settling
        if settling.urgent or settling.watched or self.is_late():
            self.settle()

    def _add(self, handled: Handled) -> None:
        attempt, launch = handled.attempt, self._launch
        if self._stopping.timed_out:
            handled = self._at_limit(handled)
        self._exchange.is_stuck = False
        if attempt.context is not None:
            attempt.context.end()
        if self.spare_descriptors.freed():
            launch.emit(DescriptorsUsedUp(attempt.reservation.name, attempt.reservation.handler))
            self.leaking = True
        if attempt.handler.bulk is None or self._each_of is None:
            counts = self._end(handled)
        else:
            counts = sum(map(self._end, self._each_of(handled))) > 0
        if counts:
            self._durations.add(attempt.handler.name, handled.ended - handled.started)

    def _at_limit(self, handled: Handled) -> Handled:
        """``handled``, with the failure of a timeout in place of its interruption if its limit had passed."""
        reservation, handler = handled.attempt.reservation, handled.attempt.handler
        if reservation not in self._stopping.timed_out:
            return handled
        self._stopping.timed_out.discard(reservation)
        if not isinstance(handled.outcome.error, TimeIsUp | Stopped):
            return handled  # it ended just in time, or by a timeout of its own
        error = self._launch.end.verdict(handled.started, handler.timeout)
        error.__cause__ = handled.outcome.error
        return handled._replace(outcome=Outcome(error))

    def _end(self, handled: Handled) -> bool:
        """Have a message settled. Returns whether its duration counts: its handler ran, and did not yield."""
        reservation, flight = handled.attempt.reservation, self._launch.progress.flight
        if self._settling.is_unfinished(handled):
            flight.leave(reservation)  # a death of the launch charges nothing any more
            return self._settling.settle_unfinished(handled)
        flight.end(reservation, handled.ended)
        self._settling.settle(handled)
        return True

    def is_late(self) -> bool:
        """Whether an outcome has stayed unsettled for too long."""
        since = self._settling.since
        return since is not None and self._launch.clock() - since > HORIZON

    def settle(self) -> None:
        self._exchange.settle()
        self._settling.call_hooks()
