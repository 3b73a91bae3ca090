"""Turns reserved messages into attempts, starts and stops their handlers, and has the outcomes settled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, NoReturn

from pollconsumer.core.events import DescriptorsUsedUp
from pollconsumer.core.messages import continuation as continuations
from pollconsumer.core.messages.message import decoded_options
from pollconsumer.core.messages.payloads import Malformed, decode_payload
from pollconsumer.core.retry import (
    MOST_CRASHES,
    STOP_GRACE,
    Asleep,
    CallDied,
    HandlerTimeout,
    NotBegun,
    ProcessDied,
    Stopped,
    Yield,
)
from pollconsumer.core.spans import format_duration
from pollconsumer.core.users_code import TimeIsUp
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.executors import Attempt, Executor, Handled
from pollconsumer.runtime.handling.handler import CallOutcomes, Crashed, Handler, Outcome
from pollconsumer.runtime.handling.kept_lines import ROOT
from pollconsumer.runtime.handling.slot_waits import InFlight
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.launch.launch_end import KILLED
from pollconsumer.runtime.session.contexts import LineReports
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.runtime.session.pace import HORIZON, LONGEST_WAIT, ConsumerOptions, Pace
from pollconsumer.runtime.session.settlements import RESISTED_BEFORE
from pollconsumer.runtime.system.system_limits import SpareDescriptors
from pollconsumer.store.records.reservations import Reservation
from pollconsumer.store.records.rows import TRACE_FOLLOWS

AT_ONCE = 0.001
"""Seconds for "at once": a timer that is set to 0 would not fire."""


class Attempts:
    """Turns reserved messages into attempts, has the executor call handlers, and has the store settle outcomes."""

    def __init__(
        self,
        launch: Launch,
        options: ConsumerOptions,
        handlers: Mapping[str, Handler],
        executor: Executor,
        exchange: Exchange,
        context_of: Callable[[Reservation], LaunchContext],
    ) -> None:
        self._launch, self._options, self._handlers, self._executor = launch, options, handlers, executor
        self._stops, self._flight = launch.progress.stops, launch.progress.flight
        self._exchange, self._settling, self._pace = exchange, exchange.settling, exchange.pace
        self._context_of = context_of
        self.calls = BulkCalls(self._pace)
        self.stopping = MessageStopper(launch, executor, exchange, options.queues, self.calls)
        self._tails: Collection[InFlight] = ()
        """Messages that have logged or printed anything. It is empty if nothing is kept."""
        self._keeper: logging.Handler | None = None
        if (lines := options.kept_lines) is not None:
            self._keeper = lines.keeper
            self._lines = LineReports(lines, self._flight, handlers, exchange.reporter, self.calls.of)
            self._tails = lines.tails
        self.spare_descriptors = SpareDescriptors()
        self.leaking = False
        """Whether handlers have used up the process's descriptors, so that the launch must end."""

    def attempt(self, reservation: Reservation) -> Attempt | None:
        """An attempt at a message. None if the message must not be handled; then it is settled here. Reasons: it was
        asked to stop, has expired or is malformed; its handler is unknown, is paused or cannot begin; a newer version
        wrote it; a process died too often while handling it."""
        handler, common = self._handlers.get(reservation.handler), reservation.common
        if (self._stops.paused or self._stops.any()) and self._turns_away(reservation):
            return None
        if common.expires and reservation.has_expired(self._launch.clock()) and not self._took_steps(reservation):
            self._settling.expire(reservation, reservation.server_ms(self._launch.clock()))
        elif handler is None:
            self._settling.park(reservation)
        else:
            try:
                own: Handler | None = handler
                if common.options or common.continuation:
                    own = self._with_options(handler, reservation)
                if own is not None:
                    return self._opened(reservation, own)
                self._settling.postpone_newer(reservation)
            except NotBegun as error:
                self._settling.postpone(reservation, error)
            except (Crashed, Malformed) as error:
                self._settling.dead_letter(reservation, handler, error, reservation.server_ms(self._launch.clock()))
                self.settle()  # the log has it, and the next message may end this process
        if self._settling.watched:
            self.settle()
        return None

    def _turns_away(self, reservation: Reservation) -> bool:
        """Settle a message that was asked to stop, or whose handler is paused. Returns whether it was settled."""
        if self._stops.asked(reservation):
            self._settling.stop_unstarted(reservation)
            return True
        if reservation.handler in self._stops.paused:  # GUARD a handler that is paused
            self._settling.park(reservation)
            return True
        return False

    def _took_steps(self, reservation: Reservation) -> bool:
        """Whether an earlier attempt has recorded steps. A message with steps does not expire."""
        if not reservation.has_checkpoint:
            return False
        recorded = self._context_of(reservation).delivery.recorded
        return recorded is not None and len(recorded.steps) > 0

    def _opened(self, reservation: Reservation, handler: Handler) -> Attempt:
        """An attempt by ``handler``. NotBegun if a platform's launches are shorter than the handler's timeout."""
        if self._keeper is not None and self._keeper not in ROOT.handlers:
            ROOT.addHandler(self._keeper)
        if handler.timeout is not None and self._launch.end.outlasts(handler.timeout, self._launch.window.length):
            timeout, window = format_duration(handler.timeout), format_duration(round(self._launch.window.length))
            raise NotBegun(
                f"timeout {timeout} is longer than the {window} of a launch by a URL: raise web.budget, start "
                "'pollconsumer run' by cron, or lower the timeout"
            )
        if reservation.crashes:
            handler = self._limited(handler, reservation)
        payload = decode_payload(reservation.payload)
        if not handler.takes_context:
            return Attempt(reservation, handler, payload)
        if self._settling.precedes(reservation):
            self.settle()
        return Attempt(reservation, handler, payload, self._context_of(reservation))

    def _limited(self, handler: Handler, reservation: Reservation) -> Handler:
        """``handler``, limited to the window's length if it declares no timeout and an earlier attempt at the message
        did not stop at its limit. Crashed if the process has died too often while it handled the message."""
        store = self._launch.store
        stored = store.wire.command("HGET", store.keys.queue(reservation.queue, "errors"), reservation.id) or b""
        error = stored.decode("utf-8", "replace").partition(TRACE_FOLLOWS)[0]
        has_resisted = error.startswith(KILLED) or error.endswith(RESISTED_BEFORE)
        refuse_crashed(reservation, f"{error}; " if has_resisted else "")
        if not has_resisted or handler.timeout is not None:
            return handler
        limit = min(self._launch.window.length, self._launch.end.handler_limit)
        return handler.with_timeout(limit)._replace(limited=True)

    def _with_options(self, handler: Handler, reservation: Reservation) -> Handler | None:
        """``handler`` with the options of the message. None if a newer version wrote an option or the continuation.
        NotBegun if the payload is encoded and there is no codec. Malformed if options or continuation are corrupt."""
        options, newer = decoded_options(reservation.common.options)
        if continuation := reservation.common.continuation:
            newer = continuations.decoded(continuation)[1] or newer
        if newer:
            return None
        if options.encoded and handler.codec is None:  # GUARD an encoded payload needs a codec
            raise NotBegun("its payload is encoded, and PollConsumer() has no codec=")
        changes: dict[str, Any] = {}
        if options.max_attempts is not None and not handler.at_most_once:  # such a handler has one attempt
            changes["max_attempts"] = options.max_attempts
        if options.retry is not None:
            changes["retry"] = handler.policies.get(options.retry) or _Unknown(options.retry)
        if options.timeout is not None:
            handler = handler.with_timeout(options.timeout)
        handler = handler._replace(**changes)
        if options.ping is not None and self._options.new_monitors is not None:
            self._settling.monitors = self._settling.monitors or self._options.new_monitors()
            self._settling.monitors.begin(reservation, options.ping)
        return handler

    def settle_before(self, handler: str) -> None:
        """Settle outcomes before a call of ``handler``, unless the call should be so short that they can wait."""
        if self._settling.since is None:
            return
        expected = self._pace.durations.expected(handler)
        if expected is None or expected > HORIZON:
            self.settle()

    def begin(self, call: Attempt, attempts: Sequence[Attempt]) -> None:
        """Start ``call``, which handles the messages of ``attempts``. The flight must have free entries for them."""
        self._pace.begun += len(attempts)
        suspect = False
        for each in attempts:
            suspect = suspect or each.reservation.crashes > 0
        self._pace.suspects = suspect
        if suspect:
            # Handle a message that may crash the process alone, so that no other message is blamed. No other message
            # may be reserved, either, because if the heartbeat dies as well, every reservation is charged.
            self.await_quiet()
            self._exchange.clear()
        if len(self._flight.free) < len(attempts):
            self.settle()
        began, end = self._launch.clock(), self._launch.end
        ends_by = end.ends_by(began, call.handler.timeout)
        for each in attempts:
            last = each.reservation.attempt >= each.handler.max_attempts
            self._flight.enter(each.reservation, last=last, began=began, ends_by=ends_by)
        self._executor.start(call)
        self.collect()
        if suspect:
            self.await_quiet()

    def await_quiet(self) -> None:
        """Wait until all messages in flight have ended."""
        while self._executor.busy:
            self.await_end()

    def await_end(self) -> None:
        """Wait for a handler to end: `LONGEST_WAIT` at most; `HORIZON` if work waits."""
        soon = self._settling.since is not None or bool(self._exchange.reserved)
        self._executor.wait(HORIZON if soon else LONGEST_WAIT)
        self.stopping.attend()
        self.collect()

    def make_room(self) -> None:
        """Free entries of the flight: settle outcomes. If there are none, wait until a handler ends."""
        if self._settling.since is None:
            self.await_end()
        else:
            self.settle()

    def collect(self) -> None:
        finished = self._executor.finished()
        if finished and self.spare_descriptors.freed():
            last = finished[-1].attempt.reservation
            self._launch.emit(DescriptorsUsedUp(last.name, last.handler))
            self.leaking = True
        for ended in finished:
            attempt = ended.attempt
            handled = self._at_limit(ended) if self.stopping.timed_out else ended
            self._exchange.is_stuck = False
            if attempt.context is not None:
                attempt.context.end()
            if self._tails:
                self._lines.end(attempt.reservation)
            if attempt.handler.bulk is None:
                counts = self._end(handled)
            else:
                counts = sum(map(self._end, self.calls.each_of(handled))) > 0
            if counts:
                self._pace.durations.add(attempt.handler.name, handled.ended - handled.started)
        settling = self._settling
        if settling.urgent or settling.watched or self.is_late():
            self.settle()

    def _at_limit(self, handled: Handled) -> Handled:
        """``handled``, with HandlerTimeout as its outcome if the handler was interrupted at its limit."""
        reservation, handler = handled.attempt.reservation, handled.attempt.handler
        if reservation not in self.stopping.timed_out:
            return handled
        self.stopping.timed_out.discard(reservation)
        if not isinstance(handled.outcome.error, TimeIsUp | Stopped):
            return handled  # it ended just in time, or by its own timeout
        error = self._launch.end.verdict(handled.started, handler.timeout)
        error.__cause__ = handled.outcome.error
        return handled._replace(outcome=Outcome(error))

    def _end(self, handled: Handled) -> bool:
        """Settle the message. Returns whether its duration is to be measured: its handler ran, and did not yield."""
        reservation = handled.attempt.reservation
        unfinished = isinstance(handled.outcome.error, Yield | NotBegun | Asleep)
        if unfinished and not self._stops.asked(reservation):  # one that was asked to stop is settled like a failure
            self._flight.leave(reservation)  # if the launch dies, it is not charged any more
            return self._settling.settle_unfinished(handled)
        self._flight.end(reservation, handled.ended)
        self._settling.settle(handled)
        return True

    def is_late(self) -> bool:
        """Whether an outcome has waited longer than `HORIZON` to be settled."""
        since = self._settling.since
        return since is not None and self._launch.clock() - since > HORIZON

    def settle(self) -> None:
        self._exchange.settle()
        self._settling.call_hooks()


