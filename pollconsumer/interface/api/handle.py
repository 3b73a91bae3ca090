"""A handle to an enqueued message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import NotCompleted
from pollconsumer.core.lifecycle import State
from pollconsumer.core.notation.timespan import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.inspector import Message

FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.1


class Handle:
    """``id``: the message's. ``duplicate``: the store already had it, or its unique key."""

    __slots__ = ("_look", "_pause", "duplicate", "id", "queue")

    def __init__(
        self,
        id: str,  # noqa: A002  its name in messages
        queue: str,
        look: Callable[[str, str], Message],
        *,
        duplicate: bool,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.id, self.queue, self.duplicate, self._look, self._pause = id, queue, duplicate, look, pause

    def __repr__(self) -> str:
        return f"Handle(id={self.id!r}, queue={self.queue!r}, duplicate={self.duplicate})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and (self.id, self.queue) == (other.id, other.queue)

    def __hash__(self) -> int:
        return hash((self.id, self.queue))

    def state(self) -> State:
        """NotFound if the message is no longer kept."""
        return self._look(self.queue, self.id).state

    def wait(self, timeout: str | float | None = None) -> Any:
        """Wait until the message is completed. Returns its result; None if it has none, or it is no longer kept.

        ``timeout`` in seconds or as text such as ``5m``, None for no limit. TimeoutError after it; NotCompleted if the
        message became a dead letter or was cancelled; NotFound if it is no longer kept. Polls the store, at intervals
        up to a tenth of a second.
        """
        until = None if timeout is None else time.monotonic() + parse_duration(timeout)
        pause = FIRST_PAUSE
        while True:
            message = self._look(self.queue, self.id)
            if message.state is State.COMPLETED:
                return message.result
            if message.state.has_ended:
                raise NotCompleted(self.id, message.state, message.last_error)
            left = pause if until is None else until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"message {self.id} is still {message.state} after {timeout}")
            self._pause(min(pause, left))
            pause = min(LONGEST_PAUSE, pause * 2)
