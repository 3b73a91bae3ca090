"""An application's connections to its store: each call has one for itself, and its patience.

A call may be interrupted between any two instructions: by a signal handler that raises, by an exception that another
thread sets, by a handler or a finaliser that makes a call itself. So no lock is held, and nothing is shared with other
calls while one is under way: a connection is taken out of a list by one operation of the interpreter, and is put back
by another once it has nothing unanswered. What was interrupted is not put back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.store.client.patience import COMMAND_TIMEOUT, SYSTEM_CLOCKS, Clocks, Patience, answer_within
from pollconsumer.store.queues.producer import Producer


class CallPatience(Patience):
    """Patience of ``seconds`` for each call that begins, on the monotonic clock."""

    def __init__(self, seconds: float, clocks: Clocks) -> None:
        self._seconds, self._now, self._sleep = seconds, clocks.monotonic, clocks.sleep
        self._until = 0.0

    def begin(self) -> None:
        """Count patience from now on."""
        self._until = self._now() + self._seconds

    def begin_at(self, instant: float) -> None:
        """Count patience from this instant of the clock."""
        self._until = instant + self._seconds

    def left(self) -> float:
        return max(0.0, self._until - self._now())

    def pause(self, seconds: float) -> None:
        self._sleep(min(seconds, self.left()))

    def for_one_answer(self, blocking: float = 0.0) -> float:
        left = self._until - self._now()
        return blocking + (COMMAND_TIMEOUT if left >= COMMAND_TIMEOUT else answer_within(max(0.0, left)))


MOST_IDLE = 64
"""Connections that are kept while no call has them. Calls at the same time may have more."""


class PooledStore:
    """A context manager around one call, with the connection that it has taken."""

    __slots__ = ("_idle", "_store", "patience")

    def __init__(self, store: Producer, patience: CallPatience, idle: list[PooledStore]) -> None:
        self._store, self.patience, self._idle = store, patience, idle

    def __enter__(self) -> Producer:
        self.patience.begin()
        self._store.wire.said = None
        return self._store

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Put the connection back, unless something on it may be unanswered: exceptions that are not ours may have
        interrupted anything, and one of ours may come from a call that a signal handler made in between."""
        wire = self._store.wire
        may_stay = wire.at_rest() and (error is None or isinstance(error, PollConsumerError | GeneratorExit))
        if may_stay and len(self._idle) < MOST_IDLE:
            self._idle.append(self)
        else:
            with suppress(OSError):
                wire.close()
            if error is not None and (refusal := wire.misread(error)):
                raise refusal from error


class StorePool:
    """Connections that no call has, the last used first; ``open_store`` makes another one when there is none."""

    def __init__(
        self, open_store: Callable[[Patience], Producer], seconds: float, clocks: Clocks = SYSTEM_CLOCKS
    ) -> None:
        """``seconds``: the patience of each call."""
        self.seconds, self.clocks, self._open_store = seconds, clocks, open_store
        self._idle: list[PooledStore] = []

    def take(self) -> PooledStore:
        try:
            return self._idle.pop()
        except IndexError:
            pass
        patience = CallPatience(self.seconds, self.clocks)
        return PooledStore(self._open_store(patience), patience, self._idle)
