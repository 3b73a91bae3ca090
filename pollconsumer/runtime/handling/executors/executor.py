"""Executors: handlers run in the launch's thread with one slot, on threads with more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.handling.outcome import Outcome
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextlib import AbstractContextManager

    from pollconsumer.runtime.handling.handler import Handler


class Attempt(NamedTuple):
    reservation: Reservation
    handler: Handler
    payload: dict[str, Any]
    context: Context | None = None

    def handle(self) -> Outcome:
        return self.handler.handle(self.payload, self.context)

    def begin(self) -> Any:
        """The coroutine of an asynchronous handler."""
        return self.handler.begin(self.payload, self.context)


NONE = False, False
"""What `Inline.checked` returns mostly."""


class Handled(NamedTuple):
    """An attempt that has ended, its times on the monotonic clock in seconds, and its outcome. ``closed``: it, or a
    concurrent handler, closed descriptors of ours. ``leaking``: the limit of open descriptors is reached."""

    attempt: Attempt
    started: float
    ended: float
    outcome: Outcome
    closed: bool = False
    leaking: bool = False


class Inline(Protocol):
    """Of an executor whose caller may itself run handlers, in its thread, if these need nothing of an executor."""

    def turning(self, handler: Handler) -> Callable[[dict[str, Any], Context | None], Outcome]:
        """What runs an asynchronous handler."""

    def stay(self, handlers: Collection[Handler]) -> None:
        """Until `rest`, this thread runs nothing but these: if all are functions with a timeout, SIGALRM stays set."""

    def rest(self) -> None: ...

    def checked(self, error: BaseException | None) -> tuple[bool, bool]:
        """To be called after each of them, with what it raised. Returns `Handled.closed` and `Handled.leaking`."""

    def add(self, handled: Handled) -> None:
        """An attempt that the caller made, for `finished`."""


class Executor(Protocol):
    slots: int
    busy: int
    """How many slots have a message."""

    @property
    def inline(self) -> Inline | None:
        """None if handlers run elsewhere."""

    def start(self, attempt: Attempt) -> None:
        """Handle a message. There must be a free slot."""

    def relay(self, take: Callable[[Handled], Attempt | None]) -> None:
        """From now on a slot in which an attempt has ended asks ``take``, in its thread, which it handles next. None:
        it is free."""

    def finished(self) -> list[Handled]:
        """Attempts that have ended since the last call."""

    def wait(self, seconds: float, descriptor: int | None = None) -> None:
        """Wait until a slot has become free, `wake` is called, ``descriptor`` is readable, or ``seconds`` have
        passed."""

    def wake(self) -> None:
        """End a `wait`, the next if there is none; from any thread."""

    def stop(self, reservation: Reservation, seconds: float, in_hand: Callable[[], bool]) -> None:
        """Interrupt its handler after so many seconds, as a timeout would, if it still is ``in_hand`` and can be. With
        one slot from a signal handler."""

    def close(self) -> None:
        """No more attempts will be started."""

    def lock(self) -> AbstractContextManager[Any]:
        """A lock for what handlers share; it may be held during a call of the store."""


def executor_of(slots: int) -> Executor:
    """Each is imported where it is used: a launch needs one."""
    if slots == 1:
        from pollconsumer.runtime.handling.executors.inline import InlineExecutor

        return InlineExecutor()
    from pollconsumer.runtime.handling.executors.threads import ThreadExecutor

    return ThreadExecutor(slots)
