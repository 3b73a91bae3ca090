"""Handles to enqueued messages, and the calls to the store by which handles act."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, cast

from pollconsumer.core.errors import (
    BadData,
    CannotCreate,
    NotCompleted,
    NotFound,
    PollConsumerError,
    StoreUnreachable,
    WaitRefused,
)
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.codec import encoded_json
from pollconsumer.core.messages.message import ENCODED, Codec, check_priority
from pollconsumer.core.messages.message_steps import as_json, signal_line
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.core.spans import Span, seconds_in
from pollconsumer.interface.api import slips
from pollconsumer.interface.api.registry import registry
from pollconsumer.runtime.handling import slot_waits
from pollconsumer.runtime.new_messages import due_ms, milliseconds

if TYPE_CHECKING:
    from pollconsumer.core.messages.message_steps import AttemptLog, Progress
    from pollconsumer.store.reading.messages import Message
    from pollconsumer.store.store import Store

Act = Callable[["Store"], None]
R = TypeVar("R", covariant=True)
T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.1
STUCK = (
    "every slot of this launch waits, and no other launch serves that queue: raise consumer.concurrency, have another "
    "launch serve it, or enqueue with context.enqueue and do not wait"
)


def cancelling(queue: str, message_id: str) -> Act:
    return lambda store: store.actions.cancel(queue, message_id)


def stopping(queue: str, message_id: str) -> Act:
    return lambda store: store.actions.stop(queue, message_id)


def rescheduling(queue: str, message_id: str, in_: Span | None, at: datetime | None) -> Act:
    """A call that gives a message another due time. BadData for an invalid time. TypeError for a naive datetime, or if
    not exactly one of ``in_`` and ``at`` is given."""
    if (in_ is None) == (at is None):
        raise TypeError("reschedule needs in_ or at")
    delay, due = None if in_ is None else milliseconds("in_", in_), None if at is None else due_ms(at)
    return lambda store: store.actions.change(queue, message_id, due=due, delay=delay)


def changing(queue: str, message_id: str, priority: int | None, payload: bytes) -> Act:
    """A call that sets a message's priority unless it is None, and its encoded payload unless it is empty. BadData for
    an invalid priority. TypeError if neither is set."""
    if priority is None and not payload:
        raise TypeError("change needs priority or payload")
    if priority is not None:
        check_priority(priority)
    return lambda store: store.actions.change(queue, message_id, priority=priority, payload=payload)


def readable_result(message_id: str, result: Any) -> Any:
    """``result`` for a handle's caller. BadData if the codec could not decode it."""
    if type(result) is dict and ENCODED in result:
        raise BadData("result", message_id, "it is encoded: give PollConsumer(codec=…) the codec and its keys")
    return result


def signalling(queue: str, message_id: str, name: str, value: Any, codec: Codec | None) -> Callable[[Store], bool]:
    """A call that sends a signal. BadData for an invalid name or value. TypeError for a value without a JSON form."""
    signal_line(name, value)  # a TypeError within the call would be taken for an unreadable answer
    if codec is not None:
        value = json.loads(encoded_json(as_json(value, f"signal {name}").encode(), codec))

    return lambda store: store.actions.signal(queue, message_id, name, value)


def redriving(queue: str, message_id: str, *, from_start: bool) -> Act:
    def redrive(store: Store) -> None:
        if not store.actions.redrive(queue, [message_id], from_start=from_start):
            state = store.inspector.message(message_id, queue).state
            reason = f"it is {state}, no dead letter{': rerun runs it again' if state.has_ended else ''}"
            reason = "another message has its unique key" if state is State.DEAD else reason
            raise BadData("cannot redrive", message_id, reason)

    return redrive


def rerunning(queue: str, message_id: str) -> Callable[[Store], tuple[str, str]]:
    """A call that enqueues a message again. It returns queue and id of the new message."""

    return lambda store: (queue, store.rerun(queue, message_id))


class MessageCalls(Protocol):
    """The calls of an application that its handles use: to read messages, to act on them, to pause between reads."""

    codec: Codec | None

    @property
    def location(self) -> tuple[object, str | None]: ...

    def look(self, queue: str | None, message_id: str) -> Message: ...

    async def look_async(self, queue: str | None, message_id: str) -> Message: ...

    def decoded(self, message: Message) -> Message: ...

    def ask(self, question: Callable[[Store], T]) -> T: ...

    async def ask_async(self, question: Callable[[Store], T]) -> T: ...

    def pause(self, seconds: float) -> None: ...

    async def pause_async(self, seconds: float) -> None: ...


