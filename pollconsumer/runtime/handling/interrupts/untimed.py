"""Interrupts handlers that have no timeout, when a person asks for their end.

A timeout is armed before each message, which costs each. This is armed when it is asked for: in a handler that is under
way, beneath `Handler.handle_here`, which takes what is raised for the handler's error.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.interrupts.alarm import Alarm, Limit, is_importing
from pollconsumer.runtime.handling.interrupts.timeouts import Strike, Striker
from pollconsumer.runtime.handling.shield import in_force

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_STORE = "pollconsumer.store."
"""Modules that are not interrupted while they run: an answer of the store must not be left half read."""
_APART = ("pollconsumer.runtime.children.",)
"""Modules whose handlers end by themselves: they stop a process."""


def interrupt(seconds: float, in_hand: Callable[[], bool]) -> bool:
    """Interrupt the handler in this, the main thread, after ``seconds``, and again every second, while its message is
    ``in_hand``. False if no handler is under way that can be interrupted."""
    if not _may_be_interrupted(sys._getframe(), even_in_store=True):  # noqa: SLF001  documented
        return False
    _UntimedAlarm(seconds, in_hand).start()
    return True


def interrupt_in(thread: int, seconds: float, in_hand: Callable[[], bool]) -> None:
    """Interrupt the handler in another ``thread``, as `interrupt` does in this one."""
    _UntimedStrike(seconds, in_hand).start(thread)


def _may_be_interrupted(frame: FrameType | None, *, even_in_store: bool = False) -> bool:
    """Whether ``frame`` is a handler's, or called by one."""
    spared = _APART if even_in_store else (*_APART, _STORE)
    while frame is not None and frame.f_back is not None:
        if is_importing(frame) or str(frame.f_globals.get("__name__")).startswith(spared):
            return False
        if frame.f_back.f_code is Handler.handle_here.__code__:
            return True
        frame = frame.f_back
    return False


class _Untimed(Limit):
    """A limit that stays in force until its message is no longer in hand."""

    def __init__(self, seconds: float, in_hand: Callable[[], bool]) -> None:
        super().__init__(seconds, None)
        self._in_hand = in_hand

    def has_ended(self) -> bool:
        return not self._in_hand()

    def reaches(self, frame: FrameType | None) -> bool:
        return _may_be_interrupted(frame)


class _UntimedAlarm(_Untimed, Alarm):
    def start(self) -> None:
        in_force[threading.get_ident()] = self
        self.begin()

    def hasten(self, seconds: float) -> None:
        """Nothing to do: the handler is to stop already."""

    def end(self) -> None:
        in_force.pop(threading.get_ident(), None)
        super().end()


class _UntimedStrike(_Untimed, Strike):
    def start(self, thread: int) -> None:
        self.thread, self.pid = thread, os.getpid()
        self.due = time.monotonic() + self.seconds
        in_force[thread] = self
        Striker.started().watch(self)

    def end(self) -> None:
        Striker.started().forget(self)
