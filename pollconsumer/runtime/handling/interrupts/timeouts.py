"""Timeouts of handlers and hooks in this process, by an exception raised in them.

In the main thread a signal raises it, which also interrupts blocking system calls. In another thread the interpreter
raises it at the next instruction, but not in a blocking call. If it is swallowed, it is raised again every second.

It is raised only beneath `inside`, and never in a `Shield` or in an import: a handler that ends just in time must not
affect the next message, an answer of the store must not be left half read, nor a module half imported.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from pollconsumer.core.retry import Asleep, Fatal, NotBegun, RetryIn, Yield
from pollconsumer.core.users_code import TimeIsUp
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.hooks import Run
from pollconsumer.runtime.handling.interrupts.alarm import (
    REPEAT,
    SHIELDED_RETRY,
    Alarm,
    Limit,
    in_main_thread,
    inside,
)
from pollconsumer.runtime.handling.shield import in_force
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.runtime.system.system_limits import start_refused

VERDICTS = (Asleep, Fatal, RetryIn, Yield)
"""Exceptions by which a stopped handler may still decide about the next attempt."""


def limited(run: Run, seconds: float) -> Run:
    """``run`` with a timeout: HandlerTimeout if it was stopped, even if it then returned; Stopped, if that was asked
    for."""

    def call(payload: dict[str, Any], context: LaunchContext | None) -> Any:
        limit = _limit(seconds)
        try:
            result = limit.run(run, payload, context)
        except VERDICTS:
            raise
        except BaseException as error:
            if limit.fired:
                raise limit.verdict() from error
            raise
        if limit.fired:
            raise limit.verdict()
        return result

    return call


def call_within(
    seconds: float, function: Callable[..., object], *arguments: Any, when_stopped: Callable[[], None]
) -> None:
    """Call ``function``. Its exception is raised, unless it was stopped. ``when_stopped`` is called at the timeout,
    possibly before the call ends: in a signal handler, or in another thread."""
    limit = _limit(seconds, when_stopped)
    try:
        limit.run(function, *arguments)
    except BaseException:
        if not limit.fired:
            raise


def _limit(seconds: float, when_fired: Callable[[], None] | None = None) -> Limit:
    kind = Alarm if in_main_thread() else Strike
    return kind(seconds, when_fired)


class Strike(Limit):
    """A timeout in another thread than the main one."""

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            striker = Striker.started()
        except RuntimeError as error:
            raise NotBegun(start_refused(error)) from None
        self.thread, self.pid = threading.get_ident(), os.getpid()
        self.due = time.monotonic() + self.seconds
        in_force[self.thread] = self
        striker.watch(self)
        try:
            return inside(function, *arguments)
        finally:
            self.over = True
            # One exception can still arrive, which was already scheduled; no second one.
            try:
                striker.forget(self)
            except TimeIsUp:
                striker.forget(self)

    def defer(self) -> None:
        Striker.started().defer(self)

    def hasten(self, seconds: float) -> None:
        Striker.started().hasten(self, seconds)


class Striker:
    """The thread that stops handlers in the others."""

    _one: Striker | None = None

    def __init__(self) -> None:
        import ctypes

        # A PyDLL holds the GIL during the call.
        raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
        raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)
        self._raise_in, self._nothing = raise_in, ctypes.py_object()
        # Handlers' threads use the lock, not the condition: an exception in the condition's Python code would leave it
        # locked.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._limits: set[Strike] = set()
        self._wakes = 0.0
        start_thread("timeouts", self._watch)

    @classmethod
    def started(cls) -> Striker:
        if cls._one is None:
            with _starting:
                cls._one = cls._one or cls()
        return cls._one

    def watch(self, limit: Strike) -> None:
        with self._lock:
            self._limits.add(limit)
            if limit.due < self._wakes:
                self._changed.notify()

    def hasten(self, limit: Strike, seconds: float) -> None:
        with self._lock:
            limit.hastened, limit.due = True, min(limit.due, time.monotonic() + seconds)
            self._changed.notify()

    def forget(self, limit: Strike) -> None:
        """Stop watching, and revoke an exception that was not raised yet. Called in the limit's own thread."""
        if os.getpid() != limit.pid:
            return  # a fork: it has no striker, and the lock may have been copied locked
        with self._lock:
            self._limits.discard(limit)
            self._raise_in(limit.thread, self._nothing)
            in_force.pop(limit.thread, None)

    def defer(self, limit: Strike) -> None:
        with self._lock:
            self._raise_in(limit.thread, self._nothing)
            limit.deferred = True

    def _watch(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                frames = sys._current_frames()  # noqa: SLF001  documented, and there is no other way
                for limit in self._limits:
                    if limit.due <= now and not limit.has_ended():
                        limit.due = now + self._strike(limit, frames.get(limit.thread))
                del frames
                self._wakes = min((limit.due for limit in self._limits if not limit.has_ended()), default=now + 3600)
                self._changed.wait(max(0.0, self._wakes - time.monotonic()))

    def _strike(self, limit: Strike, frame: FrameType | None) -> float:
        """Stop the handler, if that is possible where it is. Returns seconds until the next try."""
        if limit.deferred or not limit.reaches(frame):
            return SHIELDED_RETRY
        limit.fire()
        self._raise_in(limit.thread, TimeIsUp)
        return REPEAT


_starting = threading.Lock()
