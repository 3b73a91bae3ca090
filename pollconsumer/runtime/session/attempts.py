"""Attempts: made of reserved messages, started, stopped, and settled when their handlers have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from pollconsumer.core.durations import Durations
from pollconsumer.core.messages.message import Options, decoded_options
from pollconsumer.core.messages.payloads import Malformed, decode_payload
from pollconsumer.core.news.events import DescriptorsUsedUp
from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.core.retry import MOST_CRASHES, STOP_GRACE, NotBegun, Stopped
from pollconsumer.core.users_code import TimeIsUp
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.executors import Attempt, Executor, Handled
from pollconsumer.runtime.handling.handler import Crashed, Handler
from pollconsumer.runtime.handling.outcome import Outcome
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.runtime.session.pace import HORIZON, LONGEST_WAIT, Pace
from pollconsumer.runtime.session.settlements import Settlements, resisted
from pollconsumer.runtime.system.system_limits import SpareDescriptors
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    from pollconsumer.runtime.launch.pings import Monitors


class AttemptOpener:
    def __init__(
        self,
        launch: Launch,
        handlers: Mapping[str, Handler],
        settling: Settlements,
        context_of: Callable[[Reservation], LaunchContext],
        settle: Callable[[], None],
        new_monitors: Callable[[], Monitors] | None,
    ) -> None:
        """``settle`` has the store settle what ``settling`` holds. Without ``new_monitors`` no monitor is told."""
        self._launch, self._stops, self._clock = launch, launch.progress.stops, launch.clock
        self._handlers, self._settling = handlers, settling
        self._context_of, self._settle = context_of, settle
        self._new_monitors = new_monitors

    def attempt(self, reservation: Reservation) -> Attempt | None:
        """The attempt at a message that is to be handled. None for a message that is to stop, has expired or is
        malformed, whose handler is unknown or paused, which a newer version wrote, or whose process died too often:
        that one is settled."""
        handler = self._handlers.get(reservation.handler)
        if (self._stops.paused or self._stops.any()) and self._turns_away(reservation):
            return None
        if reservation.expires and reservation.has_expired(self._clock()) and not self._took_steps(reservation):
            self._settling.expire(reservation, reservation.server_ms(self._clock()))
            self._call_hooks()
        elif handler is None:
            self._settling.park(reservation)
        else:
            try:
                if reservation.lot.sequel and _has_newer_sequel(reservation):
                    self._settling.set_aside(reservation)
                    return None
                if not reservation.options:
                    return self._opened(reservation, handler)
                if (with_options := self._with_options(handler, reservation)) is not None:
                    handler = with_options
                    return self._opened(reservation, handler)
                self._settling.set_aside(reservation)
            except NotBegun as error:
                self._settling.postpone(reservation, error)
            except (Crashed, Malformed) as error:
                self._settling.dead_letter(reservation, handler, error, reservation.server_ms(self._clock()))
                self._call_hooks()
        return None

    def _turns_away(self, reservation: Reservation) -> bool:
        """Settle a message that is to stop, or whose handler is paused."""
        if self._stops.asked(reservation):
            self._settling.stop_unstarted(reservation)
            return True
        if reservation.handler in self._stops.paused:  # GUARD a handler that is paused
            self._settling.park(reservation)
            return True
        return False

    def _took_steps(self, reservation: Reservation) -> bool:
        """Whether an earlier attempt took steps: from then on the message does not expire."""
        if not reservation.has_checkpoint:
            return False
        recorded = self._context_of(reservation).delivery.recorded
        return recorded is not None and len(recorded.steps) > 0

    def _opened(self, reservation: Reservation, handler: Handler) -> Attempt:
        """An attempt by ``handler``. NotBegun if the launch is too short for it by its declared timeout."""
        if self._launch.end.outlasts(handler.timeout, self._launch.window.length):
            timeout, window = (
                format_duration(handler.timeout or 0.0),
                format_duration(round(self._launch.window.length)),
            )
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
            self._settle()
        return Attempt(reservation, handler, payload, self._context_of(reservation))

    def _limited(self, handler: Handler, reservation: Reservation) -> Handler:
        """``handler``, for one window at most if the message resisted its limit before and no timeout is declared.
        Crashed if the message's process died too often for another attempt."""
        store = self._launch.store
        stored = store.wire.command("HGET", store.keys.queue(reservation.queue, "errors"), reservation.id) or b""
        error, has_resisted = resisted(stored.decode("utf-8", "replace"))
        refuse_crashed(reservation, f"{error}; " if has_resisted else "")
        end = self._launch.end
        if not has_resisted or handler.timeout is not None:
            return handler
        limit = min(self._launch.window.length, end.limit(None))
        return handler.with_timeout(limit)._replace(limited=True)

    def _with_options(self, handler: Handler, reservation: Reservation) -> Handler | None:
        """``handler`` with the message's options; None if a newer version wrote any of them. NotBegun if its payload is
        encoded, and there is no codec."""
        options, newer = decoded_options(reservation.options)
        if newer:
            return None
        if options.encoded and handler.codec is None:  # GUARD an encoded payload needs a codec
            raise NotBegun("they are encoded, and PollConsumer() has no codec=")
        handler = overridden(handler, options)
        if options.ping is not None and self._new_monitors is not None:
            self._settling.monitors = self._settling.monitors or self._new_monitors()
            self._settling.monitors.begin(reservation, options.ping)
        return handler

    def _call_hooks(self) -> None:
        if self._settling.watched:
            self._settle()


