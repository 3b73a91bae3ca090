"""Interrupts handlers that have no timeout, when a person asks for their end.

A timeout is armed before each message, which costs each. This is armed when it is asked for: in a handler that is under
way, beneath `Handler.handle`, which takes what is raised for the handler's error.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from _signal import signal as _set_handler  # type: ignore[import-not-found]  # as in alarm.py
from typing import TYPE_CHECKING

from pollconsumer.core.retry import TimeIsUp
from pollconsumer.runtime.handling.alarm import REPEAT, SHIELDED_RETRY, Limit, is_importing
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.shield import in_force
from pollconsumer.runtime.handling.timeouts import Strike, Striker

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_STORE = "pollconsumer.store."
"""Modules that are not interrupted while they run: an answer of the store must not be left half read."""
_APART = ("pollconsumer.runtime.programs.", "pollconsumer.runtime.isolation.")
"""Modules whose handlers end by themselves: they stop a process."""


def interrupt(seconds: float, in_hand: Callable[[], bool]) -> bool:
    """Interrupt the handler in this, the main thread, after so many seconds, and again every second, while it is in
    hand. False if there is none that can be."""
    if not _may_be_interrupted(sys._getframe(), even_in_store=True):  # noqa: SLF001  documented
        return False
    _UntimedAlarm(in_hand).start(seconds)
    return True


def interrupt_in(thread: int, seconds: float, in_hand: Callable[[], bool]) -> None:
    """The same in another thread."""
    limit = in_force[thread] = _UntimedStrike(thread, seconds, in_hand)
    Striker.started().watch(limit)


def _may_be_interrupted(frame: FrameType | None, *, even_in_store: bool = False) -> bool:
    """Whether ``frame`` is a handler's, or called by one."""
    spared = _APART if even_in_store else (*_APART, _STORE)
    while frame is not None and frame.f_back is not None:
        if is_importing(frame) or str(frame.f_globals.get("__name__")).startswith(spared):
            return False
        if frame.f_back.f_code is Handler.handle.__code__:
            return True
        frame = frame.f_back
    return False


class _UntimedAlarm(Limit):
    def __init__(self, in_hand: Callable[[], bool]) -> None:
        super().__init__(0.0, None)
        self._in_hand, self._thread = in_hand, threading.get_ident()

    def start(self, seconds: float) -> None:
        in_force[self._thread] = self
        self._before = _set_handler(int(signal.SIGALRM), self._ring)
        signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT)

    def hasten(self, seconds: float) -> None:
        """It is to stop already."""

    def _ring(self, _number: int, frame: FrameType | None) -> None:
        if not self._in_hand():
            signal.setitimer(signal.ITIMER_REAL, 0)
            in_force.pop(self._thread, None)
            _set_handler(int(signal.SIGALRM), signal.SIG_DFL if self._before is None else self._before)
        elif self.deferred or not _may_be_interrupted(frame):
            signal.setitimer(signal.ITIMER_REAL, SHIELDED_RETRY, REPEAT)
        else:
            raise TimeIsUp


class _UntimedStrike(Strike):
    def __init__(self, thread: int, seconds: float, in_hand: Callable[[], bool]) -> None:
        super().__init__(0.0, None)
        self._in_hand, self.thread, self.pid = in_hand, thread, os.getpid()
        self.due = time.monotonic() + seconds

    def has_ended(self) -> bool:
        return not self._in_hand()

    def reaches(self, frame: FrameType | None) -> bool:
        return _may_be_interrupted(frame)

    def end(self) -> None:
        Striker.started().forget(self)
