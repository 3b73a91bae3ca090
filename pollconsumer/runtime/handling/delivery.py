"""What a handler's context is made of: what is known of the message, and what the launch does for it."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pollconsumer.core.errors import UsageError
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import Codec, NewMessage
from pollconsumer.core.messages.message_steps import Progress, Recorded, StepEntry
from pollconsumer.runtime.new_messages import BeforeEnqueue, Defaults


class Delivery(NamedTuple):
    """One delivery of a message. It has JSON values only, so that it can be sent to another process.

    ``attempt`` counts from 1, ``generation`` counts redrives. ``state`` is the last checkpoint. ``occurrence`` is the
    instant of an occurrence, in epoch ms. ``previous`` has three values for an occurrence: the instant of the last one
    that was completed, when that was completed, both in epoch ms, and its result. For a message that another one
    brought about it has the same of that other message, and its id and its state. ``batch``: queue and id of the
    message's batch, and its number there, None for a callback. ``recorded``: the message's steps and signals, None for
    none. ``shown``: an instant that the server's clock showed, in epoch ms, and when, on this host's monotonic clock.
    """

    namespace: str
    queue: str
    id: str
    handler: str
    attempt: int
    generation: int
    fence: int
    state: dict[str, Any] | None = None
    headers: dict[str, str] | None = None
    occurrence: int | None = None
    previous: tuple[Any, ...] | None = None
    recorded: Recorded | None = None
    shown: tuple[int, float] = (0, 0.0)
    batch: tuple[str, str, int | None] | None = None


class Previous(NamedTuple):
    """The last occurrence of a recurrence that was completed, by its instant. Of a link of a chain the one before, and
    of a callback of one message that message: ``instant`` and ``completed`` are when it ended. Both may be None in a
    later version.

    ``result``: what its handler returned; None if that was None, or could not be kept. ``id`` is empty, and ``state``
    completed, of an occurrence.
    """

    instant: datetime | None
    completed: datetime | None
    result: Any
    id: str = ""
    state: State = State.COMPLETED


def _no_batches(*_: object) -> Any:
    raise UsageError("batches cannot be asked about here", None, "ask in a handler of a launch")


class Situation(NamedTuple):
    """What a launch offers its handlers. ``ends_by`` tells, of an instant at which a handling began, when it must have
    ended, by ``limit`` in seconds; both on the monotonic clock.

    ``save`` stores a message's checkpoint, ``report`` its progress, soon; ``stop_asked`` tells whether it is to
    stop. ``extend`` sets when its handling must have ended. Their first argument is the message, as the context was
    given it. ``defaults_of`` gives those of a handler. ``send`` enqueues a message immediately and returns its id;
    only hooks that are called after the settlement need it. ``before_enqueue``: the hooks of the handler's
    application. ``record`` records a step; None if that cannot be, since the handler is called at most once.
    ``ask_batch`` asks the store about a batch. ``codec``: the application's.
    """

    ends_by: Callable[..., float]
    cancelled: Callable[[], bool]
    save: Callable[[Any, bytes], None]
    defaults_of: Callable[[str], Defaults]
    clock: Callable[[], float] = time.monotonic
    send: Callable[[NewMessage], str] | None = None
    report: Callable[[Any, Progress], None] = lambda *_: None
    before_enqueue: "Sequence[BeforeEnqueue]" = ()
    stop_asked: Callable[[Any], bool] = bool
    record: Callable[[Any, StepEntry], None] | None = None
    ask_batch: Callable[..., Any] = _no_batches
    codec: Codec | None = None
    extend: Callable[[Any, float], None] = lambda *_: None
