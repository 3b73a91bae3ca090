"""Events of a launch, for the log and other listeners."""

from __future__ import annotations

from typing import NamedTuple


class AttemptFailed(NamedTuple):
    """``delay``: seconds until the next attempt; None if the message became a dead letter."""

    id: str
    handler: str
    attempt: int
    error: str
    delay: float | None


class MessageParked(NamedTuple):
    """This consumer has no such handler; the message is offered again after ``delay`` seconds."""

    id: str
    handler: str
    delay: float


class OrphansRecovered(NamedTuple):
    queue: str
    messages: int


class MessagesFound(NamedTuple):
    """Accepted messages were in no list of their queue, and have been repaired."""

    queue: str
    messages: int


class MessageStopped(NamedTuple):
    """Cancelled while it was in hand, or reserved, since a person asked for that."""

    id: str
    handler: str
    attempt: int
    error: str


class ReservationsLost(NamedTuple):
    """Settled too late: the messages had been offered to another launch."""

    ids: tuple[str, ...]


class NewerMessagesFound(NamedTuple):
    """Written by a newer pollconsumer, and unreadable to this one."""

    queue: str


class RetryPolicyFailed(NamedTuple):
    """The handler's own policy said no delay; the message is tried again after the default one."""

    handler: str
    reason: str


class ResultDropped(NamedTuple):
    """The message is completed, but its result cannot be kept, for ``reason``."""

    id: str
    handler: str
    reason: str


class MessageExpired(NamedTuple):
    """It was not begun before its expiry, and is not handled."""

    id: str
    handler: str
    queue: str


class QueueUnknown(NamedTuple):
    """A served queue that has never had a message, and that no handler names."""

    queue: str


class QueueUnserved(NamedTuple):
    """``messages`` are ready in the queue of ``handlers``, which neither this launch nor another has served lately."""

    queue: str
    handlers: tuple[str, ...]
    messages: int


class ConflictDropped(NamedTuple):
    """Enqueued with a completion under an id of another handler or payload; the completion stands."""

    id: str
    queue: str


class DescriptorsClosed(NamedTuple):
    """This handler, or a concurrent one, closed descriptors that it did not open."""

    id: str
    handler: str


class DescriptorsUsedUp(NamedTuple):
    """The limit of open files was reached after this handler or a concurrent one. The launch ends."""

    id: str
    handler: str


class WindowTooShort(NamedTuple):
    """The launch never had time to handle a message; both in seconds."""

    margin: float
    left: float


class OccurrencesSkipped(NamedTuple):
    """Missed while no mover ran, and skipped by the recurrence's policy."""

    recurrence: str
    messages: int


class RecurrenceRemoved(NamedTuple):
    """No launch defines it any more."""

    recurrence: str


class RecurrenceUnreadable(NamedTuple):
    """Its definition or next instant is unreadable to this version: this launch skips it."""

    recurrence: str
    queue: str
    reason: str


class RecurrenceTaken(NamedTuple):
    """One of a configuration is left out, since one of its name was put at run time."""

    recurrence: str
    queue: str


class RecurrenceContested(NamedTuple):
    """Launches alternate between different definitions."""

    recurrence: str
    queue: str


class QueueLeftOut(NamedTuple):
    """Its keys are unusable, for ``reason``; the launch continues with other queues."""

    queue: str
    reason: str


class PingFailed(NamedTuple):
    """A monitor was not told of the launch, for ``reason``."""

    host: str
    reason: str


class LaunchEnded(NamedTuple):
    """``run_id``: the platform's name of the launch, if it has one."""

    role: str
    stop_reason: str
    running_seconds: float
    handled: int = 0
    failed: int = 0
    released: int = 0
    yielded: int = 0
    run_id: str | None = None


Event = (
    AttemptFailed | MessageExpired | MessageParked | OrphansRecovered | MessagesFound | MessageStopped
    | ReservationsLost | NewerMessagesFound | RetryPolicyFailed | ResultDropped | QueueUnknown | QueueUnserved
    | ConflictDropped | DescriptorsClosed | DescriptorsUsedUp | WindowTooShort | OccurrencesSkipped
    | RecurrenceRemoved | RecurrenceUnreadable | RecurrenceContested | RecurrenceTaken | QueueLeftOut
    | PingFailed | LaunchEnded
)  # fmt: skip
