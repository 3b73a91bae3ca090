"""Timeouts in the main thread, by SIGALRM, and what they have in common with those in others (`timeouts`)."""

from __future__ import annotations

import signal
import threading
import time
from _signal import getsignal as _getsignal  # type: ignore[import-not-found]  # those beneath signal's, see below
from _signal import signal as _set_handler
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
    """A timeout in the main thread, by SIGALRM."""

    __slots__ = ()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        thread, outer = threading.get_ident(), None
        signals = staying.get(thread)
        if signals is None or signals.limit is not None:  # a limit within another sets its own
            signals, outer = AlarmSignal(), in_force.get(thread)
        signals.begin(self)
        in_force[thread] = self
        try:
            return inside(function, *arguments)
        finally:
            signals.limit = None
            if outer is None:
                in_force.pop(thread, None)
            else:
                in_force[thread] = outer
            signals.end()

    def hasten(self, seconds: float) -> None:
        self.hastened, self.due = True, min(self.due, time.monotonic() + seconds)
        if not self.fired and signal.getitimer(_TIMER)[0] > seconds:
            signal.setitimer(_TIMER, seconds)


class AlarmSignal:
    """SIGALRM's handler and timer, in the main thread, for one limit after another. After each they are restored.

    Between `stay` and `rest` they stay set, and are restored at `rest`: a limit makes one call of the system, not four.
    """

    __slots__ = ("_before", "_handler", "_interval", "_left", "_rings", "_since", "_stays", "limit")

    def __init__(self) -> None:
        self.limit: Alarm | None = None
        """The limit that is in force."""
        self._handler = self._ring  # one object, by which it is recognized
        self._stays = False
        self._since: float | None = None
        """When handler and timer were set."""
        self._left = self._interval = 0.0
        """What was left of the timer that was set before, and its interval."""
        self._rings = 0.0
        """When the timer rings. It may not be set if this is in the past."""

    def stay(self) -> None:
        """Keep handler and timer set until `rest`: this thread runs only handlers with a timeout until then."""
        if not in_force and in_main_thread():
            self._stays = True
            staying[threading.get_ident()] = self

    def rest(self) -> None:
        if self._stays:
            self._stays = False
            staying.clear()
            self._restore()

    def begin(self, limit: Alarm) -> None:
        now = time.monotonic()
        limit.due = due = now + limit.seconds
        if self._since is None:
            self._before = _set_handler(_SIGALRM, self._handler)
            self._since, self._rings = now, due
            self._left, self._interval = signal.setitimer(_TIMER, limit.seconds)
        self.limit = limit  # before the look at when the timer rings: it may do so now
        if not now < self._rings <= due:
            signal.setitimer(_TIMER, limit.seconds)

    def end(self) -> None:
        if not self._stays:
            self._restore()
            return
        if _getsignal(_SIGALRM) is not self._handler:  # the user's code has set one
            _set_handler(_SIGALRM, self._handler)
        self._rings = time.monotonic() + signal.getitimer(_TIMER)[0]  # it may have set the timer, too

    def _restore(self) -> None:
        since, self._since, self.limit = self._since, None, None
        if since is None:
            return
        signal.setitimer(_TIMER, 0)
        # A signal that is pending is handled in this call, before the change.
        _set_handler(_SIGALRM, signal.SIG_DFL if self._before is None else self._before)
        if self._left:
            left = max(SHIELDED_RETRY, self._left - (time.monotonic() - since))
            signal.setitimer(_TIMER, left, self._interval)

    def _ring(self, _number: int, frame: FrameType | None) -> None:
        limit = self.limit
        if limit is None:
            self._rings = 0.0
            return
        left = limit.due - time.monotonic()
        if left > 0:
            signal.setitimer(_TIMER, left)
        elif limit.has_ended():
            limit.end()
        elif limit.deferred or not limit.reaches(frame):
            signal.setitimer(_TIMER, SHIELDED_RETRY)
        else:
            signal.setitimer(_TIMER, REPEAT)
            limit.fire()
            raise TimeIsUp


staying: dict[int, AlarmSignal] = {}
"""The signal that stays set, by its thread: the main one alone can have one."""
