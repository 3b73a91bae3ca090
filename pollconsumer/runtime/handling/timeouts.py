"""Timeouts of handlers and hooks in this process, by an exception raised in them.

In the main thread a signal raises it, which also interrupts blocking system calls. In another thread the interpreter
raises it at the next instruction, but not in a blocking call. If it is swallowed, it is raised again every second.

It is raised only beneath `_inside`, and never in a `Shield`: a handler that ends just in time must not affect the next
message, and an answer of the store must not be left half read.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from _signal import signal as _set_handler  # type: ignore[import-not-found]  # the one beneath signal.signal, see below
from collections.abc import Callable
from types import FrameType
from typing import Any

from pollconsumer.core.retry import STOP_GRACE, Fatal, HandlerTimeout, RetryIn, Stopped, TimeIsUp, Yield
from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.handling.hooks import Run
from pollconsumer.runtime.handling.shield import in_force

REPEAT = 1.0
"""Seconds for cleanup, after which a handler is stopped again."""
SHIELDED_RETRY = 0.01
"""Seconds until the next try, if a handler could not be interrupted where it was."""
_SIGALRM, _TIMER = int(signal.SIGALRM), int(signal.ITIMER_REAL)
"""Numbers: the functions of ``signal`` look for an enum's member in each call, which took half of a timeout's time."""
VERDICTS = (Fatal, RetryIn, Yield)
"""Exceptions by which a stopped handler may still decide about the next attempt."""


def limited(run: Run, seconds: float) -> Run:
    """``run`` with a timeout: HandlerTimeout if it was stopped, even if it then returned; Stopped, if that was asked
    for."""

    def call(payload: dict[str, Any], context: Context | None) -> Any:
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
    """Call it. Raises its own exception, unless it was stopped. ``when_stopped`` is called at the timeout, possibly
    before the call ends: from a signal handler, or in another thread."""
    limit = _limit(seconds, when_stopped)
    try:
        limit.run(function, *arguments)
    except BaseException:
        if not limit.fired:
            raise


def _limit(seconds: float, when_fired: Callable[[], None] | None = None) -> Limit:
    kind = _Alarm if threading.get_ident() == threading.main_thread().ident else Strike
    return kind(seconds, when_fired)


def _inside(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _in_handler(frame: FrameType | None) -> bool:
    """Whether ``frame`` is beneath `_inside`, and so the handler's."""
    frame = frame and frame.f_back
    while frame is not None:
        if frame.f_code is _inside.__code__:
            return True
        frame = frame.f_back
    return False


class Limit:
    """A timeout in force. It does not stop the handler while it is ``deferred``."""

    def __init__(self, seconds: float, when_fired: Callable[[], None] | None) -> None:
        self.seconds, self._when_fired = seconds, when_fired
        self.fired = self.over = self.deferred = self.hastened = False

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        raise NotImplementedError

    def hasten(self, seconds: float) -> None:
        """Stop the handler after so many seconds from now, if not before. An `_Alarm` only in the main thread."""
        raise NotImplementedError

    def has_ended(self) -> bool:
        return self.over

    def end(self) -> None:
        """For one that does not end with `run`: in its own thread."""

    def reaches(self, frame: FrameType | None) -> bool:
        """Whether the handler may be stopped where it is."""
        return _in_handler(frame)

    def verdict(self) -> Exception:
        return Stopped() if self.hastened else HandlerTimeout(self.seconds)

    def fire(self) -> None:
        if not self.fired and self._when_fired is not None:
            self._when_fired()
        self.fired = True

    def defer(self) -> None:
        self.deferred = True


class _Alarm(Limit):
    """For the main thread. Restores the previous handler and timer of SIGALRM."""

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        began = time.monotonic()
        before = _set_handler(_SIGALRM, self._ring)
        thread = threading.get_ident()
        in_force[thread] = self
        left, interval = signal.setitimer(_TIMER, self.seconds, REPEAT)
        if self.hastened:  # in between
            self.hasten(STOP_GRACE)
        try:
            return _inside(function, *arguments)
        finally:
            self.over = True
            signal.setitimer(_TIMER, 0)
            del in_force[thread]
            # A signal that is pending is handled in this call, before the change.
            _set_handler(_SIGALRM, signal.SIG_DFL if before is None else before)
            if left:
                left = max(SHIELDED_RETRY, left - (time.monotonic() - began))
                signal.setitimer(_TIMER, left, interval)

    def hasten(self, seconds: float) -> None:
        self.hastened = True
        if not self.fired and not self.over and signal.getitimer(_TIMER)[0] > seconds:
            signal.setitimer(_TIMER, seconds, REPEAT)

    def _ring(self, _number: int, frame: FrameType | None) -> None:
        if self.over:
            return
        if self.deferred or not _in_handler(frame):
            signal.setitimer(_TIMER, SHIELDED_RETRY, REPEAT)
            return
        self.fire()
        raise TimeIsUp


class Strike(Limit):
    """For other threads."""

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.thread, self.pid = threading.get_ident(), os.getpid()
        self.due = time.monotonic() + self.seconds
        in_force[self.thread] = self
        striker = Striker.started()
        striker.watch(self)
        try:
            return _inside(function, *arguments)
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
        threading.Thread(target=self._watch, name="timeouts", daemon=True).start()

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
        """Called in the limit's own thread: revokes an exception that was not raised yet."""
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
        """Seconds until the next time."""
        if limit.deferred or not limit.reaches(frame):
            return SHIELDED_RETRY
        limit.fire()
        self._raise_in(limit.thread, TimeIsUp)
        return REPEAT


_starting = threading.Lock()