class MessageStopper:
    def __init__(
        self,
        launch: Launch,
        executor: Executor,
        exchange: Exchange,
        queues: Sequence[str],
        calls: BulkCalls,
    ) -> None:
        self._stops, self._flight = launch.progress.stops, launch.progress.flight
        self._executor, self._exchange, self._queues, self._calls = executor, exchange, queues, calls
        self._interrupted: set[tuple[str, bytes]] = set()
        self._clock, self.timed_out = launch.clock, set[Reservation]()
        """``timed_out``: messages in flight whose limits have passed."""
        self._look_at = 0.0
        """When to look at the limits again, on the launch's clock."""

    def interrupt(self) -> None:
        """Interrupt each handler in flight that has passed its limit and, after a grace, each one that was asked to
        stop. If handlers run in the main thread, a signal handler calls this as well."""
        for reservation in self._flight.overdue(self._clock()):
            if reservation not in self.timed_out:
                self.timed_out.add(reservation)
                if (known := self._calls.known(reservation)) is not None:
                    self._executor.stop(known, AT_ONCE, partial(self._is_in_flight, reservation))
        asked = self._stops.pending()
        for reservation in self._flight.in_flight() if asked else ():
            named = reservation.queue, reservation.id
            if named not in self._interrupted and self._calls.may_stop(reservation, asked):
                self._interrupted.add(named)
                self._executor.stop(reservation, STOP_GRACE, partial(self._is_in_flight, reservation))

    def _is_in_flight(self, reservation: Reservation) -> bool:
        return reservation in self._flight.in_flight()

    def attend(self) -> None:
        """Call `interrupt` if it is time to. Discard requests to stop messages that this launch does not hold."""
        if not self._stops.any():
            if (now := self._clock()) >= self._look_at:
                self._look_at = now + HORIZON
                self.interrupt()
            return
        self.interrupt()
        here = {(queue, message_id) for queue in self._queues for message_id in self._exchange.held(queue)}
        for named in self._stops.pending() - here:
            self._stops.forget(*named)
            self._interrupted.discard(named)


