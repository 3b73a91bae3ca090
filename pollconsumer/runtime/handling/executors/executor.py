"""Executors: handlers run in the launch's thread with one slot, on threads with more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.outcome import Outcome
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


class Attempt(NamedTuple):
    reservation: Reservation
    handler: Handler
    payload: dict[str, Any]
    context: LaunchContext | None = None

    def handle(self) -> Outcome:
        return self.handler.handle(self.payload, self.context)

    def begin(self) -> Any:
        """The coroutine of an asynchronous handler."""
        return self.handler.begin(self.payload, self.context)


class Handled(NamedTuple):
    """An attempt that has ended, its times on the monotonic clock in seconds, and its outcome."""

    attempt: Attempt
    started: float
    ended: float
    outcome: Outcome


class Executor(Protocol):
    slots: int
    busy: int
    """How many slots have a message."""

    def start(self, attempt: Attempt) -> None:
        """Handle a message. There must be a free slot."""

    def finished(self) -> list[Handled]:
        """The attempts that have ended since the last call."""

    def wait(self, seconds: float, descriptor: int | None = None) -> None:
        """Wait until a slot has become free, ``descriptor`` is readable, or ``seconds`` have passed."""

    def stop(self, reservation: Reservation, seconds: float, in_hand: Callable[[], bool]) -> None:
        """Interrupt the handler of ``reservation`` in ``seconds``, as a timeout would, if the message still is
        ``in_hand`` then, and its handler can be interrupted. With one slot a signal handler calls it."""

    def close(self) -> None:
        """Close the executor: no more attempts will be started."""

    def lock(self) -> AbstractContextManager[Any]:
        """A lock for what handlers share; it may be held during a call of the store."""


def executor_of(slots: int) -> Executor:
    """The executor of this number of slots. Each is imported where it is made: a launch needs one."""
    if slots == 1:
        from pollconsumer.runtime.handling.executors.inline import InlineExecutor

        return InlineExecutor()
    from pollconsumer.runtime.handling.executors.threads import ThreadExecutor

    return ThreadExecutor(slots)
