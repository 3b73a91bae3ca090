"""What a handler that takes a ``context: Context`` is told about the message in hand, and may do with it."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from pollconsumer.core.errors import BadData, UsageError
from pollconsumer.core.message import encode_payload
from pollconsumer.runtime.handling.shield import Unbroken
from pollconsumer.runtime.messages import SendOptions, new_message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pollconsumer.core.message import NewMessage


MOST_ENQUEUED, MOST_BYTES = 1000, 16 * 1024**2
"""What one script takes with a completion without holding up the server for long."""


class Delivery(NamedTuple):
    """One delivery of a message: plain values only, so that it can be told to another process.

    ``attempt`` counts from 1, ``generation`` how often the message was redriven. ``state`` is the last checkpoint.
    """

    namespace: str
    queue: str
    id: str
    handler: str
    attempt: int
    generation: int
    fence: int
    state: dict[str, Any] | None = None


class Situation(NamedTuple):
    """What a launch lets its handlers know and do. ``stop_before`` is an instant of the monotonic clock.

    ``save`` keeps a checkpoint; ``queue_of`` gives the queue that a handler's messages go to by default. ``send``
    enqueues a message at once and returns its id; only hooks that are called after the settlement need it.
    """

    stop_before: float
    cancelled: Callable[[], bool]
    save: Callable[[bytes], None]
    queue_of: Callable[[str], str]
    clock: Callable[[], float] = time.monotonic
    send: Callable[[NewMessage], str] | None = None


class Context:
    """The message in hand, from its handler's point of view."""

    def __init__(self, delivery: Delivery, situation: Situation, *, settled: bool = False) -> None:
        self.delivery = delivery
        self.deadline = situation.stop_before
        """Instant of the monotonic clock: the end of the window or, before that, of the handler's timeout."""
        self.enqueued: list[NewMessage] = []
        """What is to be enqueued together with the completion."""
        self._situation = situation
        self._settled = settled
        self._adding, self._ended = Lock(), False

    def after_settlement(self) -> Context:
        """For hooks that are told of a settlement. Another one: a thread that the handler left must not enqueue."""
        return Context(self.delivery, self._situation, settled=True)

    def end(self) -> None:
        """The attempt has ended: what is enqueued from now on, by a thread that it left behind, would be lost."""
        with self._adding:
            self._ended = True

    def limit(self, seconds: float) -> None:
        """The handler's timeout begins now."""
        self.deadline = min(self._situation.stop_before, self._situation.clock() + seconds)

    @property
    def id(self) -> str:
        return self.delivery.id

    @property
    def queue(self) -> str:
        return self.delivery.queue

    @property
    def handler(self) -> str:
        return self.delivery.handler

    @property
    def attempt(self) -> int:
        """From 1; this one counts."""
        return self.delivery.attempt

    @property
    def generation(self) -> int:
        """How often the message was redriven."""
        return self.delivery.generation

    @property
    def fence(self) -> int:
        """Rises with every launch of the same queues, in the same instance: a database that remembers the highest it
        has seen from these can refuse a stale one's writes. Launches of other groups have fences of their own."""
        return self.delivery.fence

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this message, and for no other message."""
        return f"{self.delivery.namespace}:{self.delivery.queue}:{self.delivery.id}"

    @property
    def state(self) -> dict[str, Any] | None:
        """What `checkpoint` was last given for this message; None before that."""
        return self.delivery.state

    def time_left(self) -> float:
        """Seconds until the window or the handler's timeout ends, whichever is sooner; never below 0."""
        return max(0.0, self.deadline - self._situation.clock())

    @property
    def cancelled(self) -> bool:
        """Whether there is reason to stop: a signal asked the launch to, its lease is lost, or the time is over."""
        return self._situation.cancelled() or self.time_left() == 0

    def enqueue(self, handler: str, payload: Mapping[str, Any] | None = None, **options: Unpack[SendOptions]) -> str:
        """Have a message enqueued in one step with the completion of this one, or not at all. Returns its id.

        Nothing is enqueued when the handler raises. Options and errors are those of ``PollConsumer.enqueue``; a
        duplicate, by id or by key, is passed over. BadData for more than 1000 messages, or 16 MiB of payloads;
        UsageError in a thread that outlives the attempt.

        In ``on_failure`` and ``on_dead``, when this message is settled, it is enqueued at once.
        """
        options["queue"] = options.get("queue") or self._situation.queue_of(handler)
        message = new_message(handler, payload or {}, **options)
        if self._settled and self._situation.send is not None:
            with Unbroken():
                return self._situation.send(message)
        with Unbroken(), self._adding:
            self._add(message)
        return message.id

    def _add(self, message: NewMessage) -> None:
        if self._ended:
            raise UsageError("context.enqueue", "after the attempt", "enqueue in the handler, before that ends")
        size = sum(len(each.payload) for each in self.enqueued) + len(message.payload)
        if len(self.enqueued) == MOST_ENQUEUED or size > MOST_BYTES:
            rule = f"at most {MOST_ENQUEUED} messages and {MOST_BYTES} bytes go with one completion"
            raise BadData("context.enqueue", f"message {len(self.enqueued) + 1}, {size} bytes", rule)
        self.enqueued.append(message)

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Keep ``state``, a JSON object of at most 1 MiB, for whoever handles this message next.

        It survives the death of the process. ``raise Yield`` after it gives the message back, uncharged, and the next
        launch goes on with it. LeaseLost where the message is no longer this launch's, UsageError in ``on_failure``
        and ``on_dead``.
        """
        if self._settled:
            raise UsageError("context.checkpoint", "after the attempt", "save it in the handler, before that ends")
        state = dict(state)
        encoded = encode_payload(state)
        with Unbroken():
            self._situation.save(encoded)
        self.delivery = self.delivery._replace(state=state)
