"""Makes the calls of asyncio programs, in a thread. It imports asyncio, and is therefore imported lazily."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import current_thread
from typing import Any, NamedTuple, TypeVar

from pollconsumer.core.errors import NotReplicated, StoreUnreachable
from pollconsumer.interface.api.store_pool import StorePool
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.store.queues.producer import Producer

T = TypeVar("T")


class _WaitingCall(NamedTuple):
    """A call that waits for its turn since it ``began``, and the loop that waits for its result."""

    call: Callable[[Producer], Any]
    began: float
    loop: AbstractEventLoop
    future: Future[Any]


class CallThread:
    """Makes calls in one thread, in their order. The thread does not keep the process from ending.

    A call's patience begins when it is made: if it waited for other calls that the store did not answer, less is left.
    Waiting for calls that the store answers, as for a long bulk enqueue, has no limit.
    """

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool
        self._waiting: SimpleQueue[_WaitingCall] = SimpleQueue()
        self._runs = False
        self._unanswered = False
        """Whether the store did not answer the last call."""

    async def make(self, call: Callable[[Producer], T]) -> T:
        """Make a call in the thread. A call that is cancelled before its turn is not made; one that is cancelled later
        goes on to its end."""
        loop = get_running_loop()
        future: Future[T] = loop.create_future()
        self._waiting.put(_WaitingCall(call, self._pool.clocks.monotonic(), loop, future))
        self._start()
        return await future

    def _start(self) -> None:
        if not self._runs:
            self._runs = True
            try:
                start_thread("calls", self._serve)
            except BaseException:
                self._runs = False
                raise

    def _serve(self) -> None:
        try:
            current_thread().name = "pollconsumer calls"
            while True:
                self._make(*self._waiting.get())
        finally:
            self._runs = False
            if not self._waiting.empty():  # an exception has ended the loop before its time
                self._start()

    def _make(
        self, call: Callable[[Producer], Any], began: float, loop: AbstractEventLoop, future: Future[Any]
    ) -> None:
        if future.cancelled():
            return
        try:
            result = self._answer(call, began)
        except BaseException as error:
            _tell(loop, future, None, error)
        else:
            _tell(loop, future, result, None)

    def _answer(self, call: Callable[[Producer], T], began: float) -> T:
        pool = self._pool
        if self._unanswered and pool.clocks.monotonic() >= began + pool.seconds:
            fix = "earlier calls are still waiting for the store; this one was not sent"
            raise StoreUnreachable("store unreachable", f"for {pool.seconds:g}s", fix)
        pooled = pool.take()
        try:
            with pooled as store:
                if self._unanswered:
                    pooled.patience.begin_at(began)
                result = call(store)
        except StoreUnreachable as error:  # the store itself may have said so, as by NotReplicated
            self._unanswered = not isinstance(error, NotReplicated) and not pooled.patience.left()
            raise
        self._unanswered = False
        return result


async def call_in_thread(name: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call ``function`` in a thread of its own, without blocking the event loop."""
    loop = get_running_loop()
    future: Future[T] = loop.create_future()

    def call() -> None:
        try:
            result = function(*arguments)
        except BaseException as error:
            _tell(loop, future, None, error)
        else:
            _tell(loop, future, result, None)

    start_thread(name, call)
    return await future


def _tell(loop: AbstractEventLoop, future: Future[Any], result: object, error: BaseException | None) -> None:
    with suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(_end, future, result, error)


def _end(future: Future[Any], result: object, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
