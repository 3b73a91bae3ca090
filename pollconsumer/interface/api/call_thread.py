"""The thread that makes the calls of asyncio programs. Imports asyncio, so it is imported lazily."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, get_running_loop
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.interface.api.calls import Calls

T = TypeVar("T")


class _Waiting(NamedTuple):
    """A call that waits for its turn since it ``began``, and the loop that waits for its result."""

    call: Callable[[], Any]
    began: float
    loop: AbstractEventLoop
    future: Future[Any]


class CallThread:
    """One thread, since calls of an application are made one at a time. It does not keep the process from ending."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._waiting: SimpleQueue[_Waiting] = SimpleQueue()
        Thread(target=self._serve, name="pollconsumer calls", daemon=True).start()

    async def make(self, call: Callable[[], T], began: float) -> T:
        loop = get_running_loop()
        future: Future[T] = loop.create_future()
        self._waiting.put(_Waiting(call, began, loop, future))
        return await future

    def _serve(self) -> None:
        while True:
            self._make(*self._waiting.get())

    def _make(self, call: Callable[[], Any], began: float, loop: AbstractEventLoop, future: Future[Any]) -> None:
        if future.cancelled():
            return
        try:
            result = self._calls.make(call, began)
        except BaseException as error:
            _tell(loop, future, None, error)
        else:
            _tell(loop, future, result, None)


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
