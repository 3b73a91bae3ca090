"""A handle to an enqueued message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, TypeVar

from pollconsumer.core.errors import NotCompleted
from pollconsumer.core.lifecycle import State
from pollconsumer.core.notation.timespan import parse_duration

if TYPE_CHECKING:
    from pollconsumer.interface.api.app import PollConsumer
    from pollconsumer.store.inspector import Message

R = TypeVar("R", covariant=True)

FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.1


class Handle(Generic[R]):
    """A message whose handler returns R. ``id``: the message's. ``duplicate``: the store already had it, or its unique
    key."""

    __slots__ = ("_app", "duplicate", "id", "queue")

    def __init__(self, id: str, queue: str, app: PollConsumer, *, duplicate: bool) -> None:  # noqa: A002  as in messages
        self.id, self.queue, self._app, self.duplicate = id, queue, app, duplicate

    def __repr__(self) -> str:
        return f"Handle(id={self.id!r}, queue={self.queue!r}, duplicate={self.duplicate})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and (self.id, self.queue) == (other.id, other.queue)

    def __hash__(self) -> int:
        return hash((self.id, self.queue))

    def state(self) -> State:
        """The message's state. NotFound if it is no longer kept; StoreUnreachable."""
        return self._app.look(self.queue, self.id).state

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
                result: R | None = message.result
                return result
            self._app.pause(pause)


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
