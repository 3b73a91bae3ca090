"""The settlements of a launch's messages: outcomes to settle with the next step, failures, encoded results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pollconsumer.core.events import (
    AttemptFailed,
    HandlerPaused,
    MessageCompleted,
    MessageExpired,
    MessageNotBegun,
    MessageParked,
    MessageStopped,
    NewerMessagesFound,
    ResultDropped,
    RetryPolicyFailed,
    StepsUnasked,
)
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages import continuation as continuations
from pollconsumer.core.messages.codec import encoded_json
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.message_steps import Recorded
from pollconsumer.core.messages.payloads import Malformed, quick
from pollconsumer.core.retry import (
    LONGEST_DEFERRAL,
    Asleep,
    CallDied,
    NotBegun,
    Stopped,
    after_failure,
    is_deferred,
)
from pollconsumer.core.spans import YEAR, format_duration
from pollconsumer.core.users_code import TimeIsUp, described, text_of
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.executors import Attempt, Handled
from pollconsumer.runtime.handling.handler import (
    Crashed,
    Handler,
    Hooks,
    aliases_among,
    describe,
    described_with_location,
    location,
    trace,
    why_dropped,
)
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.store.queues.outbox import Answer, member_end_entry, pack
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import DeadLetter, Reservation
from pollconsumer.store.records.steps import Completion, CompletionEffects, QueueStep, Settlement

if TYPE_CHECKING:
    from pollconsumer.runtime.launch.pings import Monitors
    from pollconsumer.runtime.session.contexts import Predecessors
    from pollconsumer.store.queues.batches import NewBatch


MAX_RESULT_BYTES = 64 * 1024
RESULTS_KEPT_MS = 48 * 3600 * 1000
"""Milliseconds for which results of a batch's members are kept at least, for the batch's callbacks."""
_SCALARS: dict[type, Callable[[Any], str]] = {int: int.__repr__, str: json.encoder.encode_basestring}
"""How the JSON encoder writes a text and a whole number. Calling these directly is faster than the encoder."""
PARKED_FOR = 60.0
"""Seconds after which a message is offered again if its handler is unknown, is paused, or could not begin."""
MAX_ERROR_CHARACTERS = 500
RESISTED_BEFORE = "; limited to one window: it resisted before"
"""The end of the error of an attempt that had only one window, since an earlier attempt did not stop at its limit."""
LONGEST_RETRY_DELAY = 10 * YEAR


def effects_beyond_result(
    reservation: Reservation, context: LaunchContext | None, result: bytes, at: int, kept_for_ms: int
) -> CompletionEffects | None:
    """What a completion stores, if the message may have follow-ups: its ``result``, encoded, the messages to enqueue,
    and the report to its batch. None if there is nothing to store. ``at``: when it ended, in epoch ms of the server."""
    following: list[NewMessage] = []
    answers: list[Answer] = []
    opened: list[NewBatch] = []
    added, member_end = 0, b""
    if context is not None:
        following, opened, added = [*context.enqueued], context.batches(), context.added
    if stored := reservation.common.continuation:
        continuation, _ = continuations.decoded(stored)
        result_value = json.loads(result) if result else None
        following += continuation.following(reservation.name, reservation.queue, State.COMPLETED, at, result_value)
        if continuation.answers is not None:
            answers.append(Answer.completed(continuation.answers, reservation.name, result))
        if continuation.ends_member(State.COMPLETED):
            member_end = member_end_entry(continuation.batch, added)
            kept_for_ms = kept_for_ms and max(kept_for_ms, RESULTS_KEPT_MS)  # GUARD results of members are kept
        elif continuation.batch:  # its id is the member's, so its result would be taken for that of the chain
            kept_for_ms = 0
    outgoing = pack(following, at, opened, answers) if following or opened or answers else b""
    kept = result if kept_for_ms else b""
    return (kept_for_ms, kept, outgoing, member_end) if kept or outgoing or member_end else None


class Settlements:
    def __init__(
        self,
        launch: Launch,
        context_of: Callable[[Reservation], LaunchContext],
        handlers: Mapping[str, Handler],
        predecessors: Predecessors,
    ) -> None:
        self._predecessors = predecessors
        self._emit, self._chance, self._context_of, self._handlers = launch.emit, launch.chance, context_of, handlers
        self._stops, self._reports_completed = launch.progress.stops, launch.plan.reports_completed
        self._aliases = aliases_among(handlers)
        self._codecs = {name: each.codec for name, each in handlers.items() if each.codec is not None}
        self._steps: dict[str, QueueStep] = {}
        self._completions: dict[str, list[Completion]] = {}
        """For each queue, completed messages that are in no step yet, in the order in which they ended."""
        self.since: float | None = None
        """When the attempt ended that has waited longest to be settled, on the monotonic clock. None if none waits."""
        self.urgent = False
        """Whether an outcome must be settled before the next message begins. It is so after a last attempt, or one
        delivered at most once: if the process died before it is settled, the message would become a dead letter."""
        self.watched: list[tuple[bytes, Callable[[], None]]] = []
        """Hooks to call after the store has accepted the settlement of their message, by the message's id."""
        self.monitors: Monitors | None = None
        """Reports occurrences to their monitors. None until an occurrence with a monitor begins."""
        self.held_over: list[Reservation] = []
        """Messages whose handlers yielded. They stay reserved until the launch ends, since this launch would get them
        again if they were released."""
        self.handled = self.failed = self.released = self.yielded = 0

    def named(self, reserved: Sequence[Reservation]) -> Sequence[Reservation]:
        """``reserved``, with the handler's own name instead of an alias. The store keeps the alias."""
        if self._aliases:
            for each in reserved:
                each.handler = each.common.handler = self._aliases.get(each.handler, each.handler)
        return reserved

    def settle(self, handled: Handled) -> None:
        (reservation, handler, _, context), started, ended, outcome = handled
        error = outcome.error
        if error is None:
            effects = self.effects_of(reservation, int(handler.result_ttl * 1000), context, outcome.result, ended)
            self.complete((reservation, started, ended, effects))
            if context is not None and context.unasked:
                self._emit(StepsUnasked(reservation.name, reservation.handler, tuple(context.unasked)))
        else:
            if self.since is None:
                self.since = ended
            self._fail(handled, error, reservation.server_ms(started), reservation.server_ms(ended))
        self.urgent = self.urgent or reservation.attempt >= handler.max_attempts or handler.at_most_once

    def effects_of(
        self, reservation: Reservation, kept_for_ms: int, context: LaunchContext | None, result: Any, ended: float
    ) -> CompletionEffects | None:
        """What the completion stores besides the message's end: result, follow-ups, report to its batch; or None."""
        encoded, continuation = b"", reservation.common.continuation
        if result is not None and (kept_for_ms > 0 or continuation):
            try:
                scalar = _SCALARS.get(type(result))
                encoded = (scalar(result) if scalar else "".join(quick(result, 0))).encode()
            except BaseException:  # the user's classes may raise, or the user's threads change it meanwhile
                self._drop(reservation, why_dropped(result)[:200])
            if len(encoded) > MAX_RESULT_BYTES:
                self._drop(reservation, f"{len(encoded)} bytes of JSON, {MAX_RESULT_BYTES} at most")
                encoded = b""
            if encoded and (codec := self._codecs.get(reservation.handler)):
                try:
                    encoded = encoded_json(encoded, codec)
                except Exception as error:
                    self._drop(reservation, f"the codec raised {described(error)}")
                    encoded = b""  # it must not be stored in plain text
        if continuation or (context is not None and context.leaves):
            return effects_beyond_result(reservation, context, encoded, reservation.server_ms(ended), kept_for_ms)
        return (kept_for_ms, encoded, b"", b"") if encoded else None

    def _drop(self, reservation: Reservation, reason: str) -> None:
        self._emit(ResultDropped(reservation.name, reservation.handler, reason))

    def settle_unfinished(self, handled: Handled) -> bool:
        """Settle a message whose attempt is not charged: its handler yielded, sleeps, did not begin, or shared a call
        that died. Returns whether the duration is to be measured: the handler ran, and did not yield."""
        reservation, error = handled.attempt.reservation, handled.outcome.error
        if isinstance(error, Asleep):
            self.sleep(handled, error)
        elif isinstance(error, CallDied):
            # It may have ended the call that it shared, so it is called alone.
            self._add(reservation, Settlement.released(reservation, deaths=1, begun=True))
        elif isinstance(error, NotBegun):
            self.postpone(reservation, error)
            return False
        else:
            self.held_over.append(reservation)
            return False
        return True

    def complete(self, completion: Completion) -> None:
        """Settle a completed message. What the completions of a step have in common is computed once."""
        reservation, started, ended, _ = completion
        if self.since is None:
            self.since = ended
        self.handled += 1
        queue = reservation.common.queue
        if queue in self._completions:
            self._completions[queue].append(completion)
        else:
            self._completions[queue] = [completion]
        if self.monitors is not None:
            self.monitors.end(reservation, 0, "completed")
        if self._reports_completed:
            self._emit(MessageCompleted(reservation.name, reservation.handler, ended - started))

    def _fail(self, handled: Handled, error: BaseException, started: int, ended: int) -> None:
        reservation, handler = handled.attempt.reservation, handled.attempt.handler
        if self._stops.asked(reservation):
            self._stop(reservation, error, started, ended)
            return
        outcome = after_failure(
            error,
            reservation.attempt,
            max_attempts=handler.max_attempts,
            policy=handler.retry,
            fatal=handler.fatal,
            chance=self._chance(),
            # GUARD at most once is not deferred
            since_due=None if handler.at_most_once else (ended - _went_on_at(handled.attempt, ended)) / 1000,
        )
        problem = describe(error)[:MAX_ERROR_CHARACTERS] + RESISTED_BEFORE * handler.limited
        if outcome is None:
            if is_deferred(error) and not handler.at_most_once:
                problem = f"deferred until {format_duration(LONGEST_DEFERRAL)} after it was due: {problem}"
            self._dead(handled.attempt, problem, started, ended, error)
            return
        if outcome.problem is not None:
            policy_problem = described_with_location(outcome.problem, MAX_ERROR_CHARACTERS)
            self._emit(RetryPolicyFailed(reservation.handler, policy_problem))
        delay_ms, traced = int(min(outcome.delay, LONGEST_RETRY_DELAY) * 1000), trace(error)
        about, took = (reservation.name, reservation.handler, reservation.attempt), ended - started
        self._emit(AttemptFailed(*about, problem, outcome.delay, location(error), traced, took / 1000))
        if not outcome.charged:  # GUARD a deferral is settled uncharged
            self.yielded += 1
            self._add(reservation, Settlement.deferred(reservation, delay_ms=delay_ms, error=problem, took=took))
            return
        self.failed += 1
        self._add(
            reservation,
            Settlement.retrying(reservation, started, ended, delay_ms=delay_ms, error=_kept(problem, traced)),
        )
        if handler.hooks is not None:
            self._watch(handler.hooks, reservation, handled.attempt.context, "on_failure", error, outcome.delay)

    def _stop(self, reservation: Reservation, error: BaseException, started: int, ended: int) -> None:
        """Settle a message that was asked to stop and is not completed. No hook is called; no attempt follows."""
        self.failed += 1
        interrupted = isinstance(error, Stopped | TimeIsUp | Asleep)
        error = Stopped() if isinstance(error, TimeIsUp | Asleep) else error
        problem = text_of(error) if interrupted else f"stopped on request: {describe(error)}"
        problem = problem[:MAX_ERROR_CHARACTERS]
        kept = _kept(problem, "" if interrupted else trace(error))
        self._add(reservation, Settlement.stopped(reservation, started, ended, error=kept))
        about, took = (reservation.name, reservation.handler, reservation.attempt), (ended - started) / 1000
        self._emit(MessageStopped(*about, problem, took))
        if self.monitors is not None:
            self.monitors.end(reservation, 1, "stopped on request")

    def stop_unstarted(self, reservation: Reservation) -> None:
        """Release a message that was asked to stop and has not begun. The store then cancels it."""
        self.release(reservation)
        problem = "stopped on request, before it was handled"
        self._emit(MessageStopped(reservation.name, reservation.handler, reservation.attempt, problem))

    def dead_letter(self, reservation: Reservation, handler: Handler, error: Exception, now: int) -> None:
        """Make a message that cannot be handled a dead letter. Crashed counts no attempt. ``now``: epoch ms."""
        attempt, counted = Attempt(reservation, handler, {}), not isinstance(error, Crashed)
        self._dead(attempt, str(error), reservation.reserved_at, now, error, called=False, counted=counted)

    def add_dead_letter(self, dead_letter: DeadLetter) -> None:
        """Count and report a dead letter that the store made."""
        message, problem = dead_letter
        self.failed += 1
        self._emit(death_of(dead_letter))
        for hooks in self._concerned(message):
            self._watch(hooks, message, None, "on_dead", Malformed(problem))

    def _concerned(self, message: Reservation) -> list[Hooks]:
        """The hooks of the application that has the message's handler; of all applications if none has it."""
        handler = self._handlers.get(message.handler)
        concerned = self._handlers.values() if handler is None else [handler]
        return [*{id(each.hooks): each.hooks for each in concerned if each.hooks is not None}.values()]

    def expire(self, reservation: Reservation, now: int) -> None:
        """Settle a message that expired before it began, uncharged. ``now``: in epoch ms of the server."""
        self._add(reservation, Settlement.expired(reservation, now))
        self._emit(MessageExpired(reservation.name, reservation.handler, reservation.queue))
        for hooks in self._concerned(reservation):
            self._watch(hooks, reservation, None, "on_expired")

    def _watch(
        self, hooks: Hooks, reservation: Reservation, context: LaunchContext | None, kind: str, *member_end: object
    ) -> None:
        """Have `call_hooks` call the hooks of ``kind`` once the message is settled, with the arguments ``member_end``:
        see `Hooks.settled`."""

        def context_of() -> LaunchContext:
            return (context or self._context_of(reservation)).after_settlement()

        self.watched.append((reservation.id, partial(hooks.settled, kind, context_of, *member_end)))

    def _dead(
        self,
        attempt: Attempt,
        problem: str,
        started: int,
        ended: int,
        error: BaseException,
        *,
        called: bool = True,
        counted: bool = True,
    ) -> None:
        """Make a message a dead letter. ``called``: its handler raised ``error``. ``counted``: the attempt counts."""
        self.failed += 1
        reservation, handler, _, context = attempt
        problem = problem[:MAX_ERROR_CHARACTERS]
        at, traced = (location(error), trace(error)) if called else ("", "")
        kept = _kept(problem, traced)
        holds = handler.holds_order
        self._add(reservation, Settlement.dead(reservation, started, ended, error=kept, counted=counted, holds=holds))
        about = reservation.name, reservation.handler, reservation.attempt - (not counted)
        took = (ended - started) / 1000 if called else 0.0
        self._emit(AttemptFailed(*about, problem, None, at, traced, took))
        if self.monitors is not None:
            self.monitors.end(reservation, 1, f"dead letter, {type(error).__name__}")
        if handler.hooks is not None:
            self._watch(handler.hooks, reservation, context, "on_dead", error)

    def park(self, reservation: Reservation) -> None:
        """Settle a message, uncharged, whose handler is unknown or paused. It is offered again after `PARKED_FOR`."""
        handler, is_paused = reservation.handler, reservation.handler in self._stops.paused
        unknown, paused = f"unknown_handler: no handler named {handler} here", f"paused: a person paused {handler}"
        problem = (paused if is_paused else unknown)[:MAX_ERROR_CHARACTERS]
        self._add(reservation, Settlement.parked(reservation, offered_in_ms=int(PARKED_FOR * 1000), problem=problem))
        event = HandlerPaused if is_paused else MessageParked
        self._emit(event(reservation.name, handler, PARKED_FOR))

    def postpone_newer(self, reservation: Reservation) -> None:
        """Settle a message, uncharged, that a newer version wrote. Later a launch of that version takes it."""
        self._add(reservation, Settlement.postponed(reservation, offered_in_ms=int(PARKED_FOR * 1000)))
        self._emit(NewerMessagesFound(reservation.queue))

    def postpone(self, reservation: Reservation, error: NotBegun) -> None:
        """Settle a message, uncharged, whose handler could not begin. It is offered again after `PARKED_FOR`."""
        problem = f"not begun: {error}"[:MAX_ERROR_CHARACTERS]
        postponed = Settlement.postponed(reservation, offered_in_ms=int(PARKED_FOR * 1000), problem=problem)
        self._add(reservation, postponed)
        self._emit(MessageNotBegun(reservation.name, reservation.handler, str(error), PARKED_FOR))

    def release(self, reservation: Reservation) -> None:
        """Settle a message that was not begun: it returns to its queue, and no attempt is charged."""
        self.released += 1
        self._add(reservation, Settlement.released(reservation))

    def release_held_over(self) -> None:
        """Release, uncharged, messages whose handlers yielded: the last one first, as each goes to the head."""
        while self.held_over:
            self.yielded += 1
            reservation = self.held_over.pop()
            self._add(reservation, Settlement.released(reservation, begun=True))

    def sleep(self, handled: Handled, error: Asleep) -> None:
        """Settle a message, uncharged, that sleeps until a time, or until a signal comes."""
        self.yielded += 1
        reservation, ended = handled.attempt.reservation, handled.attempt.reservation.server_ms(handled.ended)
        if self.since is None:
            self.since = handled.ended
        took = ended - reservation.server_ms(handled.started)
        self._add(reservation, Settlement.asleep(reservation, wakes_in_ms=max(0, error.until - ended), took=took))

    def call_hooks(self) -> None:
        """Call the hooks of messages whose settlements the store has accepted."""
        watched, self.watched = self.watched, []
        waiting = {each for step in self._with_completions().values() for each in step.ids()}  # for a lost node
        for message_id, call_hook in watched:
            if message_id in waiting:
                self.watched.append((message_id, call_hook))
            else:
                call_hook()

    def precedes(self, reservation: Reservation) -> bool:
        """Whether another occurrence of the same recurrence is completed, and not settled yet."""
        if (occurrence := reservation.occurrence) is None:
            return False
        step = self._with_completions().get(reservation.queue)
        return step is not None and occurrence.recurrence in step.occurred

    def take(self) -> dict[str, QueueStep]:
        """Take the steps with all settlements, by queue."""
        for step in self._with_completions().values():
            if step.occurred:
                self._predecessors.found.clear()
        steps, self._steps, self.since, self.urgent = self._steps, {}, None, False
        return steps

    def keep(self, step: QueueStep) -> None:
        """Keep a step that was taken and could not be sent, so that the next `take` returns it."""
        step.wanted, step.single = 0, False
        if step.ids():
            self._steps[step.queue] = step

    def ids(self, queue: str) -> Sequence[bytes]:
        """Ids of the messages of ``queue`` that wait to be settled."""
        step = self._with_completions().get(queue)
        return () if step is None else step.ids()

    def _with_completions(self) -> dict[str, QueueStep]:
        """The steps by queue, with the completed messages added."""
        for queue, completion in self._completions.items():
            self._steps.setdefault(queue, QueueStep(queue)).complete(completion)
        self._completions.clear()
        return self._steps

    def _add(self, reservation: Reservation, settlement: Settlement) -> None:
        step = self._steps.setdefault(reservation.queue, QueueStep(reservation.queue))
        step.settlements.append(settlement)
        if reservation.common.continuation and settlement.kind in ("dead", "expire", "cancel"):
            step.reports_ends = True


def death_of(dead_letter: DeadLetter) -> AttemptFailed:
    """The event for a dead letter that the store made."""
    message = dead_letter.message
    return AttemptFailed(message.name, message.handler or "?", message.attempt, dead_letter.problem, None)


def _went_on_at(attempt: Attempt, now: int) -> int:
    """When the message was due or, if that is later, when it last took a step, woke, or got a signal. In epoch ms."""
    recorded = (attempt.context.delivery.recorded if attempt.context else None) or Recorded()
    instants = [at for step in recorded.steps for at in (step.at, step.until or 0)]
    instants += [signal.at for signal in recorded.signals]
    return max([rows.due_at(attempt.reservation.row), *(at for at in instants if at <= now)])


def _kept(problem: str, traced: str) -> str:
    """A text of error and traceback, as it is stored with the message."""
    return f"{problem}{rows.TRACE_FOLLOWS}{traced}" if traced else problem