class Handle(Generic[R]):
    """A message whose handler returns R. ``id``: the message's id. ``duplicate``: True if the store already had the
    message, or another one with its unique key; None if the message is spooled. ``listed``: the message as it was read
    by `PollConsumer.message`, `PollConsumer.messages` or a batch's ``members``; None for any other handle."""

    __slots__ = ("_app", "duplicate", "id", "listed", "queue")
    if not TYPE_CHECKING:  # type checkers would accept any attribute
        __getattr__ = slips.hinting("a handle", slips.OF_HANDLES)

    id: str
    queue: str
    duplicate: bool | None
    listed: Message | None

    def __init__(self, id: str, queue: str, app: MessageCalls, *, duplicate: bool | None) -> None:  # noqa: A002  as in messages
        self.id, self.queue, self._app, self.duplicate = id, queue, app, duplicate
        self.listed = None

    def __repr__(self) -> str:
        return f"Handle(id={self.id!r}, queue={self.queue!r}, duplicate={self.duplicate})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and (self.id, self.queue) == (other.id, other.queue)

    def __hash__(self) -> int:
        return hash((self.id, self.queue))

    @property
    def state(self) -> State:
        """The message's state, read from the store. NotFound if the message is no longer kept. StoreUnreachable."""
        return self.status().state

    def status(self) -> Message:
        """All that the store knows of the message at present. Raises the errors of ``state``."""
        return self._app.look(self.queue, self.id)

    @property
    def progress(self) -> Progress | None:
        """The progress that the handler reported last, in any attempt; else None. Raises the errors of ``state``."""
        return self.status().progress

    @property
    def log(self) -> Sequence[AttemptLog]:
        """The last lines that the handler has logged and printed in each attempt, the first attempt first. Raises the
        errors of ``state``."""
        return self.status().log

    def cancel(self) -> None:
        """Cancel the message if no launch has reserved it yet, else raise BadData. NotFound, StoreUnreachable."""
        self._act(cancelling)

    def stop(self) -> None:
        """End the message. If no launch has reserved it yet, it is cancelled. Otherwise its launch is asked to stop the
        handler: ``context.cancelled`` becomes true within a second, and five seconds later the launch interrupts the
        handler, if possible. Returns when the request is accepted. BadData if the message has ended. NotFound,
        StoreUnreachable."""
        self._act(stopping)

    def reschedule(self, *, in_: Span | None = None, at: datetime | None = None) -> None:
        """Give the message another due time, if no launch has reserved it yet, else raise BadData. ``in_``: a delay in
        seconds, as text such as ``5m``, or as a timedelta. ``at``: an aware datetime; a past one is due now. TypeError
        if both or neither are given, or ``at`` is naive. BadData for an invalid time. NotFound, StoreUnreachable."""
        self._act(partial(rescheduling, in_=in_, at=at))

    def change(self, *, priority: int | None = None, payload: Mapping[str, Any] | None = None) -> None:
        """Give the message another priority or payload, if no launch has reserved it yet, else raise BadData.
        Everything else stays. A ready message goes behind those of its new priority. If this process has registered the
        handler, TypeError for a payload that does not fit it. TypeError, too, if nothing is given. BadData, too, for an
        invalid value, or for a priority if the message has an order key. NotFound, StoreUnreachable."""
        encoded = b"" if payload is None else self._encoded(payload, self.status().handler)
        self._act(partial(changing, priority=priority, payload=encoded))

    def redrive(self, *, from_start: bool = False) -> None:
        """Return a dead letter to its queue, with attempts reset to zero. ``from_start``: without its checkpoint, steps
        and signals. BadData if the message is no dead letter, or if another message has its unique key by now.
        NotFound, StoreUnreachable."""
        self._act(partial(redriving, from_start=from_start))

    def rerun(self) -> Handle[R]:
        """Enqueue a new message like this one, once this one has ended in any state. Handler, payload, options, unique
        key, headers and callbacks are the same; the header ``created-by`` names this message. The new message is due
        now, never expires, and belongs to no batch. BadData if this message has not ended, if its payload is no longer
        kept, or if another message has its unique key. NotFound, QueueFull, StoreUnreachable."""
        return self._again(*self._act(rerunning))

    def signal(self, name: str, value: Any = True) -> bool:
        """Send ``value`` under ``name`` to the message. Its handler gets the value from ``context.wait_for(name)``, now
        or later. The value has at most 64 KiB of JSON, and is not None, which ``wait_for`` returns at its timeout.
        Returns False if another value was sent before under that name: the first one holds. BadData if the message has
        ended, if its signals would exceed 1 MiB, or for an invalid name or value. NotFound, StoreUnreachable."""
        return self._app.ask(signalling(self.queue, self.id, name, value, self._app.codec))

    async def status_async(self) -> Message:
        """`status` without blocking the event loop."""
        return await self._app.look_async(self.queue, self.id)

    async def cancel_async(self) -> None:
        """`cancel` without blocking the event loop."""
        await self._act_async(cancelling)

    async def stop_async(self) -> None:
        """`stop` without blocking the event loop."""
        await self._act_async(stopping)

    async def reschedule_async(self, *, in_: Span | None = None, at: datetime | None = None) -> None:
        """`reschedule` without blocking the event loop."""
        await self._act_async(partial(rescheduling, in_=in_, at=at))

    async def change_async(self, *, priority: int | None = None, payload: Mapping[str, Any] | None = None) -> None:
        """`change` without blocking the event loop."""
        encoded = b"" if payload is None else self._encoded(payload, (await self.status_async()).handler)
        await self._act_async(partial(changing, priority=priority, payload=encoded))

    async def redrive_async(self, *, from_start: bool = False) -> None:
        """`redrive` without blocking the event loop."""
        await self._act_async(partial(redriving, from_start=from_start))

    async def rerun_async(self) -> Handle[R]:
        """`rerun` without blocking the event loop."""
        return self._again(*await self._act_async(rerunning))

    async def signal_async(self, name: str, value: Any = True) -> bool:
        """`signal` without blocking the event loop."""
        return await self._app.ask_async(signalling(self.queue, self.id, name, value, self._app.codec))

    async def state_async(self) -> State:
        """`state` without blocking the event loop."""
        return (await self.status_async()).state

    def wait(self, timeout: Span | None = None) -> R | None:
        """Wait until the message is completed. Returns its result; None if there is none, or it is no longer kept.

        A result is the JSON of what the handler returned: a tuple comes back as a list, an instant as text.

        ``timeout``: seconds, text such as ``5m``, or a timedelta; None for no limit. TimeoutError after it.
        NotCompleted if the message became a dead letter, was cancelled or expired. NotFound if the message is no longer
        kept. StoreUnreachable. BadData if the application's codec cannot decode the result. The call polls the store at
        least every tenth of a second. It also waits for a spooled message, until a launch has enqueued and handled it.

        In a handler: WaitRefused, a TimeoutError, if only this launch can handle the message, and every slot waits, or
        the handler waits for its own message; also just before the launch must end its work."""
        with _MessageLooks(timeout, self._app) as waiting:
            while True:
                try:
                    message = self.status()
                except (NotFound, StoreUnreachable, CannotCreate) as error:
                    self._app.pause(waiting.pause_unseen(self, error))
                    continue
                pause = waiting.pause_after(message, goes_on=self._goes_on(message))
                if pause is None:
                    return cast("R | None", readable_result(message.id, message.result))
                if waiting.may_be_stuck(message) and not self._app.ask(waiting.serve_others(message)):
                    waiting.give_up(message)
                self._app.pause(pause)

    async def wait_async(self, timeout: Span | None = None) -> R | None:
        """`wait` without blocking the event loop. It may be cancelled at any time."""
        with _MessageLooks(timeout, self._app) as waiting:
            while True:
                try:
                    message = await self.status_async()
                except (NotFound, StoreUnreachable, CannotCreate) as error:
                    await self._app.pause_async(waiting.pause_unseen(self, error))
                    continue
                pause = waiting.pause_after(message, goes_on=self._goes_on(message))
                if pause is None:
                    return cast("R | None", readable_result(message.id, message.result))
                if waiting.may_be_stuck(message) and not await self._app.ask_async(waiting.serve_others(message)):
                    waiting.give_up(message)
                await self._app.pause_async(pause)

    def _encoded(self, payload: Mapping[str, Any], handler: str) -> bytes:
        """A payload for ``handler`` as the store gets it."""
        known = registry.known(handler, self._app.location)
        if known is not None and isinstance(payload, dict):
            payload = known.arguments.json_of(payload)
        return encoded_json(encode_payload(payload), self._app.codec)

    def _again(self, queue: str, message_id: str) -> Handle[R]:
        return Handle(message_id, queue, self._app, duplicate=False)

    def _act(self, act: Callable[[str, str], Callable[[Store], T]]) -> T:
        """Call ``act`` with the message's queue and id, and carry out the call that it returns."""
        return self._app.ask(act(self.queue, self.id))

    async def _act_async(self, act: Callable[[str, str], Callable[[Store], T]]) -> T:
        return await self._app.ask_async(act(self.queue, self.id))

    def _goes_on(self, _message: Message) -> bool:
        """Whether `wait` goes on when this message is completed, since the next link of a chain follows."""
        return False


