"""Calls of bulk handlers that are in hand, and what becomes of their messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pollconsumer.core.retry import NotBegun, ProcessDied, Yield
from pollconsumer.runtime.handling.executors.executor import Attempt, Handled
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.outcome import CallOutcomes
from pollconsumer.runtime.launch.held import Launch
from pollconsumer.runtime.session.bulk.bulk_pace import BulkPace
from pollconsumer.runtime.session.consumer_options import ConsumerOptions
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.runtime.session.pace import Pace
from pollconsumer.store.records.reservations import Reservation


class BulkAttempt(Attempt):
    """A call with several messages. ``reservation`` and ``handler`` are those of the first of its ``attempts``."""

    attempts: Sequence[Attempt]


class BulkCalls:
    def __init__(
        self,
        launch: Launch,
        handlers: Mapping[str, Handler],
        options: ConsumerOptions,
        slots: int,
        exchange: Exchange,
        pace: Pace,
    ) -> None:
        self._flight, self._stops = launch.progress.flight, launch.progress.stops
        self._exchange, self._pace = exchange, pace
        most = {name: each.bulk.most for name, each in handlers.items() if each.bulk is not None}
        self.sized = BulkPace(launch.window, options, slots, pace.durations, most)
        """How long calls take, by their size."""
        self.alone: set[bytes] = set()
        """Ids of messages of which one has killed the process of an isolated handler: they are called alone."""
        self._in_hand: dict[Reservation, BulkAttempt] = {}
        """The call in hand of each message that is not called alone."""

    def add(self, call: BulkAttempt) -> None:
        """Add a call that begins with several messages."""
        self._in_hand |= dict.fromkeys((each.reservation for each in call.attempts), call)

    def each_of(self, handled: Handled) -> Iterable[Handled]:
        """What became of each message of a call that has ended."""
        call, outcome = handled.attempt, handled.outcome
        assert isinstance(call, BulkAttempt)
        for each in call.attempts:
            self._in_hand.pop(each.reservation, None)
            self.alone.discard(each.reservation.id)
        # GUARD called alone after a death; at most once is not called again
        if isinstance(outcome.error, ProcessDied) and len(call.attempts) > 1 and not call.handler.at_most_once:
            self._call_alone([each.reservation for each in call.attempts])
            return []
        if not isinstance(outcome.error, Yield | NotBegun):
            self.sized.add(call.handler.name, len(call.attempts), handled.ended - handled.started)
        outcomes = outcome.result if outcome.error is None else [outcome] * len(call.attempts)
        assert outcome.error is not None or isinstance(outcomes, CallOutcomes)
        return [handled._replace(attempt=each, outcome=of) for each, of in zip(call.attempts, outcomes, strict=True)]

    def stoppable(self, reservation: Reservation) -> Reservation | None:
        """The message by which the executor knows the call of ``reservation``; None while the call has messages that
        are not to stop."""
        call = self._in_hand.get(reservation)
        if call is None:
            return reservation
        # GUARD a call with others goes on
        return call.reservation if all(self._stops.asked(each.reservation) for each in call.attempts) else None

    def _call_alone(self, reservations: Sequence[Reservation]) -> None:
        """Have messages called one after the other, in the same attempt: one of them killed the handler's process."""
        self.alone.update(each.id for each in reservations)
        self._pace.begun -= len(reservations)
        for each in reservations:
            self._flight.leave(each)
        with self._exchange.passing:
            self._exchange.reserved.extendleft(reversed(reservations))
