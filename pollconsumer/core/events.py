"""Events of a launch, for the log and other listeners."""

from __future__ import annotations

from typing import Any, dataclass_transform


@dataclass_transform(frozen_default=True)
class Event:
    """Its fields are the annotations of its class. Two with equal fields are equal.

    Every launch makes two dozen of these classes: as named tuples they took a twentieth of its start.
    """

    def __init__(self, *values: Any, **named: Any) -> None:
        vars(self).update(zip(self.__annotations__, values, strict=False), **named)

    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__annotations__}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and type(other) is type(self) and other.fields() == self.fields()

    def __hash__(self) -> int:
        return hash((type(self), *self.fields().values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.fields().items())})"


class LaunchBegan(Event):
    """It has the lease. ``queues``: none if it serves all. ``left``: seconds until its window's end."""

    role: str
    queues: tuple[str, ...]
    left: float


class LaunchWaits(Event):
    """Another launch holds the lease. ``holders``: their hosts and processes; ``left``: seconds for which it may wait,
    at most."""

    role: str
    holders: tuple[str, ...]
    left: float


class NamespaceShared(Event):
    """A launch of another project on this host holds the lease: its configuration is ``config``, and its handlers are
    others."""

    config: str


class MessageCompleted(Event):
    """``took``: seconds. Only of attended launches: others complete tens of thousands a second."""

    id: str
    handler: str
    took: float


class AttemptFailed(Event):
    """``delay``: seconds until the next attempt; None if the message became a dead letter."""

    id: str
    handler: str
    attempt: int
    error: str
    delay: float | None


class MessageParked(Event):
    """This consumer has no such handler; the message is offered again after ``delay`` seconds."""

    id: str
    handler: str
    delay: float


class MessageNotBegun(Event):
    """The system refused what its handler runs in; the message is offered again, uncharged, after ``delay`` seconds."""

    id: str
    handler: str
    reason: str
    delay: float


class OrphansRecovered(Event):
    queue: str
    messages: int


class MessagesFound(Event):
    """Accepted messages were in no list of their queue, and have been repaired."""

    queue: str
    messages: int


class MessageStopped(Event):
    """Cancelled while it was in hand, or reserved, since a person asked for that."""

    id: str
    handler: str
    attempt: int
    error: str


class ReservationsLost(Event):
    """Settled too late: the messages had been offered to another launch."""

    ids: tuple[str, ...]


class NewerMessagesFound(Event):
    """Written by a newer pollconsumer, and left for it: messages of the queue, or follow-ups in its outbox."""

    queue: str


class RetryPolicyFailed(Event):
    """The handler's own policy said no delay; the message is tried again after the default one."""

    handler: str
    reason: str


class ResultDropped(Event):
    """The message is completed, but its result cannot be kept, for ``reason``."""

    id: str
    handler: str
    reason: str


class MessageExpired(Event):
    """It was not begun before its expiry, and is not handled."""

    id: str
    handler: str
    queue: str


class QueueUnknown(Event):
    """A served queue that has never had a message, and that no handler names."""

    queue: str


class QueueUnserved(Event):
    """``messages`` are ready in the queue of ``handlers``, which neither this launch nor another has served lately."""

    queue: str
    handlers: tuple[str, ...]
    messages: int


class ConflictDropped(Event):
    """Enqueued with a completion under an id of another handler or payload; the completion stands."""

    id: str
    queue: str


class DescriptorsClosed(Event):
    """This handler, or a concurrent one, closed descriptors that it did not open."""

    id: str
    handler: str


class DescriptorsUsedUp(Event):
    """The limit of open files was reached after this handler or a concurrent one. The launch ends."""

    id: str
    handler: str


class WindowTooShort(Event):
    """The launch never had time to handle a message; both in seconds."""

    margin: float
    left: float


class OccurrencesSkipped(Event):
    """Missed while no mover ran, and skipped by the recurrence's policy."""

    recurrence: str
    messages: int


class RecurrenceRemoved(Event):
    """No launch defines it any more."""

    recurrence: str


class RecurrenceUnreadable(Event):
    """Its definition or next instant is unreadable to this version: this launch skips it."""

    recurrence: str
    queue: str
    reason: str


class RecurrenceTaken(Event):
    """One of a configuration is left out, since one of its name was put at run time."""

    recurrence: str
    queue: str


class RecurrenceContested(Event):
    """Launches alternate between different definitions."""

    recurrence: str
    queue: str


class QueueLeftOut(Event):
    """Its keys are unusable, for ``reason``; the launch continues with other queues."""

    queue: str
    reason: str


class PingFailed(Event):
    """A monitor was not told of the launch, for ``reason``."""

    host: str
    reason: str


class LaunchEnded(Event):
    """``run_id``: the platform's name of the launch, if it has one."""

    role: str
    stop_reason: str
    running_seconds: float
    handled: int = 0
    failed: int = 0
    released: int = 0
    yielded: int = 0
    run_id: str | None = None