class Looks:
    """When to read again what a caller waits for: after pauses that double up to ``longest``, until the timeout."""

    def __init__(self, timeout: Span | None, longest: float) -> None:
        self._timeout, self._longest, self._pause = timeout, longest, FIRST_PAUSE
        self._until = None if timeout is None else time.monotonic() + seconds_in("timeout", timeout)

    def pause(self, what: str, found: str) -> float:
        """Seconds until the next read. TimeoutError if no time is left."""
        pause = self._pause
        left = pause if self._until is None else self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{what} has not ended after {self._timeout}; {found}")
        self._pause = min(self._longest, pause * 2)
        return min(pause, left)


class _MessageLooks:
    """When to read again a message that a caller waits for, and, in a handler, whether the wait can end at all."""

    def __init__(self, timeout: Span | None, app: MessageCalls) -> None:
        self._looks = Looks(timeout, LONGEST_PAUSE)
        self._slots = None if registry.stand_in is not None else slot_waits.of_process
        self._elsewhere = any(app.location)
        """Whether the message may be in another store than that of the launch which runs the handler."""
        self._seen = False

    def __enter__(self) -> Self:
        self._for = None if self._slots is None else self._slots.begin()
        return self

    def __exit__(self, *_: object) -> None:
        if self._slots is not None:
            self._slots.end(self._for)

    def pause_unseen(self, handle: Handle[Any], error: PollConsumerError) -> float:
        """Seconds until the next read of a spooled message that was never found. For any other, raises ``error``."""
        if self._seen or handle.duplicate is not None:
            raise error
        return self._next_pause(handle.id, handle.queue, "spooled")

    def pause_after(self, message: Message, *, goes_on: bool) -> float | None:
        """Seconds until the next read; None if ``message`` is completed and no link of a chain follows. ``goes_on``: a
        link follows. NotCompleted if the message ended otherwise; TimeoutError or WaitRefused if no time is left."""
        self._seen = True
        if message.state is State.COMPLETED and not goes_on:
            return None
        if message.state.has_ended and not goes_on:
            raise NotCompleted(message.id, message.state, message.last_error)
        return self._next_pause(message.id, message.queue, message.state)

    def _next_pause(self, message_id: str, queue: str, state: str) -> float:
        pause = self._looks.pause(f"message {message_id}", f"it is {state}")
        if self._slots is None:
            return pause
        if self._slots.seconds_left() <= 0:
            raise WaitRefused(message_id, queue, state, "the limit of its handler ends")
        return min(pause, self._slots.seconds_left())

    def may_be_stuck(self, message: Message) -> bool:
        """Whether ``message`` may never end in this launch: all slots wait, or it waits for itself."""
        slots = None if self._elsewhere else self._slots
        return slots is not None and slots.may_be_stuck(self._for, message.queue, message.id)

    def serve_others(self, message: Message) -> Callable[[Store], bool]:
        """A question to the store: does any launch but this one serve the queue of ``message`` now?"""
        assert self._slots is not None
        launch = self._slots.serving.launch
        return lambda store: any(
            lease["role"] == "consumer" and lease["holder"] != launch and message.queue in lease["queues"]
            for lease in store.inspector.leases()
        )

    def give_up(self, message: Message) -> None:
        """Raise WaitRefused, unless the wait of another slot was refused meanwhile, which makes that slot free."""
        if self._slots is not None and self._slots.give_up(self._for, message.queue, message.id):
            raise WaitRefused(message.id, message.queue, message.state, STUCK)