def _has_newer_sequel(reservation: Reservation) -> bool:
    """Whether a newer version wrote the message's sequel. Malformed if it is corrupt."""
    from pollconsumer.core.messages.sequel import decoded  # few messages have one

    return decoded(reservation.lot.sequel)[1]


def refuse_crashed(reservation: Reservation, why: str) -> None:
    """Raise Crashed if the message's process died too often for another attempt; ``why`` it did the last time."""
    if reservation.spent:
        raise Crashed(f"{why}launch killed while running it, in its last attempt")
    if reservation.crashes >= MOST_CRASHES:
        raise Crashed(f"{why}launch killed {reservation.crashes} times while running it")


def overridden(handler: Handler, options: Options) -> Handler:
    """``handler`` with the ``options`` of a message.

    A message that is handled at most once has one attempt: an option for more is ignored.
    """
    changes: dict[str, Any] = {}
    if options.max_attempts is not None and not handler.at_most_once:
        changes["max_attempts"] = options.max_attempts
    if options.retry is not None:
        changes["retry"] = handler.policies.get(options.retry) or _Unknown(options.retry)
    if options.timeout is not None:
        handler = handler.with_timeout(options.timeout)
    return handler._replace(**changes)


class _Unknown:
    """Stands for a policy that no application here has registered: its failure is reported, and the default delay
    applies."""

    def __init__(self, name: str) -> None:
        self._name = name

    def delay(self, attempt: int, chance: float) -> NoReturn:  # noqa: ARG002  as of every policy
        raise LookupError(f"no retry policy named {self._name} here")


AT_ONCE = 0.001
"""Seconds: a timer that is set to none does not ring."""


class MessageStopper:
    def __init__(
        self,
        launch: Launch,
        executor: Executor,
        exchange: Exchange,
        queues: Sequence[str],
        stoppable: Callable[[Reservation], Reservation | None] | None = None,
        known: Callable[[Reservation], Reservation | None] | None = None,
    ) -> None:
        """``stoppable`` names the message by which the executor knows the call of one that is to stop; None while
        others share that call. ``known`` names it for the first message of a call; None for the others."""
        self._stops, self._flight = launch.progress.stops, launch.progress.flight
        self._executor, self._exchange, self._queues = executor, exchange, queues
        self._interrupted: set[tuple[str, bytes]] = set()
        self._clock, self.timed_out = launch.clock, set[Reservation]()
        """``timed_out``: messages in hand whose limits have passed."""
        self._stoppable = stoppable or (lambda reservation: reservation)
        self._known = known or (lambda reservation: reservation)

    def interrupt(self) -> None:
        """Interrupt handlers in hand, at their limits, and after a grace where a stop is asked for. From a signal
        handler, too, if they run in the main thread."""
        for reservation in self._flight.overdue(self._clock()):
            if reservation not in self.timed_out:
                self.timed_out.add(reservation)
                if (known := self._known(reservation)) is not None:
                    self._executor.stop(known, AT_ONCE, partial(self._is_in_hand, reservation))
        standing = self._stops.standing() - self._interrupted
        for reservation in self._flight.in_hand() if standing else ():
            named = reservation.queue, reservation.id
            if named in standing and (known := self._stoppable(reservation)) is not None:
                self._interrupted.add(named)
                self._executor.stop(known, STOP_GRACE, partial(self._is_in_hand, reservation))

    def _is_in_hand(self, reservation: Reservation) -> bool:
        return reservation in self._flight.in_hand()

    def attend(self) -> None:
        """Interrupt handlers where a stop is asked for, and forget requests about messages that are not here, or no
        longer."""
        self.interrupt()
        if not self._stops.any():
            return
        here = {(queue, message_id) for queue in self._queues for message_id in self._exchange.held(queue)}
        for named in self._stops.standing() - here:
            self._stops.forget(*named)
            self._interrupted.discard(named)


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
