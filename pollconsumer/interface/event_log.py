"""Events of a launch, as lines of the log."""

from __future__ import annotations

from collections.abc import Callable

from pollconsumer.core.events import (
    AttemptFailed,
    ConflictDropped,
    DescriptorsClosed,
    DescriptorsUsedUp,
    Event,
    LaunchEnded,
    MessageParked,
    MessagesFound,
    NewerMessagesFound,
    OccurrencesSkipped,
    OrphansRecovered,
    QueueLeftOut,
    QueueUnknown,
    QueueUnserved,
    RecurrenceContested,
    RecurrenceRemoved,
    RecurrenceUnreadable,
    ReservationsLost,
    ResultDropped,
    RetryPolicyFailed,
    WindowTooShort,
)
from pollconsumer.core.timespan import format_duration
from pollconsumer.interface.logs import NEWS, STANDING, about, launch_stopped, log


def listener() -> Callable[[Event], None]:
    """Logs problems as warnings, other events for -v."""
    unknown: set[str] = set()

    def listen(event: Event) -> None:
        match event:
            case AttemptFailed(delay=None):
                log.warning(
                    "dead letter: %s (%s), attempt %d: %s",
                    event.id, event.handler, event.attempt, event.error, extra=NEWS,
                )  # fmt: skip
            case AttemptFailed(delay=float(delay)):
                again = format_duration(delay)
                log.info(
                    "%s (%s), attempt %d, again in %s: %s", event.id, event.handler, event.attempt, again, event.error
                )
            case MessageParked():
                if event.handler not in unknown:
                    unknown.add(event.handler)
                    log.warning(
                        "unknown handler: %s; its messages are parked, import its module",
                        event.handler, extra=about("unknown handler", event.handler),
                    )  # fmt: skip
            case OrphansRecovered():
                log.info("%d orphans of queue %s offered again", event.messages, event.queue)
            case MessagesFound():
                log.warning(
                    "%d messages of queue %s were in no list: repaired",
                    event.messages, event.queue, extra=about("in no list", event.queue),
                )  # fmt: skip
            case ReservationsLost():
                log.warning(
                    "settled too late, another launch had them: %s", ", ".join(event.ids), extra=about("settled late")
                )
            case NewerMessagesFound():
                log.warning(
                    "queue %s has messages of a newer version: left as they are; upgrade pollconsumer",
                    event.queue, extra=about("newer messages", event.queue),
                )  # fmt: skip
            case RetryPolicyFailed():
                log.warning(
                    "retry policy of %s failed, the default delays hold: %s",
                    event.handler, event.reason, extra=about("retry policy failed", event.handler),
                )  # fmt: skip
            case ResultDropped():
                log.warning(
                    "result of %s (%s) is not kept: %s",
                    event.id, event.handler, event.reason, extra=about("result dropped", event.handler),
                )  # fmt: skip
            case QueueUnknown():
                log.warning(
                    "queue %s: nobody ever enqueued to it, no handler names it; misspelt?",
                    event.queue, extra=NEWS,  # printed once: the launch makes it known
                )  # fmt: skip
            case QueueUnserved():
                log.warning(
                    "queue %s: %d ready, and no launch serves it, though it is that of %s; add it to consumer.queues, "
                    "or launch 'run --queue %s'",
                    event.queue, event.messages, ", ".join(event.handlers), event.queue,
                    extra=about("queue unserved", event.queue, kind=STANDING),
                )  # fmt: skip
            case ConflictDropped():
                log.warning(
                    "not enqueued: %s in queue %s has another handler or payload",
                    event.id, event.queue, extra=about("conflict dropped", event.queue),
                )  # fmt: skip
            case DescriptorsClosed():
                log.warning(
                    "descriptors closed that no handler had opened: by %s (%s), or a concurrent handler",
                    event.id, event.handler, extra=about("descriptors closed", event.handler),
                )  # fmt: skip
            case DescriptorsUsedUp():
                log.warning(
                    "as many files are open as the limit allows, after %s (%s): the launch ends; have handlers close "
                    "theirs, or raise the limit (ulimit -n)",
                    event.id, event.handler, extra=about("descriptors used up", event.handler),
                )  # fmt: skip
            case WindowTooShort():
                margin, left = format_duration(event.margin), format_duration(event.left)
                log.warning(
                    "no time to handle anything: a margin of %s in a window of %s; lengthen timeout, or lower "
                    "estimated_duration, tolerance_factor or min_margin", margin, left, extra=about("window too short"),
                )  # fmt: skip
            case OccurrencesSkipped():
                log.info("%d missed occurrences of %s skipped", event.messages, event.recurrence)
            case RecurrenceRemoved():
                log.info("recurrence %s is no longer defined: removed", event.recurrence)
            case RecurrenceUnreadable():
                log.warning(
                    "recurrence %s of queue %s is left out: %s",
                    event.recurrence, event.queue, event.reason,
                    extra=about("recurrence left out", event.queue, event.recurrence),
                )  # fmt: skip
            case RecurrenceContested():
                log.warning(
                    "recurrence %s of queue %s is defined differently by launches in turn; upgrade all of them, or "
                    "give one of the two another name", event.recurrence, event.queue,
                    extra=about("recurrence contested", event.queue, event.recurrence),
                )  # fmt: skip
            case QueueLeftOut():
                log.warning(
                    "queue %s is left out: %s", event.queue, event.reason, extra=about("queue left out", event.queue)
                )
            case LaunchEnded():
                launch_stopped(event.stop_reason)
                running = format_duration(event.running_seconds)
                counts = f"{event.handled} handled, {event.failed} failed, {event.released} released"
                if event.yielded:
                    counts += f", {event.yielded} yielded"
                log.info("%s ended after %s (%s): %s", event.role, running, event.stop_reason, counts)

    return listen
