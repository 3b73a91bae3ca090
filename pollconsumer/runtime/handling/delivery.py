"""The parts of a handler's context: what is known of the message, and what the launch does for the handler."""

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

    ``attempt`` counts from 1, ``generation`` counts redrives. ``state``: the last checkpoint. ``occurrence``: the
    instant of an occurrence, in epoch ms. ``previous``, for an occurrence: the instant of the last completed one, when
    that was completed, both in epoch ms, and its result. For a follow-up it has the same of the message before, and
    that message's id and state. ``batch``: queue and id of the message's batch, and the message's number there, None
    for a callback. ``recorded``: the message's steps and signals; None if there are none. ``shown``: an instant that
    the server's clock showed, in epoch ms, and the same on this host's monotonic clock.
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
    """The last occurrence of a recurrence that was completed, by its instant. For a link of a chain it is the link
    before, and for a callback of one message it is that message; ``instant`` and ``completed`` then say when that
    ended. Both may be None in a later version.

    ``result``: the handler's return value; None if it was None, or could not be kept. For an occurrence ``id`` is
    empty, and ``state`` is completed.
    """

    instant: datetime | None
    completed: datetime | None
    result: Any
    id: str = ""
    state: State = State.COMPLETED


def _no_batches(*_: object) -> Any:
    raise UsageError("batches cannot be asked about here", None, "ask in a handler of a launch")


class Situation(NamedTuple):
    """What a launch offers its handlers. ``ends_by``: given the instant at which a handling began, and its ``limit`` in
    seconds, returns when the handling must have ended; instants are on the monotonic clock.

    Four functions take the message as the context was given it: ``save`` stores its checkpoint, ``report`` stores its
    progress soon, ``stop_asked`` returns whether it was asked to stop, and ``extend`` sets when its handling must have
    ended. ``defaults_of`` returns the defaults of a handler. ``send`` enqueues a message immediately and returns its
    id, for hooks that are called after the settlement. ``before_enqueue``: the hooks of the handler's application.
    ``record`` records a step; None if the handler is called at most once. ``ask_batch`` asks the store about a batch.
    ``codec``: that of the application.
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
