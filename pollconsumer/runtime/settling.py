"""What has been handled and waits to be settled with the next step; and what becomes of failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.core.events import AttemptFailed, MessageParked
from pollconsumer.core.retry import Dead, after_failure
from pollconsumer.runtime.handlers import describe
from pollconsumer.store import rows
from pollconsumer.store.reservations import Settlement, Share

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.events import Event
    from pollconsumer.runtime.executor import Handled
    from pollconsumer.store.reservations import Reservation

PARKED_FOR = 60.0
"""Seconds until a message for an unknown handler is offered again, to a consumer that may know it by then."""
MAX_ERROR_CHARACTERS = 500
LONGEST_DELAY = 10 * 365 * 86400.0


class Settling:
    def __init__(self, emit: Callable[[Event], None], chance: Callable[[], float]) -> None:
        self._emit, self._chance = emit, chance
        self._shares: dict[str, Share] = {}
        self.since: float | None = None
        """When the oldest attempt among them ended, on the monotonic clock; None when there is nothing to settle."""
        self.handled = self.failed = self.released = 0

    def settle(self, handled: Handled) -> None:
        """Take in an attempt that has ended."""
        reservation, error = handled.attempt.reservation, handled.outcome.error
        started, ended = reservation.server_ms(handled.started), reservation.server_ms(handled.ended)
        if self.since is None:
            self.since = handled.ended
        if error is None:
            self.handled += 1
            row = reservation.row
            self._share(reservation).completed.append((reservation.id, row, rows.completed(row, started, ended)))
        else:
            self._fail(handled, error, started, ended)

    def _fail(self, handled: Handled, error: BaseException, started: int, ended: int) -> None:
        reservation, handler = handled.attempt.reservation, handled.attempt.handler
        outcome = after_failure(
            error,
            reservation.attempt,
            max_attempts=handler.max_attempts,
            backoff=handler.backoff,
            fatal=handler.fatal,
            chance=self._chance(),
        )
        if isinstance(outcome, Dead):
            self.bury(reservation, describe(error), started, ended)
            return
        self.failed += 1
        problem = describe(error)[:MAX_ERROR_CHARACTERS]
        row = rows.retrying(reservation.row, ended)
        delay_ms = int(min(outcome.delay, LONGEST_DELAY) * 1000)
        self._add(reservation, row, "retry", delay_ms, problem)
        self._emit(AttemptFailed(_name(reservation), reservation.handler, reservation.attempt, problem, outcome.delay))

    def bury(self, reservation: Reservation, problem: str, started: int, ended: int) -> None:
        """Make a dead letter of it."""
        self.failed += 1
        problem = problem[:MAX_ERROR_CHARACTERS]
        self._add(reservation, rows.dead(reservation.row, started, ended), "dead", 0, problem)
        self._emit(AttemptFailed(_name(reservation), reservation.handler, reservation.attempt, problem, None))

    def park(self, reservation: Reservation) -> None:
        """Set it aside, uncharged, until a consumer knows its handler."""
        problem = f"unknown_handler: no handler named {reservation.handler} here"[:MAX_ERROR_CHARACTERS]
        self._add(reservation, rows.parked(reservation.row), "park", int(PARKED_FOR * 1000), problem)
        self._emit(MessageParked(_name(reservation), reservation.handler, PARKED_FOR))

    def release(self, reservation: Reservation) -> None:
        """Give it back, uncharged: it was not started."""
        self.released += 1
        self._add(reservation, rows.released(reservation.row), "release", 0, "")

    def take(self) -> dict[str, Share]:
        """What is to be settled, by queue; from here on it is the caller's."""
        shares, self._shares, self.since = self._shares, {}, None
        return shares

    def _share(self, reservation: Reservation) -> Share:
        share = self._shares.get(reservation.queue)
        if share is None:
            share = self._shares[reservation.queue] = Share(reservation.queue)
        return share

    def _add(self, reservation: Reservation, row: bytes, kind: str, delay_ms: int, problem: str) -> None:
        settlement = Settlement(reservation.id, reservation.row, row, kind, delay_ms, problem)
        self._share(reservation).settlements.append(settlement)


def _name(reservation: Reservation) -> str:
    return reservation.id.decode("utf-8", "backslashreplace")
