"""What happens while a launch lives, for whoever listens: the log, the ledger, later metrics."""

from __future__ import annotations

from typing import NamedTuple


class AttemptFailed(NamedTuple):
    """``delay``: seconds until the next attempt; None where the message became a dead letter."""

    id: str
    handler: str
    attempt: int
    error: str
    delay: float | None


class MessageParked(NamedTuple):
    """No handler of that name is known to this consumer; the message is offered again after ``delay`` seconds."""

    id: str
    handler: str
    delay: float


class OrphansRecovered(NamedTuple):
    queue: str
    messages: int


class MessagesFound(NamedTuple):
    """Accepted, and in no place where any launch would have looked for them: they are in place now."""

    queue: str
    messages: int


class ReservationsLost(NamedTuple):
    """Settled too late: the messages had been offered to another launch, whose outcome counts."""

    ids: tuple[str, ...]


class NewerMessagesFound(NamedTuple):
    """Written by a newer pollconsumer, and left for one: this launch cannot read them."""

    queue: str


class RetryPolicyFailed(NamedTuple):
    """The handler's own policy said no delay; the message is tried again after the default one."""

    handler: str
    reason: str


class ResultDropped(NamedTuple):
    """The message is completed, but what its handler returned cannot be kept; ``reason`` says why."""

    id: str
    handler: str
    reason: str


class QueueUnknown(NamedTuple):
    """It is served, but nobody ever enqueued to it, and no handler names it."""

    queue: str


class QueueUnserved(NamedTuple):
    """``messages`` are ready in the own queue of ``handlers``, which this launch has but does not serve, nor any other
    lately."""

    queue: str
    handlers: tuple[str, ...]
    messages: int


class ConflictDropped(NamedTuple):
    """Enqueued with a completion under an id that has another handler or payload; the completion stands."""

    id: str
    queue: str


class DescriptorsClosed(NamedTuple):
    """A handler closed descriptors of ours, or one that ran beside it did."""

    id: str
    handler: str


class DescriptorsUsedUp(NamedTuple):
    """As many files are open as the system allows, after this handler, or what ran beside it. The launch ends."""

    id: str
    handler: str


class WindowTooShort(NamedTuple):
    """No time to handle anything, from the launch's beginning on; both in seconds."""

    margin: float
    left: float


class OccurrencesSkipped(NamedTuple):
    """Missed while no mover ran, and not made up for, as the recurrence has it."""

    recurrence: str
    messages: int


class RecurrenceRemoved(NamedTuple):
    """It is defined no more; no occurrence of it will be enqueued."""

    recurrence: str


class RecurrenceUnreadable(NamedTuple):
    """Its definition, or its next instant, is none that this version can read: it is left out for this launch."""

    recurrence: str
    queue: str
    reason: str


class RecurrenceContested(NamedTuple):
    """Launches define it differently, in turn."""

    recurrence: str
    queue: str


class QueueLeftOut(NamedTuple):
    """Nothing can be done with its keys in the store, as ``reason`` says; the launch goes on with other queues."""

    queue: str
    reason: str


class LaunchEnded(NamedTuple):
    role: str
    stop_reason: str
    running_seconds: float
    handled: int
    failed: int
    released: int
    yielded: int


Event = (
    AttemptFailed
    | MessageParked
    | OrphansRecovered
    | MessagesFound
    | ReservationsLost
    | NewerMessagesFound
    | RetryPolicyFailed
    | ResultDropped
    | QueueUnknown
    | QueueUnserved
    | ConflictDropped
    | DescriptorsClosed
    | DescriptorsUsedUp
    | WindowTooShort
    | OccurrencesSkipped
    | RecurrenceRemoved
    | RecurrenceUnreadable
    | RecurrenceContested
    | QueueLeftOut
    | LaunchEnded
)
