"""A handle to an enqueued message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from pollconsumer.core.errors import BadData, NotCompleted
from pollconsumer.core.lifecycle import State
from pollconsumer.core.notation.timespan import parse_duration
from pollconsumer.runtime.messages import due_ms, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pollconsumer.interface.api.producing import Producing
    from pollconsumer.store.inspector import Message
    from pollconsumer.store.interventions import Interventions

R = TypeVar("R", covariant=True)
T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.1


class Handle(Generic[R]):
    """A message whose handler returns R. ``id``: the message's. ``duplicate``: the store already had it, or its unique
    key. ``listed``: the message as `PollConsumer.message` or `PollConsumer.messages` read it; None after `enqueue`."""

    __slots__ = ("_app", "duplicate", "id", "listed", "queue")

    def __init__(self, id: str, queue: str, app: Producing, *, duplicate: bool) -> None:  # noqa: A002  as in messages
        self.id, self.queue, self._app, self.duplicate = id, queue, app, duplicate
        self.listed: Message | None = None

    def __repr__(self) -> str:
        return f"Handle(id={self.id!r}, queue={self.queue!r}, duplicate={self.duplicate})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and (self.id, self.queue) == (other.id, other.queue)

    def __hash__(self) -> int:
        return hash((self.id, self.queue))

    @property
    def state(self) -> State:
        """As it is now: asks the store. NotFound if the message is no longer kept; StoreUnreachable."""
        return self.status().state

    def status(self) -> Message:
        """All that is known of the message, as it is now. Raises as ``state``."""
        return self._app.look(self.queue, self.id)

    def cancel(self) -> None:
        """Cancel it, if it is not reserved yet; BadData if it is too late. NotFound, StoreUnreachable."""
        self._intervene(lambda each: each.cancel(self.queue, self.id))

    def reschedule(self, *, in_: str | float | None = None, at: datetime | None = None) -> None:
        """Give it another due time, if it is not reserved yet: after a delay in seconds or as text such as ``5m``, or
        at an aware datetime; one in the past is due now. BadData if it is too late, or for an invalid time; TypeError
        for a naive one, or for both; NotFound, StoreUnreachable."""
        if (in_ is None) == (at is None):
            raise TypeError("reschedule needs in_ or at")
        delay, due = None if in_ is None else milliseconds("in_", in_), None if at is None else due_ms(at)
        self._intervene(lambda each: each.reschedule(self.queue, self.id, due=due, delay=delay))

    def redrive(self) -> None:
        """Return it, a dead letter, to its queue with all attempts again. BadData if it is none, or if another message
        has its unique key by now; NotFound, StoreUnreachable."""
        if self._intervene(lambda each: each.redrive(self.queue, [self.id])):
            return
        state = self.state
        reason = "another message has its unique key" if state is State.DEAD else f"it is {state}, no dead letter"
        raise BadData("cannot redrive", self.id, reason)

    def _intervene(self, act: Callable[[Interventions], T]) -> T:
        from pollconsumer.store.interventions import Interventions

        return self._app.ask(lambda *store: act(Interventions(*store)))

    async def state_async(self) -> State:
        """`state` without blocking the event loop."""
        return (await self._app.look_async(self.queue, self.id)).state

    def wait(self, timeout: str | float | None = None) -> R | None:
        """Wait until the message is completed. Returns its result; None if it has none, or it is no longer kept.

        A result is the JSON of what the handler returned: a tuple comes back as a list, an instant as text.

        ``timeout`` in seconds or as text such as ``5m``, None for no limit. TimeoutError after it; NotCompleted if the
        message became a dead letter or was cancelled; NotFound if it is no longer kept; StoreUnreachable. Polls the
        store, at intervals up to a tenth of a second.
        """
        waiting = _Waiting(timeout)
        while True:
            message = self._app.look(self.queue, self.id)
            pause = waiting.pause_after(message)
            if pause is None:
                return cast("R | None", message.result)
            self._app.pause(pause)

    async def wait_async(self, timeout: str | float | None = None) -> R | None:
        """`wait` without blocking the event loop. It may be cancelled at any time."""
        waiting = _Waiting(timeout)
        while True:
            message = await self._app.look_async(self.queue, self.id)
            pause = waiting.pause_after(message)
            if pause is None:
                return cast("R | None", message.result)
            await self._app.pause_async(pause)


class _Waiting:
    """When to look at an awaited message again."""

    def __init__(self, timeout: str | float | None) -> None:
        self._timeout = timeout
        self._until = None if timeout is None else time.monotonic() + parse_duration(timeout)
        self._pause = FIRST_PAUSE

    def pause_after(self, message: Message) -> float | None:
        """Seconds until the next look, None if there is a result. NotCompleted or TimeoutError if there will be
        none."""
        if message.state is State.COMPLETED:
            return None
        if message.state.has_ended:
            raise NotCompleted(message.id, message.state, message.last_error)
        pause = self._pause
        left = pause if self._until is None else self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"message {message.id} is still {message.state} after {self._timeout}")
        self._pause = min(LONGEST_PAUSE, pause * 2)
        return min(pause, left)
