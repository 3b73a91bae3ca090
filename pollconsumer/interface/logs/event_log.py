"""Logs the events of a launch."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

from pollconsumer.core import events
from pollconsumer.core.errors import suggestion
from pollconsumer.core.events import Event
from pollconsumer.core.spans import YEAR, format_duration
from pollconsumer.core.window import why_stopped
from pollconsumer.interface.logs.logs import LASTING, MET, PERSISTENT, UNDAMPED, about, log

WARNINGS: dict[type, tuple[str, str]] = {
    events.MessageParked: (
        "unknown handler: {handler}",
        "no handler named {handler}: its messages are kept, tried again every {delay}; add its module to handlers, or "
        'aliases=["{handler}"] to the handler that has another name now{meant}',
    ),
    events.MessageExpired: (
        "expired: {queue}",
        "queue {queue}: messages expired before a launch could handle them, such as {id} ({handler}); "
        "'list --state expired' shows all",
    ),
    events.MessagesFound: (
        "in no list: {queue}",
        "queue {queue}: lost messages were found, and are ready again: {messages}",
    ),
    events.ReservationsLost: (
        "settled late",
        "messages finished too late, another launch had taken them over and handles them again: {ids}",
    ),
    events.MessageNotBegun: (
        "not begun: {handler}",
        "cannot start messages of {handler}: {reason}; kept, tried again every {delay}",
    ),
    events.NewerMessagesFound: (
        "newer messages: {queue}",
        "queue {queue} has messages of a newer pollconsumer, kept as they are; upgrade this one",
    ),
    events.RetryPolicyFailed: (
        "retry policy failed: {handler}",
        "retry policy of {handler} failed, the default delays are used: {reason}",
    ),
    events.ResultDropped: (
        "result dropped: {handler}",
        "{id} ({handler}) is completed, but its result is not kept: {reason}",
    ),
    events.StepsUnasked: (
        "steps unasked: {handler}",
        "{id} ({handler}) has recorded steps that its handler no longer has: {steps}; were they renamed meanwhile?",
    ),
    events.QueueUnserved: (
        "queue unserved: {queue}",
        "queue {queue}: {messages} ready, and no launch serves it{handlers}; start 'run --queue {queue}' too, "
        "or name it in consumer.queues with the others",
    ),
    events.ConflictDropped: (
        "conflict dropped: {queue}",
        "a handler's message was not enqueued: queue {queue} has another message with its id {id}; choose another id",
    ),
    events.DescriptorsUsedUp: (
        "descriptors used up: {handler}",
        "too many open files after {id} ({handler}), so the launch ends; let handlers close their files, or raise the "
        "limit (ulimit -n)",
    ),
    events.WindowTooShort: (
        "window too short",
        "this launch had no time to take a message: it stops {margin} before its end, and only {left} were left; "
        "raise timeout, or lower estimated_duration, tolerance_factor or min_margin",
    ),
    events.StoreAwaited: (
        "store awaited",
        "no answer from the store since {since}, asked again until {until}: {address}; it says: {reason}",
    ),
    events.RecurrenceUnreadable: (
        "recurrence left out: {queue}: {recurrence}",
        "recurrence {recurrence} of queue {queue} is skipped: {reason}",
    ),
    events.RecurrenceContested: (
        "recurrence contested: {queue}: {recurrence}",
        "recurrence {recurrence} of queue {queue} is defined in two ways by different launches; upgrade all of "
        "them, or give one of the two another name",
    ),
    events.RecurrenceTaken: (
        "recurrence taken: {queue}: {recurrence}",
        "recurrence {recurrence} of the configuration is skipped: a program added one of that name, in queue {queue}; "
        "remove that one, or rename one of the two",
    ),
    events.PingFailed: ("ping not delivered: {host}", "ping to {host} was not delivered: {reason}"),
    events.NamespaceShared: (
        "namespace shared: {config}",
        "a launch of another project is running here: {config}; both take messages from the same queues: give each a "
        "namespace of its own in its configuration",
    ),
    events.OutboxEntryRefused: (
        "outbox entry refused: {queue}",
        "a message in the outbox of queue {queue} is not enqueued: {reason}; 'dead list --unreadable' shows it",
    ),
    events.SpoolFileRefused: (
        "spooled file refused: {file}",
        "messages in the spool are not enqueued: {reason}; kept as {file}: rename it without .refused to try it again",
    ),
    events.SpoolUnusable: (
        "spool unusable: {directory}",
        "messages in the spool {directory} are not enqueued yet: {reason}",
    ),
    events.QueueLeftOut: ("queue left out: {queue}", "queue {queue} is skipped: {reason}"),
}
"""Event → its warning: the name of the streak (see `logs.about`), and the text. Fields of the event are filled in."""
NOTES: dict[type, str] = {
    events.LaunchWaits: "another launch is running ({holders}); waiting up to {left} for it to end",
    events.MessageCompleted: "{id} ({handler}) completed in {took}",
    events.HandlerPaused: "{id} ({handler}) is kept for {delay}: its handler is paused; 'handler resume' ends that",
    events.MessageStopped: "{id} ({handler}), attempt {attempt}, stopped on request: {error}",
    events.OrphansRecovered: "messages of a killed launch are ready again in queue {queue}: {messages}",
    events.OccurrencesSkipped: "occurrences of {recurrence} skipped: {messages}",
    events.RecurrenceRemoved: "recurrence {recurrence} is no longer defined: removed",
}
"""Event that the log shows only with -v → its text."""
ONCE: dict[type, str] = {
    events.MessageParked: "handler",
    events.MessageNotBegun: "handler",
    events.NewerMessagesFound: "queue",
    events.MessageExpired: "queue",
    events.StepsUnasked: "handler",
}
"""Event → a field. The event is a warning only once for each value of this field."""


def listener(handlers: Callable[[], Collection[str]] = tuple) -> Callable[[Event], None]:
    """A listener that logs problems as warnings, and other events with -v. ``handlers``: returns the names of all known
    handlers."""
    announced = set[tuple[type, Any]]()

    def listen(event: Event) -> None:
        fields = {name: _shown(value) for name, value in event.fields().items()}
        if isinstance(event, events.QueueUnserved) and event.handlers:
            fields["handlers"] = f", though it is the queue of {fields['handlers']}"
        if isinstance(event, events.StoreAwaited):
            fields |= {"since": _clock(-event.seconds), "until": _clock(event.left)}
        subject = type(event), fields.get(ONCE.get(type(event), ""))
        if isinstance(event, events.MessageParked) and subject not in announced:
            asked = suggestion(event.handler, handlers(), " ").strip()
            fields["meant"] = asked and f"; {asked}"
        match event:
            case events.LaunchEnded():
                if log.streaks is not None:
                    log.streaks.stopped = event.stop_reason  # it got as far as the lease, so some may be over
                counts = event.counts() + (f"; run {event.run_id}" if event.run_id else "")
                text, reason = "%s ended after %s (%s): %s", why_stopped(event.stop_reason)
                summary = {"fields": {"event": "launch_ended", **event.fields()}}
                log.info(text, event.role, fields["running_seconds"], reason, counts, extra=summary)
            case events.LaunchBegan():
                until = _clock(max(0.0, event.left))
                served = f"queues {fields['queues']}" if event.queues else f"{event.role} for all queues"
                log.info("started: %s; runs until %s", served, until)
            case events.AttemptFailed():
                _log_failure(event, fields)
            case events.QueueUnknown():
                text = "queue %s never had a message, and no handler belongs to it; is it misspelt?"
                log.warning(text, event.queue, extra=UNDAMPED)  # printed once, since the launch registers the queue
            case events.MessageExpired() if subject in announced:
                log.info("%s", "{id} ({handler}) of queue {queue} has expired".format_map(fields))
            case _ if subject in announced:
                pass
            case _ if text := NOTES.get(type(event), ""):
                log.info("%s", text.format_map(fields))
            case _:
                if type(event) in ONCE:
                    announced.add(subject)
                streak, text = WARNINGS.get(type(event)) or _plainly(event)
                persists = isinstance(event, events.PingFailed | events.NamespaceShared | events.SpoolUnusable)
                kind = PERSISTENT if persists else LASTING if isinstance(event, events.QueueUnserved) else MET
                log.warning("%s", text.format_map(fields), extra=about(streak.format_map(fields), kind=kind))

    return listen


def _log_failure(event: events.AttemptFailed, fields: dict[str, Any]) -> None:
    place = f" ({event.place})" if event.place else ""
    traced = {"fields": {"traceback": event.traced} if event.traced else {}}
    if event.delay is None:
        text = "dead letter: {id} ({handler}), attempt {attempt}: {error}"
        log.warning("%s%s", text.format_map(fields), place, extra=UNDAMPED | traced)
    else:
        text = "{id} ({handler}), attempt {attempt} failed, again in {delay}: {error}"
        log.info("%s%s", text.format_map(fields), place, extra=traced)


def _plainly(event: Event) -> tuple[str, str]:
    """Streak and text of an event without a text of its own: name and fields, so that logging never ends a launch."""
    name = type(event).__name__
    return name, ", ".join([name, *(f"{field} {{{field}}}" for field in event.fields())])


def _clock(seconds: float) -> str:
    """The local time in ``seconds`` from now."""
    return time.strftime("%H:%M:%S", time.localtime(time.time() + max(-YEAR, min(YEAR, seconds))))


def _shown(value: object) -> object:
    """A field's ``value`` for people. Every float in an event is a duration."""
    if isinstance(value, float):
        return format_duration(value)
    return ", ".join(value) if isinstance(value, tuple) else value
