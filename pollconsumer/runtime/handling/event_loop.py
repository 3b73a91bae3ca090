"""The event loop of a launch's ``async def`` handlers.

With one slot it runs in the launch's thread while a message is handled; with several, in a thread of its own. No
exception of a handler or its tasks ends the loop. If a handler closes the loop's descriptors, the handlers that run on
it fail, and a new loop replaces it."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context as Variables
from contextvars import ContextVar, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from selectors import DefaultSelector
from typing import Any

from pollconsumer.core.retry import HandlerTimeout, Stopped
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.handler import DONE, Handler, Outcome, failed, own_context, returned
from pollconsumer.runtime.handling.interrupts import REPEAT, VERDICTS
from pollconsumer.runtime.system.own_threads import start_for_others
from pollconsumer.store.client.own_descriptors import above_standard, wait_readable

End = Callable[[Outcome], None]

LONGEST_SELECT = 1.0
"""Maximum seconds of one select: the descriptor that wakes the loop may have been closed."""
END_WITHIN = 1.0
"""Seconds within which cancelled tasks must finish when the loop is closed."""
_BROKEN: list[asyncio.AbstractEventLoop] = []
"""Replaced loops. They are never collected, since that would close descriptors whose numbers may be reused."""
_current: ContextVar[_LimitedCoroutine] = ContextVar("limited coroutine")


class ExactSelector(DefaultSelector):
    """A selector with exact timeouts; epoll alone rounds them up to whole milliseconds."""

    def select(self, timeout: float | None = None) -> Any:
        timeout = LONGEST_SELECT if timeout is None else min(timeout, LONGEST_SELECT)
        if timeout > 0 and hasattr(self, "fileno"):  # poll has none
            if not wait_readable([self.fileno()], timeout):
                return []
            timeout = 0
        return super().select(timeout)


class EventLoop:
    """The event loop of a launch. ``thread``: it runs in a thread of its own. Else it runs in the calling thread:
    RuntimeError if another loop runs there."""

    def __init__(self, *, thread: bool) -> None:
        if not thread and _running_loop() is not None:
            raise RuntimeError("another event loop runs in this thread")
        self._make()
        self._given: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._begun: dict[_LimitedCoroutine, End] = {}
        self._started: dict[object, _LimitedCoroutine] = {}
        self._in_thread: _LimitedCoroutine | None = None
        """The coroutine that the launch's own thread runs, or ran last."""
        self._thread: threading.Thread | None = None
        self._closing = False
        self._base = copy_context()
        """The launch's context variables. Each message in the loop's thread gets a copy."""
        if thread:
            self._thread = start_for_others("event-loop", self._turn)

    def turn(self, handler: Handler, payload: dict[str, Any], context: LaunchContext | None) -> Outcome:
        """Handle a message in this thread. A coroutine runs in a task that has the handler's name."""
        own = own_context()
        try:
            coroutine = own.run(handler.begin, payload, context)
        except BaseException as error:
            return failed(error)
        return self.handle(coroutine, handler, own)

    def handle(self, coroutine: Coroutine[Any, Any, Any], handler: Handler, own: Variables | None = None) -> Outcome:
        """Run a handler's coroutine in this thread, in a task with its name. ``own``: its context variables."""
        try:
            self._selector.select(0)
        except OSError:  # a handler closed its descriptors
            self._replace()
        limited = self._in_thread = _LimitedCoroutine(self._loop, coroutine, handler)
        task = (own_context() if own is None else own).run(limited.begin)
        intruder = self._run_to_end(task, cancelling=True)
        outcome = limited.outcome()
        return Outcome(intruder) if intruder is not None and outcome.error is not None else outcome

    def _run_to_end(self, task: asyncio.Task[Any], *, cancelling: bool) -> BaseException | None:
        """Run the loop until ``task`` has ended, or until a handler has closed the loop's descriptors. Returns
        RuntimeError if another loop runs in this thread; SystemExit or KeyboardInterrupt if another task raised it;
        else None. With ``cancelling``, ``task`` is cancelled after SystemExit or KeyboardInterrupt."""
        intruder: BaseException | None = None
        while not task.done():
            try:
                self._loop.run_until_complete(task)
            except OSError:
                self._replace()
                break
            except RuntimeError as error:
                if _running_loop() is not None:
                    return error  # this loop cannot run within another one
                # A handler stopped the loop, or something that an earlier message left there.
            except BaseException as error:
                if not task.done():
                    intruder = intruder or error
                    if cancelling:
                        task.cancel()
        return intruder

    def stop(self, key: object, seconds: float) -> None:
        """Cancel, after ``seconds``, the handler for which `start` got ``key``. A loop without a thread of its own
        ignores ``key``, and cancels the handler that it runs. May be called in any thread, or in a signal handler."""
        limited = self._in_thread if self._thread is None else self._started.get(key)
        if limited is not None:
            self._loop.call_soon_threadsafe(limited.hasten, seconds)

    def start(self, key: object, begin: Callable[[], Coroutine[Any, Any, Any]], handler: Handler, end: End) -> None:
        """Run a handler, which ``begin`` calls, in the loop's thread, and call ``end`` there with the outcome."""

        def start() -> None:
            try:
                limited = _LimitedCoroutine(self._loop, begin(), handler)
                task = limited.begin()
            except BaseException as error:  # invalid arguments
                outcome = failed(error)
                self._give(lambda: end(outcome))  # called here, end would start the next one within this call
                return
            self._begun[limited], self._started[key] = end, limited
            task.add_done_callback(lambda _: self._end(limited, key))

        own = own_context(self._base)
        if _running_loop() is self._loop:
            own.run(start)
        else:
            self._give(partial(own.run, start))

    def _give(self, call: Callable[[], None]) -> None:
        self._given.put(call)
        self._loop.call_soon_threadsafe(self._take)  # a broken loop leaves this to its replacement

    def _take(self) -> None:
        with suppress(Empty):
            while True:
                self._given.get_nowait()()

    def _end(self, limited: _LimitedCoroutine, key: object = None) -> None:
        self._started.pop(key, None)
        if (end := self._begun.pop(limited, None)) is not None:
            end(limited.outcome())

    def _make(self) -> None:
        with above_standard():
            self._selector = ExactSelector()
            self._loop = asyncio.SelectorEventLoop(self._selector)

    def _replace(self) -> None:
        _BROKEN.append(self._loop)
        self._make()

    def close(self) -> None:
        """Close the loop. Remaining tasks are cancelled, and have `END_WITHIN` to finish."""
        if self._thread is None:
            task = self._loop.create_task(self._cancel_tasks())
            self._run_to_end(task, cancelling=False)
            if task.done():  # otherwise its descriptors were closed, and their numbers may be reused
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
                for limited in list(self._begun):
                    self._end(limited)
                self._loop.call_soon(self._take)
            except BaseException:
                pass  # SystemExit and KeyboardInterrupt of a task: the loop goes on

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
    """Restart the timeout of the calling handler. At the timeout the calling task will be cancelled."""
    limited = _current.get(None)
    if limited is not None:
        limited.restart()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _LimitedCoroutine:
    """A handler's coroutine in a task, which a timer cancels at the handler's timeout, or at a stop."""

    __slots__ = ("_coroutine", "_due", "_fired", "_handler", "_hastened", "_limited", "_loop", "_task", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], handler: Handler) -> None:
        self._loop, self._coroutine, self._handler = loop, coroutine, handler
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None
        self._fired = self._hastened = False
        self._task: asyncio.Task[Outcome]
        self._limited: asyncio.Task[Any]
        """The task to cancel: the one that called `restart_timeout` last, else the coroutine's own."""

    def begin(self) -> asyncio.Task[Outcome]:
        self._task = self._limited = self._loop.create_task(self._run(), name=self._handler.name)
        return self._task

    async def _run(self) -> Outcome:
        _current.set(self)
        self.restart()
        try:
            result = await self._coroutine
            return DONE if result is None else returned(result)
        except BaseException as error:
            return failed(error)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def restart(self) -> None:
        timeout = self._handler.timeout
        if timeout is not None and (task := asyncio.current_task()) is not None:
            self._limited = task
            self._stop_at(self._loop.time() + timeout)

    def hasten(self, seconds: float) -> None:
        """Cancel the task after ``seconds``, unless its timeout is earlier."""
        due = self._loop.time() + seconds
        if not self._task.done() and (self._due is None or due < self._due):
            self._hastened = True
            self._stop_at(due)

    def _stop_at(self, due: float) -> None:
        self._due = due
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._stop, self._limited)

    def _stop(self, task: asyncio.Task[Any]) -> None:
        self._fired = True
        task.cancel()
        self._timer = self._loop.call_later(REPEAT, self._stop, task)  # the task may swallow the cancellation

    def outcome(self) -> Outcome:
        """The handler's outcome. Call it once the task has ended, or its loop is broken."""
        outcome = self._outcome_of_task()
        if not self._fired or isinstance(outcome.error, VERDICTS):
            return outcome
        timeout = self._handler.timeout
        error: Exception = Stopped() if self._hastened or timeout is None else HandlerTimeout(timeout)
        error.__cause__ = outcome.error
        return Outcome(error)

    def _outcome_of_task(self) -> Outcome:
        if not self._task.done():
            self._task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001  # as asyncio.gather does: we say it
            with suppress(BaseException):  # its cleanup may need the loop, or raise
                self._coroutine.close()
            return Outcome(OSError(errno.EBADF, "descriptors of the event loop were closed; no handler may do that"))
        try:
            return self._task.result()
        except BaseException as error:  # it was cancelled before it began
            self._coroutine.close()
            return failed(error)
