"""The parts of a handler's context: facts about the message, and functions of the launch."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import Codec, NewMessage
from pollconsumer.core.messages.message_steps import Progress, Recorded, StepEntry
from pollconsumer.runtime.new_messages import BeforeEnqueue, Defaults


class Delivery(NamedTuple):
    """One delivery of a message to a handler. It has only JSON values, so that it can be sent to another process.

    ``attempt``: from 1. ``generation``: the number of redrives. ``state``: the last checkpoint. ``occurrence``: the
    instant of an occurrence, in epoch ms. ``previous``: the fields of `Previous`, instants in epoch ms; None if there
    is none. ``batch``: queue and id of the batch, and the member's number, None for a callback. ``recorded``: the
    message's steps and signals, or None. ``shown``: the time of one instant on the server's clock, in epoch ms, and on
    this host's monotonic clock, in seconds."""

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
    """What came before a message: for an occurrence, the last completed one of its recurrence; for a link of a chain,
    the link before; for a callback of a message, that message. ``instant``: when it was due, for an occurrence, else
    when it ended. ``completed``: when it ended. Both may be None in a later version.

    ``result``: its return value; None if that was None, or was not kept. For an occurrence ``id`` is empty, and
    ``state`` is completed."""

    instant: datetime | None
    completed: datetime | None
    result: Any
    id: str = ""
    state: State = State.COMPLETED


class Situation(NamedTuple):
    """What a launch does for its handlers. ``ends_by``: returns when a handler must have ended, given when it began and
    its ``limit`` in seconds; instants are on the monotonic clock.

    Five functions are called with the context's ``message``: ``save`` stores its checkpoint, ``report`` stores its
    progress soon, ``record`` records a step (None if delivered at most once), ``stop_asked`` returns whether somebody
    asked to stop it, and ``extend`` sets when its handler must have ended. ``defaults_of`` returns a handler's
    defaults. ``send`` enqueues a message at once, after the settlement, and returns its id. ``before_enqueue``: the
    application's hooks. ``ask_batch`` asks the store about a batch. ``codec``: the application's."""

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
    ask_batch: Callable[..., Any] = lambda *_: None
    codec: Codec | None = None
    extend: Callable[[Any, float], None] = lambda *_: None
