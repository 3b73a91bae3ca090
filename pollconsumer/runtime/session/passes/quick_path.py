"""The quick path of one slot: reserved messages without anything unusual, handled in one pass of the launch's loop.

`Lot.is_plain` says what is usual, `Launch.may_begin` is asked before each message, and forks and descriptors are looked
at after it, as where each is handled alone. A pass is quicker since it computes once what brief handlers cannot change:
`durations.brief` tells why that is so of the margin. Anything unusual is left to the general path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import copy_context
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pollconsumer.core.durations import Durations
from pollconsumer.core.messages.payloads import Malformed, decode_payload
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.executors.executor import NONE, Attempt, Executor, Handled, Inline
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.outcome import DONE
from pollconsumer.runtime.handling.own_context import own_context
from pollconsumer.runtime.launch.held import Launch
from pollconsumer.runtime.launch.shared_memory import entries
from pollconsumer.runtime.launch.shared_memory.series import BEGUN, ENDED
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.runtime.session.passes.beginnings import Beginnings, together
from pollconsumer.runtime.session.settlements import Settlements
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Lot, Reservation
from pollconsumer.store.records.steps import Done, Extra

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable
    from contextvars import Context as Variables

    Run = tuple["_Way", list[Reservation]]
    """Messages in a row that go the same way."""


class QuickPath:
    """Handles messages in passes. ``brief``: seconds that a message may take without a change of the margin;
    ``horizon``: seconds that its outcome may stay unsettled."""

    def __init__(
        self,
        launch: Launch,
        handlers: Mapping[str, Handler],
        executor: Executor,
        durations: Durations,
        settling: Settlements,
        exchange: Exchange,
        context_of: Callable[[Reservation], LaunchContext],
        *,
        brief: float,
        horizon: float,
    ) -> None:
        self._launch, self._durations, self._settling, self._inline = launch, durations, settling, executor.inline
        self._flight, self._stops = launch.progress.flight, launch.progress.stops
        self._passing, self._context_of = exchange.passing, context_of
        self._brief, self._horizon = min(brief, horizon), horizon
        self._handlers = {name: handler for name, handler in handlers.items() if not (handler.isolated or handler.bulk)}
        self._ways: dict[tuple[str, str], _Way] = {}
        self._beginnings = Beginnings(self._flight.series, exchange)

    def handle(self, reserved: deque[Reservation], most: int, margin: float) -> int:
        """Handle the first of ``reserved`` in a pass, ``most`` at most, while ``margin`` seconds are left. Returns how
        many were handled."""
        if self._inline is None or self._stops.any():
            return 0
        base = copy_context()
        own = base.copy()
        try:
            return own.run(self._handle, self._inline, reserved, most, margin, base, own)
        finally:
            self._inline.rest()

    def _handle(
        self,
        inline: Inline,
        reserved: deque[Reservation],
        most: int,
        margin: float,
        base: Variables,
        own: Variables,
    ) -> int:
        """Handle messages as `handle` does. ``base`` has the launch's variables, ``own`` is the copy of them in which
        this is called."""
        settling, counts = self._settling, self._flight.series.counts
        done: list[Done] = []
        with self._passing:
            runs = self._line_up(reserved, min(most, self._flight.series.room()), inline)
        now = self._launch.clock()
        if runs:
            self._enter([way for way, _ in runs], now)
        since = now if settling.since is None else settling.since
        this = _Pass(inline, reserved, done, margin, since + self._horizon, base, own)
        before: _Way | None = None
        first = counts[BEGUN]  # since they are lined up
        for way, run in runs:
            if before is not None:
                if before.at_most_once and not way.at_most_once:
                    break  # its outcome is settled first
                if done and before.queue != way.queue:
                    settling.complete(done)
                    done.clear()
            before = way
            goes_on = self._handle_run(way, run, this)
            if way.lasted:
                self._durations.add_all(way.handler.name, way.lasted)
                way.lasted = []
            if not goes_on:
                break
        if done:
            settling.complete(done)
        handled = counts[BEGUN] - first
        if handled and before is not None and before.at_most_once:
            settling.urgent = True
        return handled

    def _enter(self, ways: Iterable[_Way], now: float) -> None:
        """Record until when the messages of a pass may go on: the last one begins when brief ones have passed."""
        limit = max([way.limit for way in ways])
        self._flight.enter_series(now, self._launch.end.ends_by(now, limit + 2 * self._horizon))

    def _handle_run(self, way: _Way, run: list[Reservation], this: _Pass) -> bool:
        """Handle the messages of ``run``. Returns whether the pass goes on after them. Hot path."""
        inline, reserved, done, margin, latest, base, own = this
        clock, may_begin, brief = self._launch.clock, self._launch.may_begin, self._brief
        counts, handle, lasted, context = self._flight.series.counts, way.handle, way.lasted, None
        first = begun = counts[BEGUN]
        now = clock()
        for reservation in run:
            if not may_begin(now + margin):
                return False
            try:
                payload = decode_payload(reservation.payload)
            except Malformed:
                return False
            if way.takes_context:
                if reservation.may_occur and self._has_predecessor(reservation, done):
                    return False
                context = self._context_of(reservation)
            try:
                del reserved[0]
            except IndexError:  # this process was suspended as it began the last one: these were returned
                return False
            at = begun - first
            if way.together and not self._beginnings.record(run[at : at + way.together], done):
                return False
            counts[BEGUN] = begun = begun + 1
            started = clock()
            # While no variable is set, by the launch or by a message of this pass, the copy is as good as a new one,
            # which would cost a no-op a twentieth of its time.
            outcome = own_context(base).run(handle, payload, context) if own else handle(payload, context)
            error = None if outcome is DONE else outcome.error
            damages = inline.checked(error)
            ended = now = clock()
            if error is not None or (damages is not NONE and damages != NONE):
                attempt = Attempt(reservation, way.handler, payload, context)
                inline.add(Handled(attempt, started, ended, outcome, *damages))
                return False
            counts[ENDED] = begun
            lasted.append(ended - started)
            if context is not None:
                context.end()
            if outcome is DONE and (context is None or not context.leaves):
                done.append((reservation, started, ended, reservation.lot.completion))
            else:
                extra = self._settling.extra_of(reservation, way.result_ms, context, outcome.result, ended)
                done.append((reservation, started, ended, extra))
                now = clock()
            if now - started > brief or now > latest:
                self._flight.end_slow(now)
                return False
        return True

    def _has_predecessor(self, reservation: Reservation, done: list[Done]) -> bool:
        """Whether an occurrence of the same recurrence is to be settled first."""
        if done:
            self._settling.complete(done)
            done.clear()
        return self._settling.precedes(reservation)

    def _line_up(self, reserved: Iterable[Reservation], most: int, inline: Inline) -> list[Run]:
        """Write down the first ones that have nothing unusual, ``most`` at most."""
        runs: list[Run] = []
        handlers: list[Handler] = []
        texts: list[bytes] = []
        ways: dict[tuple[str, str], _Way | None] = {}
        lot: Lot | None = None
        length, last, head = -1, False, b""
        for reservation in islice(reserved, most):
            message_id = reservation.id
            if reservation.lot is not lot:
                lot, length = reservation.lot, -1
                if lot.sequel:
                    lot.completion = _completion_of_member(lot.sequel)
                which = lot.handler, lot.queue
                if which not in ways:
                    ways[which] = self._way_of(which, inline)
                way = ways[which]
                if way is None or not lot.is_plain:
                    break
                if not runs or runs[-1][0] is not way:
                    run: list[Reservation] = []
                    runs.append((way, run))
                    handlers.append(way.handler)
                last = rows.attempts(lot.row) >= way.handler.max_attempts
            if len(message_id) != length:
                length = len(message_id)
                if length > entries.LONGEST:
                    break
                head = self._flight.head(lot.handler, lot.queue, length, last=last)
            texts.append(head + message_id)
            run.append(reservation)
        inline.stay(handlers)
        self._flight.series.lay([*islice(reserved, len(texts))], texts)
        return runs

    def _way_of(self, which: tuple[str, str], inline: Inline) -> _Way | None:
        """The way of messages of a handler in a queue; None if the handler is isolated, paused, or not expected to be
        brief."""
        name, queue = which
        expected, handler = self._durations.expected(name), self._handlers.get(name)
        if handler is None or expected is None or expected > self._horizon or name in self._stops.paused:
            return None
        way = self._ways.get(which)
        if way is None:
            way = self._ways[which] = _Way(handler, queue, inline, self._launch.end.limit(handler.timeout))
        if way.at_most_once:
            way.together = together(expected)
        return way


def _completion_of_member(sequel: bytes) -> Extra | None:
    """What the completion of a member leaves that brings about nothing else; None for other messages."""
    from pollconsumer.runtime.session.ended_messages import completion_of_member  # few messages have a sequel

    return completion_of_member(sequel)


class _Pass(NamedTuple):
    """What a pass has in hand; ``latest``: when it ends, so that no outcome stays unsettled for too long."""

    inline: Inline
    reserved: deque[Reservation]
    done: list[Done]
    margin: float
    latest: float
    base: Variables
    own: Variables


class _Way:
    """How a handler's messages in a queue are handled, looked up once. ``lasted``: seconds that each message of a run
    took. ``together``: how many are recorded as begun at a time, if they are handled at most once, otherwise 0."""

    __slots__ = (
        "at_most_once",
        "handle",
        "handler",
        "lasted",
        "limit",
        "queue",
        "result_ms",
        "takes_context",
        "together",
    )

    def __init__(self, handler: Handler, queue: str, inline: Inline, limit: float) -> None:
        self.limit = limit
        self.handler, self.queue = handler, queue
        self.takes_context, self.at_most_once = handler.takes_context, handler.at_most_once
        self.handle = inline.turning(handler) if handler.asynchronous else handler.handle_here
        self.result_ms = handler.result_ms
        self.lasted: list[float] = []
        self.together = 0
