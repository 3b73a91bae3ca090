"""Timeouts in the main thread, by SIGALRM, and what they have in common with those in others (`timeouts`)."""

from __future__ import annotations

import signal
import threading
import time
from _signal import signal as _set_handler  # type: ignore[import-not-found]  # the one beneath signal's, see below
from collections.abc import Callable
from types import FrameType
from typing import Any

from pollconsumer.core.retry import HandlerTimeout, Stopped
from pollconsumer.core.users_code import TimeIsUp
from pollconsumer.runtime.handling.shield import Stopper, in_force

REPEAT = 1.0
"""Seconds for cleanup, after which a handler is stopped again."""
SHIELDED_RETRY = 0.01
"""Seconds until the next try, if a handler could not be interrupted where it was."""
_SIGALRM, _TIMER = int(signal.SIGALRM), int(signal.ITIMER_REAL)
"""Numbers: the functions of ``signal`` look for an enum's member in each call, which took half of a timeout's time."""


def in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def inside(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def in_handler(frame: FrameType | None) -> bool:
    """Whether ``frame`` is beneath `inside`, and so the handler's, but not of an import in it."""
    while frame is not None and frame.f_back is not None and not is_importing(frame):
        frame = frame.f_back
        if frame.f_code is inside.__code__:
            return True
    return False


def is_importing(frame: FrameType) -> bool:
    """Whether ``frame`` is the import system's. What that calls is not interrupted: a module that is left half imported
    fails all later messages."""
    return frame.f_code.co_filename.startswith("<frozen importlib._bootstrap")


class Limit(Stopper):
    """A timeout in force. An `Alarm` is hastened only in the main thread."""

    __slots__ = ("_when_fired", "due", "fired", "hastened", "over", "seconds")

    due: float
    """When the timeout ends, on the monotonic clock, in seconds."""

    def __init__(self, seconds: float, when_fired: Callable[[], None] | None) -> None:
        self.seconds, self._when_fired = seconds, when_fired
        self.fired = self.over = self.deferred = self.hastened = False

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        raise NotImplementedError

    def has_ended(self) -> bool:
        return self.over

    def reaches(self, frame: FrameType | None) -> bool:
        """Whether the handler may be stopped where it is."""
        return in_handler(frame)

    def verdict(self) -> Exception:
        return Stopped() if self.hastened else HandlerTimeout(self.seconds)

    def fire(self) -> None:
        if not self.fired and self._when_fired is not None:
            self._when_fired()
        self.fired = True


class Alarm(Limit):
    """A timeout in the main thread, by SIGALRM, whose handler and timer are as before afterwards."""

    __slots__ = ("_before", "_interval", "_left", "_since")

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        thread = threading.get_ident()
        outer = in_force.get(thread)
        self.begin()
        in_force[thread] = self
        try:
            return inside(function, *arguments)
        finally:
            self.over = True
            if outer is None:
                in_force.pop(thread, None)
            else:
                in_force[thread] = outer
            self.end()

    def hasten(self, seconds: float) -> None:
        self.hastened, self.due = True, min(self.due, time.monotonic() + seconds)
        if not self.fired and signal.getitimer(_TIMER)[0] > seconds:
            signal.setitimer(_TIMER, seconds)

    def begin(self) -> None:
        """Set handler and timer."""
        self._since = time.monotonic()
        self.due = self._since + self.seconds
        self._left, self._interval = signal.setitimer(_TIMER, 0)  # what is left of another timer, and its interval
        self._before = _set_handler(_SIGALRM, self._ring)
        signal.setitimer(_TIMER, self.seconds)

    def end(self) -> None:
        """Restore handler and timer."""
        self.over = True
        signal.setitimer(_TIMER, 0)
        # A signal that is pending is handled in this call, before the change.
        _set_handler(_SIGALRM, signal.SIG_DFL if self._before is None else self._before)
        if self._left:
            left = max(SHIELDED_RETRY, self._left - (time.monotonic() - self._since))
            signal.setitimer(_TIMER, left, self._interval)

    def _ring(self, _number: int, frame: FrameType | None) -> None:
        if self.over:
            return
        left = self.due - time.monotonic()
        if left > 0:
            signal.setitimer(_TIMER, left)
        elif self.has_ended():
            self.end()
        elif self.deferred or not self.reaches(frame):
            signal.setitimer(_TIMER, SHIELDED_RETRY)
        else:
            signal.setitimer(_TIMER, REPEAT)
            self.fire()
            raise TimeIsUp
