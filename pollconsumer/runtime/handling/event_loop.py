"""The event loop of a launch's ``async def`` handlers.

It runs in the launch's thread while a message is handled; with several slots, in a separate thread. No exception of a
handler or its tasks ends the loop. If a handler closes its descriptors, it is replaced, and handlers on it fail.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from pollconsumer.core.retry import HandlerTimeout, Stopped
from pollconsumer.runtime.handling.alarm import REPEAT
from pollconsumer.runtime.handling.outcome import DONE, Outcome, returned
from pollconsumer.runtime.handling.own_context import own_context
from pollconsumer.runtime.handling.quick_loop import QuickLoop, new_loop
from pollconsumer.runtime.handling.timeouts import VERDICTS
from pollconsumer.runtime.own_threads import start_for_others

if TYPE_CHECKING:
    from contextvars import Context as Variables

    from pollconsumer.runtime.handling.context import Context
    from pollconsumer.runtime.handling.handler import Handler

End = Callable[[Outcome], None]

END_WITHIN = 1.0
"""Seconds for cancelled tasks to finish when the loop is closed."""
_BROKEN: list[QuickLoop] = []
"""Never garbage-collected, since that would close descriptors whose numbers may have been reused."""


class EventLoop:
    """``thread``: run in a separate thread. Otherwise RuntimeError if another loop runs in this one."""

    def __init__(self, *, thread: bool) -> None:
        if not thread and asyncio._get_running_loop() is not None:  # noqa: SLF001  the one that asks without raising
            raise RuntimeError("another event loop runs in this thread")
        self._loop = new_loop()
        self._given: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._begun: dict[_Limited, End] = {}
        self._started: dict[object, _Limited] = {}
        self._limited: _Limited | None = None
        """In this thread, the last one, and its timeout, if it has any."""
        self._thread: threading.Thread | None = None
        self._closing = False
        self._base = copy_context()
        """What messages in the loop's thread have of the launch's."""
        if thread:
            self._thread = threading.Thread(target=self._turn, name="event-loop", daemon=True)
            start_for_others(self._thread)

    def turning(self, handler: Handler) -> Callable[[dict[str, Any], Context | None], Outcome]:
        """What runs it in this thread, in a task of its name for each message."""
        name, limited = handler.name, handler.timeout is not None
        run = handler.begin if limited else handler.run

        def turn(payload: dict[str, Any], context: Context | None) -> Outcome:
            own = own_context()
            try:
                coroutine = own.run(run, payload, context)
            except BaseException as error:
                return Outcome(error)
            if limited:
                return self.handle(coroutine, handler, own)
            self._limited = None
            return self._loop.alone(coroutine, name, own) or self._ended(coroutine)

        return turn

    def handle(self, coroutine: Coroutine[Any, Any, Any], handler: Handler, own: Variables | None = None) -> Outcome:
        """Run a handler's coroutine in this thread, in a task of the handler's name."""
        limited = self._limited = None if handler.timeout is None else _Limited(self._loop, coroutine, handler)
        own = own_context() if own is None else own
        outcome = self._loop.alone(coroutine if limited is None else limited.run(), handler.name, own)
        if limited is None and outcome is not None:
            return outcome
        return self._ended(coroutine, turning=outcome is None)

    def _ended(self, coroutine: Coroutine[Any, Any, Any], *, turning: bool = True) -> Outcome:
        """The outcome of the loop's last task, for which it must be ``turning``."""
        limited = self._limited
        task: asyncio.Task[Any] = self._loop.task  # type: ignore[assignment]  # `alone` made it
        if limited is not None:
            limited.task = task
        intruder = self._turn_until_ended(task) if turning else None
        outcome = _outcome_of(task, coroutine) if limited is None else limited.outcome()
        return Outcome(intruder) if intruder is not None and outcome.error is not None else outcome

    def _turn_until_ended(self, task: asyncio.Task[Any]) -> BaseException | None:
        """Returns SystemExit or KeyboardInterrupt of another task. If descriptors of the loop were closed, the task has
        not ended."""
        intruder: BaseException | None = None
        while True:
            try:
                if self._limited is not None:
                    self._limited.arm()
                self._loop.turn_until(task)
            except OSError:
                self._replace()
                break
            except BaseException as error:
                intruder = intruder or error
                task.cancel()
            if task.done():
                break
        return intruder

    def stop(self, key: object, seconds: float) -> None:
        """Cancel the handler that was started with ``key``, or that runs in this thread, after so many seconds. From
        any thread, or a signal handler."""
        limited = self._limited if self._thread is None else self._started.get(key)
        if limited is not None:
            self._loop.call_soon_threadsafe(limited.hasten, seconds)
        elif self._loop.task is not None:
            self._loop.call_soon_threadsafe(_cancel_within, self._loop.task, seconds)

    def stay(self) -> None:
        """Handle one after the other, without anything in between that must not run within a loop, until `rest`."""
        self._loop.stays = True

    def rest(self) -> None:
        """Let others run in this thread again. A loop whose descriptors were closed is replaced."""
        try:
            self._loop.rest()
        except OSError:
            self._replace()

    def check(self) -> None:
        """Replace the loop if its descriptors were closed. It stays if it did."""
        stays = self._loop.stays
        self.rest()
        self._loop.stays = stays

    def start(self, key: object, begin: Callable[[], Coroutine[Any, Any, Any]], handler: Handler, end: End) -> None:
        """Run a handler, called by ``begin``, in the loop's thread. ``end`` is called there with the outcome."""

        def start() -> None:
            try:
                handling = _Limited(self._loop, begin(), handler)
                handling.task, step = self._loop.make(handling.run(), handler.name)
                handling.arm()
            except BaseException as error:  # invalid arguments
                outcome = Outcome(error)
                self._give(lambda: end(outcome))  # called here, it would start the next within this call
                return
            self._begun[handling], self._started[key] = end, handling
            handling.task.add_done_callback(lambda _: self._end(handling, key))
            step()

        own = own_context(self._base)
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001  as above
            own.run(start)
        else:
            self._give(partial(own.run, start))

    def _give(self, call: Callable[[], None]) -> None:
        self._given.put(call)
        self._loop.call_soon_threadsafe(self._take)  # a broken loop leaves it to its replacement

    def _take(self) -> None:
        with suppress(Empty):
            while True:
                self._given.get_nowait()()

    def _end(self, handling: _Limited, key: object = None) -> None:
        self._started.pop(key, None)
        if (end := self._begun.pop(handling, None)) is not None:
            end(handling.outcome())

    def _replace(self) -> None:
        with suppress(OSError):
            self._loop.rest()
        _BROKEN.append(self._loop)
        self._loop = new_loop()

    def close(self) -> None:
        """Close it. Remaining tasks are cancelled, and have a second to finish."""
        if self._thread is None:
            if self._run(self._cancel_tasks()):
                self._loop.close()
            return
        asyncio.run_coroutine_threadsafe(self._cancel_tasks(), self._loop)
        self._thread.join(2 * END_WITHIN)
        if not self._thread.is_alive():
            self._loop.close()

    def _turn(self) -> None:
        while not self._closing:
            try:
                self._loop.run_forever()
            except OSError:
                self._replace()
                for handling in list(self._begun):
                    self._end(handling)
                self._loop.call_soon(self._take)
            except BaseException:
                pass  # SystemExit and KeyboardInterrupt of a task

    def _run(self, coroutine: Any) -> bool:
        """Run it to its end. False if the loop's descriptors were closed."""
        task = self._loop.create_task(coroutine)
        while not task.done():
            try:
                self._loop.run_until_complete(task)
            except OSError:
                self._replace()
                return False
            except BaseException:
                pass  # as above
        return True

    async def _cancel_tasks(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=END_WITHIN)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._loop.shutdown_asyncgens(), END_WITHIN)
        self._closing = True
        self._loop.stop()


