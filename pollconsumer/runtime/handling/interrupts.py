"""Interrupts handlers and hooks in this process, at their timeouts or on request, by raising an exception in them.

In the main thread a signal handler raises it, which also ends blocking system calls. In another thread the interpreter
raises it before the next instruction of Python code, so not in a blocking call. If a handler swallows the exception, it
is raised again every second.

It is raised only below `inside` or `Handler.handle_here`, and never in a `Shield` or in an import. A handler that ends
just in time must not affect the next message, no answer of the store must be left half read, and no module half
imported.

A timeout is armed before each message, which takes time. Nothing is armed for a handler without one: it is interrupted
only by `Executor.stop`. The exception is then caught by `Handler.handle_here`, as the outcome."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from _signal import signal as _set_handler  # type: ignore[import-not-found]  # the one beneath signal's, see below
from collections.abc import Callable
from types import FrameType
from typing import Any

from pollconsumer.core.retry import Asleep, Fatal, HandlerTimeout, NotBegun, RetryIn, Stopped, Yield
from pollconsumer.core.users_code import TimeIsUp
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.handler import Handler, Run
from pollconsumer.runtime.handling.shield import Stopper, in_force
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.runtime.system.system_limits import start_refused

REPEAT = 1.0
"""Seconds for a handler's cleanup after an interruption. Then it is interrupted again."""
SHIELDED_RETRY = 0.01
"""Seconds until the next try if a handler was in code that must not be interrupted."""
_SIGALRM, _TIMER = int(signal.SIGALRM), int(signal.ITIMER_REAL)
"""Plain ints: with enum members, each call of a function of ``signal`` would take twice as long."""
VERDICTS = (Asleep, Fatal, RetryIn, Yield)
"""Exceptions that an interrupted handler may raise to decide about the next attempt. They replace HandlerTimeout."""
_starting = threading.Lock()
_STORE = "pollconsumer.store."
"""Prefix of modules in which no interruption is raised, since an answer of the store must not be left half read."""
_SPARED = ("pollconsumer.runtime.children.",)
"""Prefixes of modules in which no interruption is raised: they stop the handler's own process or program instead."""


