"""asyncio's loop, quicker for coroutines that await nothing.

A message of a launch with one slot has `run_until_complete` for itself: two turns of the loop, each with a search for
timers and descriptors, to run one step. `QuickLoop.turned` runs that step alone if nothing else can be due.
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
            with suppress(ValueError):  # a number that select does not take, from 1024 on
                if not select.select([self], [], [], timeout)[0]:
                    return []
                timeout = 0
        return super().select(timeout)


class QuickLoop(asyncio.SelectorEventLoop):
    # Of asyncio's base class, in all its versions; no method tells them.
    _ready: deque[Any]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool
    _thread_id: int | None
    _asyncgen_firstiter_hook: Any
    _asyncgen_finalizer_hook: Any
    _task_factory: Any
    _closed: bool
    _debug: bool
    _signal_handlers: dict[int, asyncio.Handle]

    def __init__(self, selector: _Selector) -> None:
        super().__init__(selector)
        self._watched, self._descriptors = selector, selector.descriptors
        self._hooks = self._asyncgen_firstiter_hook, self._asyncgen_finalizer_hook
        self._step: tuple[Callable[[], object], Context] | None = None
        """The first one of a task, not run yet."""
        self._kept: Any = self._keep
        self._before: Any = None
        """The thread's hooks, while this is its running loop for `turned`."""
        self.stays = False
        """Whether it stays that until `rest`, for the next one."""

    def alone(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """As `create_task`. If nothing else can be due, `turned` runs its first step. asyncio takes a tenth of a brief
        task to make up a ``name``."""
        if (
            self._ready
            or self._scheduled
            or len(self._descriptors) != 1  # it watches a descriptor beside the one that wakes it
            or self._task_factory is not None
            or self._closed
            or self._signal_handlers
            or self._debug
        ):
            return self.create_task(coroutine, name=name)
        self.call_soon = self._kept  # type: ignore[method-assign]  # what a task calls when it is made
        try:
            return asyncio.Task(coroutine, loop=self, name=name)
        finally:
            del self.call_soon

    def _keep(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        if args or context is None or self._step is not None:  # called by a signal handler, or a finalizer
            return super().call_soon(callback, *args, context=context)
        self._step = callback, context
        return None

    def turned(self, task: asyncio.Task[Any]) -> bool:
        """Run the first step of one that is ``alone``, as a turn would. True if that was all: no turn would do more.

        False if there is or was more to do, for which the loop must run until ``task`` is done. Raises what that does:
        OSError if descriptors of the loop were closed.
        """
        if self._step is None:
            return False
        (step, context), self._step = self._step, None
        if self._before is None:
            self._before = sys.get_asyncgen_hooks()
            self._thread_id = threading.get_ident()
            sys.set_asyncgen_hooks(*self._hooks)
            asyncio._set_running_loop(self)  # noqa: SLF001  exported for loops
        try:
            context.run(step)
        finally:
            if not self.stays:
                self._leave()
        if self._stopping:  # by the handler
            self._stopping = False
            return task.done()
        if self._ready or self._scheduled or self._signal_handlers or len(self._descriptors) != 1:
            return False
        return self.stays or not self._watched.pending(0)

    def rest(self) -> None:
        """It stays no longer. Raises OSError if descriptors of it were closed."""
        self.stays = False
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
        Raises as ``turned``, and SystemExit and KeyboardInterrupt of any task."""
        self._leave()
        task.add_done_callback(self._stop_with)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._stop_with)

    def _stop_with(self, _task: asyncio.Task[Any]) -> None:
        self.stop()
