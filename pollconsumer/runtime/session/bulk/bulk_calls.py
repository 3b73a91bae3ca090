"""Calls of bulk handlers that are in hand, and what becomes of their messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pollconsumer.core.retry import CallDied, HandlerTimeout, NotBegun, ProcessDied, Yield
from pollconsumer.runtime.handling.executors.executor import Attempt, Handled
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.outcome import CallOutcomes, Outcome
from pollconsumer.runtime.launch.launch import Launch
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
        if not isinstance(outcome.error, Yield | NotBegun | ProcessDied):
            self.sized.add(call.handler.name, len(call.attempts), handled.ended - handled.started)
        died = isinstance(outcome.error, ProcessDied | HandlerTimeout) and len(call.attempts) > 1
        if died and not call.handler.at_most_once:  # GUARD called alone after a death; at most once is not called again
            self._pace.begun -= len(call.attempts)
            outcome = Outcome(CallDied())
        outcomes = outcome.result if outcome.error is None else [outcome] * len(call.attempts)
        assert outcome.error is not None or isinstance(outcomes, CallOutcomes)
        ended = [handled._replace(attempt=each, outcome=of) for each, of in zip(call.attempts, outcomes, strict=True)]
        return ended[::-1] if isinstance(outcome.error, CallDied) else ended  # each goes to the head of the queue

    def known(self, reservation: Reservation) -> Reservation | None:
        """``reservation``, if the executor knows a call by it; None for the other messages of the call."""
        call = self._in_hand.get(reservation)
        return reservation if call is None or call.reservation is reservation else None

    def stoppable(self, reservation: Reservation) -> Reservation | None:
        """The message by which the executor knows the call of ``reservation``; None while the call has messages that
        are not to stop."""
        call = self._in_hand.get(reservation)
        if call is None:
            return reservation
        # GUARD a call with others goes on
        return call.reservation if all(self._stops.asked(each.reservation) for each in call.attempts) else None