def restart_timeout() -> None:
    handling = _handling.get(None)
    if handling is not None:
        handling.restart()


def _cancel_within(task: asyncio.Task[Any], seconds: float) -> None:
    """Cancel it after so many seconds from now."""
    task.get_loop().call_later(seconds, _cancel, task)


def _cancel(task: asyncio.Task[Any]) -> None:
    if not task.done():
        task.cancel()
        _cancel_within(task, REPEAT)  # it may swallow the cancellation


def _outcome_of(task: asyncio.Task[Any], coroutine: Coroutine[Any, Any, Any]) -> Outcome:
    """That of the handler whose ``coroutine`` it runs; it has ended, unless its loop is broken."""
    try:
        result = task.result()
    except BaseException as error:
        if not task.done():
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001  # as asyncio.gather does: we say it
            with suppress(BaseException):  # its cleanup may need the loop, or raise
                coroutine.close()
            return Outcome(OSError(errno.EBADF, "descriptors of the event loop were closed; no handler may do that"))
        if task.cancelled():
            coroutine.close()  # it may not even have begun
        return Outcome(error)
    return DONE if result is None else returned(result)


class _Limited:
    """A handler's coroutine, for the `task` of its `run`, with a timeout if the handler has one. In the loop's thread
    all are."""

    __slots__ = (
        "_armed",
        "_coroutine",
        "_due",
        "_fired",
        "_hastened",
        "_limited",
        "_loop",
        "_timeout",
        "_timer",
        "task",
    )

    def __init__(self, loop: QuickLoop, coroutine: Coroutine[Any, Any, Any], handler: Handler) -> None:
        self._loop, self._timeout = loop, handler.timeout
        self._timer: asyncio.TimerHandle | None = None
        self._armed = self._fired = self._hastened = False
        self._due: float | None = None
        self._coroutine = coroutine
        self._limited: asyncio.Task[Any] | None = None
        self.task: asyncio.Task[Any]

    async def run(self) -> Outcome:
        _handling.set(self)
        if self._timeout is not None:
            self.restart()
        try:
            result = await self._coroutine
            return DONE if result is None else returned(result)
        except BaseException as error:
            return Outcome(error)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def restart(self) -> None:
        if self._timeout is None or (task := asyncio.current_task()) is None:
            return
        self._due, self._limited = self._loop.time() + self._timeout, task
        if self._armed:
            self.arm()

    def hasten(self, seconds: float) -> None:
        """Cancel it after so many seconds from now, if not before."""
        due = self._loop.time() + seconds
        if not self.task.done() and (self._due is None or due < self._due):
            self._hastened, self._due = True, due
            self.arm()

    def arm(self) -> None:
        """Set a timer: from now on the loop turns, so that one could end."""
        self._armed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._due is not None and not self.task.done():
            self._timer = self._loop.call_at(self._due, self._stop, self._limited or self.task)

    def _stop(self, task: asyncio.Task[Any]) -> None:
        self._fired = True
        task.cancel()
        self._timer = self._loop.call_later(REPEAT, self._stop, task)  # it may swallow the cancellation

    def outcome(self) -> Outcome:
        outcome = _outcome_of(self.task, self._coroutine)
        if isinstance(outcome.result, Outcome):  # of `run`
            outcome = outcome.result
        if not self._fired or isinstance(outcome.error, VERDICTS):
            return outcome
        error: Exception = Stopped() if self._hastened or self._timeout is None else HandlerTimeout(self._timeout)
        error.__cause__ = outcome.error
        return Outcome(error)


_handling: ContextVar[_Limited] = ContextVar("handling")
