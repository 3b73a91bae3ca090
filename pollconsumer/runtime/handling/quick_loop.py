"""asyncio's loop, quicker for coroutines that await nothing.

A message of a launch with one slot has `run_until_complete` for itself: two turns of the loop, each with a search for
timers and descriptors, to run one step. `QuickLoop.alone` runs that step alone if nothing else can be due.
"""

from __future__ import annotations

import asyncio
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sized
from contextlib import suppress
from contextvars import Context
from selectors import DefaultSelector
from typing import Any

from pollconsumer.runtime.handling.outcome import DONE, Outcome, returned
from pollconsumer.store.connecting.exact_wait import wait_readable
from pollconsumer.store.connecting.own_descriptors import above_standard

LONGEST_SELECT = 1.0
"""Maximum timeout of a select, in seconds: the descriptor that wakes the loop may have been closed."""


def new_loop() -> QuickLoop:
    with above_standard():
        return QuickLoop(_Selector())


_EPOLL: Any = getattr(select, "epoll", ())


class _Selector(DefaultSelector):
    """Its waits are exact to a fraction of a millisecond. Those of epoll are whole milliseconds, rounded up."""

    _fd_to_key: Sized  # of its base class, in all versions

    def __init__(self) -> None:
        super().__init__()
        system: Any = getattr(self, "_selector", None)
        self.pending: Callable[[int], Any] = system.poll if isinstance(system, _EPOLL) else self.select
        """A look at what is pending: `select` makes three calls of it."""
        self.descriptors: Sized = self._fd_to_key
        """Those that it watches: the length of `get_map` takes a call."""

    def select(self, timeout: float | None = None) -> Any:
        timeout = LONGEST_SELECT if timeout is None else min(timeout, LONGEST_SELECT)
        if timeout > 0 and hasattr(self, "fileno"):  # not that of poll
            if not wait_readable([self.fileno()], timeout):
                return []
            timeout = 0
        return super().select(timeout)


class QuickLoop(asyncio.SelectorEventLoop):
    # Of asyncio's base class, in all its versions; no method tells them.
    _ready: deque[Any]
    _scheduled: list[asyncio.TimerHandle]
    _thread_id: int | None
    _asyncgen_firstiter_hook: Any
    _asyncgen_finalizer_hook: Any
    _task_factory: Any
    _debug: bool
    _signal_handlers: dict[int, asyncio.Handle]

    def __init__(self, selector: _Selector) -> None:
        super().__init__(selector)
        self._watched, self._descriptors = selector, selector.descriptors
        self._hooks = self._asyncgen_firstiter_hook, self._asyncgen_finalizer_hook
        self._step: tuple[Callable[[], object], Context] | None = None
        """The first one of a task that is being made."""
        self.task: asyncio.Task[Any] | None = None
        """The last one of `alone`."""
        self._kept: Any = self._keep
        self._soon: Any = self.call_soon
        self._before: Any = None
        """The thread's hooks, while this is its running loop for `alone`."""
        self._clear = False
        """Whether it stays and `_is_clear` was true after the last task: nothing has run since."""
        self.stays = False
        """Whether it stays that until `rest`, for the next one."""

    def alone(self, coroutine: Coroutine[Any, Any, Any], name: str, own: Context) -> Outcome | None:
        """Make a `task` of it, of that ``name``: asyncio takes a tenth of a brief task to make one up. If nothing else
        can be due, run its first step, as a turn would. Returns its outcome; None if the loop must turn first."""
        if self._ready or not (self._clear or self._is_clear()):
            self.task = own.run(self.create_task, coroutine, name=name)
            return None
        self.call_soon = self._kept  # type: ignore[method-assign]  # what a task calls when it is made
        try:
            task = self.task = asyncio.Task(coroutine, loop=self, name=name, context=own)
        finally:
            self.call_soon = self._soon  # type: ignore[method-assign]
        (step, context), self._step = self._step, None  # type: ignore[misc]  # the task gave it
        if self._before is None:
            self._enter()
        try:
            context.run(step)
        except (SystemExit, KeyboardInterrupt):
            pass  # it is the task's error, too
        finally:
            if not self.stays:
                self._leave()
        clear = self._is_clear()
        self._clear = clear and self.stays
        if not (clear and task.done() and (self.stays or not self._is_pending())):
            return None
        try:
            result = task.result()
        except BaseException as error:
            return Outcome(error)
        return DONE if result is None else returned(result)

    def make(self, coroutine: Coroutine[Any, Any, Any], name: str) -> tuple[asyncio.Task[Any], Callable[[], object]]:
        """A task of it, and what runs its first step. To be called in a callback: in a turn of its own, the step would
        wait for the callbacks of all others."""
        self.call_soon = self._kept  # type: ignore[method-assign]  # as above
        try:
            task = self.create_task(coroutine, name=name)
        finally:
            self.call_soon = self._soon  # type: ignore[method-assign]
            kept, self._step = self._step, None

        def step() -> None:
            if kept is not None:  # a task factory may have run it
                run, context = kept
                with suppress(SystemExit, KeyboardInterrupt):  # they are the task's errors, too
                    context.run(run)

        return task, step

    def _is_clear(self) -> bool:
        """Whether a turn would do nothing, and tasks are made and run as asyncio does by itself."""
        return not (
            self._ready
            or self._scheduled
            or len(self._descriptors) != 1  # closed, or it watches one beside that which wakes it
            or self._signal_handlers
            or self._task_factory is not None
            or self._debug
        )

    def _keep(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        if args or context is None or self._step is not None:  # called by a signal handler, or a finalizer
            return super().call_soon(callback, *args, context=context)
        self._step = callback, context
        return None

    def _is_pending(self) -> bool:
        """Whether a descriptor waits for a turn, or was closed."""
        try:
            return bool(self._watched.pending(0))
        except OSError:
            return True

    def _enter(self) -> None:
        """Be this thread's running loop."""
        self._before = sys.get_asyncgen_hooks()
        self._thread_id = threading.get_ident()
        sys.set_asyncgen_hooks(*self._hooks)
        asyncio._set_running_loop(self)  # noqa: SLF001  exported for loops

    def rest(self) -> None:
        """It stays no longer. Raises OSError if descriptors of it were closed."""
        self.stays = self._clear = False
        self._leave()
        self._watched.pending(0)

    def _leave(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            self._thread_id = None
            asyncio._set_running_loop(None)  # noqa: SLF001  as above
            sys.set_asyncgen_hooks(*before)

    def turn_until(self, task: asyncio.Task[Any]) -> None:
        """Turn until it is done, or something stops the loop: the handler, or what an earlier message left there.
        Raises OSError if descriptors of the loop were closed, and SystemExit and KeyboardInterrupt of any task."""
        self._clear = False
        self._leave()
        task.add_done_callback(self._stop_with)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._stop_with)

    def _stop_with(self, _task: asyncio.Task[Any]) -> None:
        self.stop()
