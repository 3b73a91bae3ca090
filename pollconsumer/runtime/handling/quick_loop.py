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
from collections.abc import Callable, Coroutine
from contextlib import suppress
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

    def __init__(self) -> None:
        super().__init__()
        system: Any = getattr(self, "_selector", None)
        self.pending: Callable[[int], Any] = system.poll if isinstance(system, _EPOLL) else self.select
        """A look at what is pending: `select` makes three calls of it."""

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

    def __init__(self, selector: _Selector) -> None:
        super().__init__(selector)
        self._watched, self._map = selector, selector.get_map()

    def task_of(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """As `create_task`, which looks at more, unless a handler has set a factory of tasks."""
        if self._task_factory is None and not self._closed:
            return asyncio.Task(coroutine, loop=self)
        return self.create_task(coroutine)

    def turned(self, task: asyncio.Task[Any]) -> bool:
        """Run the one step that is ready, as a turn would. True if that was all: no turn would do more.

        False if there is or was more to do, for which the loop must run until ``task`` is done. Raises what that does:
        OSError if descriptors of the loop were closed.
        """
        if len(self._ready) != 1 or self._scheduled or len(self._map) != 1 or self.get_debug():
            return False  # it has a timer, or watches a descriptor beside the one that wakes it
        hooks = sys.get_asyncgen_hooks()
        self._thread_id = threading.get_ident()
        sys.set_asyncgen_hooks(self._asyncgen_firstiter_hook, self._asyncgen_finalizer_hook)
        asyncio._set_running_loop(self)  # noqa: SLF001  exported for loops
        try:
            self._ready.popleft()._run()  # noqa: SLF001  what a turn calls
        finally:
            self._thread_id = None
            asyncio._set_running_loop(None)  # noqa: SLF001  as above
            sys.set_asyncgen_hooks(*hooks)
        if self._stopping:  # by the handler
            self._stopping = False
            return task.done()
        return not (self._ready or self._scheduled or len(self._map) != 1 or self._watched.pending(0))

    def turn_until(self, task: asyncio.Task[Any]) -> None:
        """Turn until it is done, or something stops the loop: the handler, or what an earlier message left there.
        Raises as ``turned``, and SystemExit and KeyboardInterrupt of any task."""
        task.add_done_callback(self._stop_with)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._stop_with)

    def _stop_with(self, _task: asyncio.Task[Any]) -> None:
        self.stop()
