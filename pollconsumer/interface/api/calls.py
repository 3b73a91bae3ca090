"""An application's calls to its store: one at a time, and how long each waits for a store that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from pollconsumer.core.errors import NotReplicated, StoreUnreachable
from pollconsumer.store.connecting.patience import COMMAND_TIMEOUT, STEP, SYSTEM_CLOCKS, Clocks, Patience, answer_within

if TYPE_CHECKING:
    from pollconsumer.interface.api.call_thread import CallThread

T = TypeVar("T")


class Calls(Patience):
    """A context manager around each call, and the `Patience` of the one that is under way.

    Patience is counted from a call's beginning, so a call that waited for others while the store did not answer them
    has no more than its own. Waiting for calls that the store answers, as for a long bulk enqueue, has no limit.
    """

    def __init__(self, seconds: float, clocks: Clocks = SYSTEM_CLOCKS) -> None:
        self.seconds, self._clocks = seconds, clocks
        self._lock = threading.Lock()
        self._until = 0.0
        self._unanswered = False
        """Whether the store did not answer the last call."""
        self._starting = threading.Lock()
        self._thread: CallThread | None = None

    def __enter__(self) -> None:
        now = self._clocks.monotonic()
        if self._lock.acquire(blocking=False):
            self._until = now + self.seconds
        else:
            self._wait(now)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._unanswered = error is not None and self._is_silence(error)
        self._lock.release()

    def make(self, call: Callable[[], T], began: float) -> T:
        """Make a call that ``began`` at this instant of the clock, waiting for others since."""
        with ExitStack() as ending:
            self._wait(began)
            ending.push(self)
            return call()

    async def make_async(self, call: Callable[[], T]) -> T:
        """Make a call in another thread. Calls are made in their order; one that is cancelled before its turn is not
        made, and goes on to its end after that."""
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    from pollconsumer.interface.api.call_thread import CallThread

                    self._thread = CallThread(self)
        return await self._thread.make(call, self._clocks.monotonic())

    def begin_anew(self) -> None:
        """Count patience from now on."""
        self._until = self._clocks.monotonic() + self.seconds

    def left(self) -> float:
        return max(0.0, self._until - self._clocks.monotonic())

    def pause(self, seconds: float) -> None:
        self._clocks.sleep(min(seconds, self.left()))

    def for_one_answer(self, blocking: float = 0.0) -> float:
        left = self._until - self._clocks.monotonic()
        return blocking + (COMMAND_TIMEOUT if left >= COMMAND_TIMEOUT else answer_within(max(0.0, left)))

    def _wait(self, began: float) -> None:
        """Take the lock for a call that ``began`` at this instant. StoreUnreachable if its patience ended meanwhile."""
        wait = self.seconds
        while not self._lock.acquire(timeout=wait):
            if self._unanswered:
                raise self._refusal()
            wait = min(self.seconds, STEP)
        now = self._clocks.monotonic()
        if self._unanswered and now >= began + self.seconds:
            self._lock.release()
            raise self._refusal()
        self._until = (began if self._unanswered else now) + self.seconds

    def _is_silence(self, error: BaseException) -> bool:
        """Whether it says that the store did not answer: some of these are its answers."""
        return isinstance(error, StoreUnreachable) and not isinstance(error, NotReplicated) and not self.left()

    def _refusal(self) -> StoreUnreachable:
        fix = "calls before this one were not answered; nothing of it was sent"
        return StoreUnreachable("store unreachable", f"for {self.seconds:g}s", fix)
