"""Events of a launch, for the log and other listeners."""

from __future__ import annotations

from typing import Any, dataclass_transform


@dataclass_transform(frozen_default=True)
class Event:
    """The base of events. A subclass's annotations are its fields. Events of one class with equal fields are equal."""

    # No named tuples: every launch imports two dozen of these classes, which took a twentieth of its start.

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
    """The launch has the lease. ``queues``: those it serves; empty for all. ``left``: seconds until its window ends."""

    role: str
    queues: tuple[str, ...]
    left: float


class LaunchWaits(Event):
    """The launch waits, since other launches hold the lease. ``holders``: their hosts and processes. ``left``: seconds
    that it may wait."""

    role: str
    holders: tuple[str, ...]
    left: float


class NamespaceShared(Event):
    """Two projects use one namespace: a launch of another project on this host, with other handlers, holds the lease
    that this launch wants. ``config``: that project's configuration file."""

    config: str


class MessageCompleted(Event):
    """A message is completed after ``took`` seconds. A launch may complete tens of thousands a second, so it emits this
    event only if its log (``-v``) or an alarm needs it. Do not count messages by this event."""

    id: str
    handler: str
    took: float


class AttemptFailed(Event):
    """An attempt has failed or was deferred. ``delay``: seconds until the next attempt; None if the message became a
    dead letter. ``place``: the file and line of the user's code where the error arose, as ``handlers.py:14``.
    ``traced``: the traceback, or the last lines that a program printed. Either is empty if there is none. ``took``: the
    attempt's duration in seconds; 0 if its handler was not called."""

    id: str
    handler: str
    attempt: int
    error: str
    delay: float | None
    place: str = ""
    traced: str = ""
    took: float = 0.0


class MessageParked(Event):
    """This launch has no handler of the name that a message gives. The message is ready again after ``delay``
    seconds."""

    id: str
    handler: str
    delay: float


class HandlerPaused(Event):
    """A person has paused the message's handler. The message is ready again after ``delay`` seconds."""

    id: str
    handler: str
    delay: float


class MessageNotBegun(Event):
    """The handler could not be started, for ``reason``: the system refused a thread or a process, the launch is too
    short, or there is no codec. The message is ready again after ``delay`` seconds. No attempt is counted."""

    id: str
    handler: str
    reason: str
    delay: float


class OrphansRecovered(Event):
    """The messages of a launch that was killed are ready again in ``queue``. ``messages``: their number."""

    queue: str
    messages: int


class MessagesFound(Event):
    """Accepted messages were in no list of their queue, so they could not be taken. The launch has put them back."""

    queue: str
    messages: int


class MessageStopped(Event):
    """A person, or the overlap ``replace``, stopped a running or reserved message, which is cancelled. ``took``: as in
    `AttemptFailed`."""

    id: str
    handler: str
    attempt: int
    error: str
    took: float = 0.0


class ReservationsLost(Event):
    """The launch settled messages too late: it no longer had their reservations, so another launch may have them."""

    ids: tuple[str, ...]


class NewerMessagesFound(Event):
    """A newer pollconsumer has written messages of the queue, or follow-ups in its outbox. They wait until a launch of
    that version comes."""

    queue: str


class RetryPolicyFailed(Event):
    """The handler's retry policy raised, or returned no duration, for ``reason``. The default delay applies."""

    handler: str
    reason: str


class ResultDropped(Event):
    """The message is completed, but its result cannot be kept, for ``reason``."""

    id: str
    handler: str
    reason: str


class StepsUnasked(Event):
    """The message is completed, but its handler did not ask for ``steps`` that an earlier attempt had recorded."""

    id: str
    handler: str
    steps: tuple[str, ...]


class MessageExpired(Event):
    """The message was not begun before its expiry, so it will not be handled."""

    id: str
    handler: str
    queue: str


class QueueUnknown(Event):
    """The launch serves a queue that no handler names, and that never had a message, a pause or a launch."""

    queue: str


class QueueUnserved(Event):
    """``messages`` are ready in a queue that no launch has served lately, and that this one does not serve.
    ``handlers``: the handlers of this launch whose messages go to that queue."""

    queue: str
    handlers: tuple[str, ...]
    messages: int


class ConflictDropped(Event):
    """A message is dropped because another message has its id. The dropped one is a follow-up that a handler enqueued,
    or a member that it added to a batch, where it counts as cancelled. The handler's own message is completed."""

    id: str
    queue: str


class DescriptorsUsedUp(Event):
    """Open files reached their limit when this handler, or a concurrent one, had run. The launch ends."""

    id: str
    handler: str


class WindowTooShort(Event):
    """The launch never had time for a message: its ``margin`` exceeded the time ``left`` in its window. In seconds."""

    margin: float
    left: float


class StoreAwaited(Event):
    """The store at ``address`` has not answered for ``seconds``. The launch tries again for ``left`` more seconds."""

    address: str
    reason: str
    seconds: float
    left: float


class OccurrencesSkipped(Event):
    """Due occurrences are skipped: missed ones by the recurrence's ``missed``; those beyond `MOST_CAUGHT_UP`; or, with
    the overlap ``replace``, all but the last. ``messages``: their number."""

    recurrence: str
    messages: int


class RecurrenceRemoved(Event):
    """The recurrence is removed: no configuration whose launches ran within the last day defines it any more."""

    recurrence: str


class RecurrenceUnreadable(Event):
    """This version cannot read the recurrence's definition or its next instant, or this machine does not know its time
    zone. The launch skips the recurrence, for ``reason``."""

    recurrence: str
    queue: str
    reason: str


class RecurrenceTaken(Event):
    """The launch ignores a recurrence of its configuration, because a recurrence of the same name was added at run
    time, by ``recurrences add`` or by a program."""

    recurrence: str
    queue: str


class RecurrenceContested(Event):
    """Launches with different configurations keep overwriting each other's definition of the recurrence."""

    recurrence: str
    queue: str


class QueueLeftOut(Event):
    """The queue's keys cannot be used, for ``reason``. The launch goes on with its other queues."""

    queue: str
    reason: str


class OutboxEntryRefused(Event):
    """A message in the outbox of ``queue`` is unreadable, for ``reason``. ``dead list --unreadable`` shows it."""

    queue: str
    reason: str


class SpoolFileRefused(Event):
    """Spooled messages in ``file`` cannot be enqueued, for ``reason``. ``dead list --unreadable`` shows the file."""

    file: str
    reason: str


class SpoolUnusable(Event):
    """Messages spooled in ``directory`` cannot be enqueued now, for ``reason``. This or a later launch tries again."""

    directory: str
    reason: str


class PingFailed(Event):
    """The launch could not ping its monitor, for ``reason``."""

    host: str
    reason: str


class LaunchEnded(Event):
    """The launch has ended. ``run_id``: the id that the platform gave the launch, if it gave one."""

    role: str
    stop_reason: str
    running_seconds: float
    handled: int = 0
    failed: int = 0
    released: int = 0
    yielded: int = 0
    run_id: str | None = None

    def counts(self) -> str:
        """The launch's messages by outcome, without counts of zero."""
        done = "moved" if self.role == "mover" else "completed"
        counts = {done: self.handled, "failed": self.failed, "released": self.released, "asleep": self.yielded}
        return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "no messages"