class BulkAttempt(Attempt):
    """A bulk handler's call with several messages. ``reservation``, ``handler``: those of the first attempt."""

    attempts: Sequence[Attempt]


class BulkCalls:
    """The calls of bulk handlers in flight. After a call, ``measure`` is called with its handler, size and seconds."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.measure: Callable[[str, int, float], None] = lambda *_: None
        self._in_flight: dict[Reservation, BulkAttempt] = {}
        """For each message in a call with others, that call. A message that is called alone is not in it."""

    def add(self, call: BulkAttempt) -> None:
        """Add a call that begins with several messages."""
        self._in_flight |= dict.fromkeys((each.reservation for each in call.attempts), call)

    def each_of(self, handled: Handled) -> Iterable[Handled]:
        """The outcomes of the single messages of the call ``handled``, which has ended."""
        call, outcome = handled.attempt, handled.outcome
        assert isinstance(call, BulkAttempt)
        for each in call.attempts:
            self._in_flight.pop(each.reservation, None)
        if not isinstance(outcome.error, Yield | NotBegun | ProcessDied):
            self.measure(call.handler.name, len(call.attempts), handled.ended - handled.started)
        died = isinstance(outcome.error, ProcessDied | HandlerTimeout) and len(call.attempts) > 1
        if died and not call.handler.at_most_once:  # GUARD called alone after a death; at most once is not called again
            self._pace.begun -= len(call.attempts)
            outcome = Outcome(CallDied())
        outcomes = outcome.result if outcome.error is None else [outcome] * len(call.attempts)
        assert outcome.error is not None or isinstance(outcomes, CallOutcomes)
        ended = [handled._replace(attempt=each, outcome=of) for each, of in zip(call.attempts, outcomes, strict=True)]
        return ended[::-1] if isinstance(outcome.error, CallDied) else ended  # each goes to the head of the queue

    def known(self, reservation: Reservation) -> Reservation | None:
        """``reservation`` if the executor knows its call by it; None for the other messages of a bulk call."""
        call = self._in_flight.get(reservation)
        return reservation if call is None or call.reservation is reservation else None

    def of(self, reservation: Reservation) -> Sequence[Reservation]:
        """All messages that share a call with ``reservation``, itself included."""
        call = self._in_flight.get(reservation)
        return [reservation] if call is None else [each.reservation for each in call.attempts]

    def may_stop(self, reservation: Reservation, asked: Set[tuple[str, bytes]]) -> bool:
        """Whether the executor knows a call by ``reservation``, and every message of the call was ``asked`` to stop."""
        # GUARD a call with others goes on
        return self.known(reservation) is not None and all((it.queue, it.id) in asked for it in self.of(reservation))


def refuse_crashed(reservation: Reservation, why: str) -> None:
    """Raise Crashed if the process died too often while it handled the message. ``why``: how it last died, for the
    error."""
    if reservation.spent:
        raise Crashed(f"{why}launch killed while running it, in its last attempt")
    if reservation.crashes >= MOST_CRASHES:
        raise Crashed(f"{why}launch killed {reservation.crashes} times while running it")


class _Unknown:
    """Stands for a retry policy that this process does not have. Its use fails, so a warning is logged, and the default
    delay applies."""

    def __init__(self, name: str) -> None:
        self._name = name

    def delay(self, attempt: int, chance: float) -> NoReturn:  # noqa: ARG002  as of every policy
        raise LookupError(f"no retry policy named {self._name} here")