def inside(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def is_importing(frame: FrameType) -> bool:
    """Whether ``frame`` belongs to the import system. After an interrupted import, all later messages would fail."""
    return frame.f_code.co_filename.startswith("<frozen importlib._bootstrap")


class Limit(Stopper):
    """Interrupts a handler or a hook at its timeout. With ``in_flight``: interrupts a handler without a timeout, after
    ``seconds`` and again while ``in_flight()`` returns True. An `Alarm` can be hastened only in the main thread."""

    __slots__ = ("_in_flight", "_when_fired", "due", "fired", "hastened", "over", "seconds")

    due: float
    """When the handler is to be interrupted, on the monotonic clock."""

    def __init__(
        self,
        seconds: float,
        when_fired: Callable[[], None] | None = None,
        in_flight: Callable[[], bool] | None = None,
    ) -> None:
        self.seconds, self._when_fired, self._in_flight = seconds, when_fired, in_flight
        self.fired = self.over = self.deferred = self.hastened = False

    def begin(self, thread: int) -> None:
        """Take effect in ``thread`` until `end` is called."""
        raise NotImplementedError

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.begin(threading.get_ident())
        try:
            return inside(function, *arguments)
        finally:
            self.over = True
            self.end()

    def has_ended(self) -> bool:
        return self.over if self._in_flight is None else not self._in_flight()

    def reaches(self, frame: FrameType | None) -> bool:
        """Whether a handler may be interrupted in ``frame``. For a timeout: `inside` called it, outside of imports."""
        if self._in_flight is not None:
            return _may_be_interrupted(frame)
        while frame is not None and frame.f_back is not None and not is_importing(frame):
            frame = frame.f_back
            if frame.f_code is inside.__code__:
                return True
        return False

    def verdict(self) -> Exception:
        return Stopped() if self.hastened else HandlerTimeout(self.seconds)

    def fire(self) -> None:
        if not self.fired and self._when_fired is not None:
            self._when_fired()
        self.fired = True


class Alarm(Limit):
    """A limit in the main thread, by SIGALRM. `end` restores the signal's earlier handler and timer."""

    __slots__ = ("_before", "_interval", "_left", "_outer", "_since")

    def hasten(self, seconds: float) -> None:
        if self._in_flight is not None:
            return  # the handler is to stop already
        self.hastened, self.due = True, min(self.due, time.monotonic() + seconds)
        if not self.fired and signal.getitimer(_TIMER)[0] > seconds:
            signal.setitimer(_TIMER, seconds)

    def begin(self, thread: int) -> None:
        self._outer, self._since = in_force.get(thread), time.monotonic()
        self.due = self._since + self.seconds
        self._left, self._interval = signal.setitimer(_TIMER, 0)  # another timer's rest, and interval
        self._before = _set_handler(_SIGALRM, self._ring)
        signal.setitimer(_TIMER, self.seconds)
        in_force[thread] = self

    def end(self) -> None:
        self.over, thread = True, threading.get_ident()
        if self._outer is None:
            in_force.pop(thread, None)
        else:
            in_force[thread] = self._outer
        signal.setitimer(_TIMER, 0)
        # A pending signal is handled within this call, before the change.
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


def limited(run: Run, seconds: float) -> Run:
    """``run`` with a timeout of ``seconds``. After an interruption it raises HandlerTimeout, even if the handler
    returned; Stopped if somebody asked to stop the message; or the handler's own exception if that is in `VERDICTS`."""

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
    """Call ``function``, and raise its exception unless the timeout stopped it. ``when_stopped`` is called at the
    timeout, in a signal handler or in another thread, perhaps while ``function`` still runs."""
    limit = _limit(seconds, when_stopped)
    try:
        limit.run(function, *arguments)
    except BaseException:
        if not limit.fired:
            raise


def _limit(seconds: float, when_fired: Callable[[], None] | None = None) -> Limit:
    kind = Alarm if threading.get_ident() == threading.main_thread().ident else Strike
    return kind(seconds, when_fired)


class Strike(Limit):
    """A limit in a thread other than the main one."""

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            Striker.started()
        except RuntimeError as error:
            raise NotBegun(start_refused(error)) from None
        self.begin(threading.get_ident())
        try:
            return inside(function, *arguments)
        finally:
            self.over = True
            # One exception may still arrive, which was scheduled before. No second one can.
            try:
                self.end()
            except TimeIsUp:
                self.end()

    def begin(self, thread: int) -> None:
        self.thread, self.pid, self.due = thread, os.getpid(), time.monotonic() + self.seconds
        in_force[thread], striker = self, Striker.started()
        with striker.lock:
            striker.limits.add(self)
            if self.due < striker.wakes:
                striker.changed.notify()

    def end(self) -> None:
        """Stop watching, and revoke an exception that was not raised yet. Called in the thread of the limit."""
        if os.getpid() != self.pid:
            return  # a fork has no striker, and its copy of the lock may be locked
        striker = Striker.started()
        with striker.lock:
            striker.limits.discard(self)
            striker.raise_in(self.thread, striker.nothing)
            in_force.pop(self.thread, None)

    def defer(self) -> None:
        striker = Striker.started()
        with striker.lock:
            striker.raise_in(self.thread, striker.nothing)
            self.deferred = True

    def hasten(self, seconds: float) -> None:
        striker = Striker.started()
        with striker.lock:
            self.hastened, self.due = True, min(self.due, time.monotonic() + seconds)
            striker.changed.notify()


class Striker:
    """The thread that raises interruptions in handlers of other threads."""

    _one: Striker | None = None

    def __init__(self) -> None:
        import ctypes

        # A PyDLL holds the GIL during the call.
        raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
        raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)
        self.raise_in, self.nothing = raise_in, ctypes.py_object()
        # Handlers' threads use the lock rather than the condition: an exception in the condition's Python code would
        # leave it locked.
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.limits: set[Strike] = set()
        self.wakes = 0.0
        start_thread("timeouts", self._watch)

    @classmethod
    def started(cls) -> Striker:
        if cls._one is None:
            with _starting:
                cls._one = cls._one or cls()
        return cls._one

    def _watch(self) -> None:
        with self.changed:
            while True:
                now = time.monotonic()
                frames = sys._current_frames()  # noqa: SLF001  documented, and there is no other way
                for limit in self.limits:
                    if limit.due > now or limit.has_ended():
                        continue
                    if limit.deferred or not limit.reaches(frames.get(limit.thread)):
                        limit.due = now + SHIELDED_RETRY
                        continue
                    limit.fire()
                    self.raise_in(limit.thread, TimeIsUp)
                    limit.due = now + REPEAT
                del frames
                self.wakes = min((limit.due for limit in self.limits if not limit.has_ended()), default=now + 3600)
                self.changed.wait(max(0.0, self.wakes - time.monotonic()))


def interrupt(seconds: float, in_flight: Callable[[], bool]) -> bool:
    """Interrupt the handler of this thread, the main one, after ``seconds``, and again every second while
    ``in_flight()`` returns True. Returns False if this thread is not in a handler that can be interrupted."""
    if not _may_be_interrupted(sys._getframe(), even_in_store=True):  # noqa: SLF001  documented
        return False
    Alarm(seconds, in_flight=in_flight).begin(threading.get_ident())
    return True


def interrupt_in(thread: int, seconds: float, in_flight: Callable[[], bool]) -> None:
    """Like `interrupt`, for the handler that runs in another ``thread``."""
    Strike(seconds, in_flight=in_flight).begin(thread)


def _may_be_interrupted(frame: FrameType | None, *, even_in_store: bool = False) -> bool:
    """Whether ``frame`` belongs to a handler or to code that it called, and not to an import or to our own modules that
    must not be interrupted. ``even_in_store``: modules of ``pollconsumer.store`` may be interrupted, too."""
    spared = _SPARED if even_in_store else (*_SPARED, _STORE)
    while frame is not None and frame.f_back is not None:
        if is_importing(frame) or str(frame.f_globals.get("__name__")).startswith(spared):
            return False
        if frame.f_back.f_code is Handler.handle_here.__code__:
            return True
        frame = frame.f_back
    return False
