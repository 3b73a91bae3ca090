"""Starts all our threads, so that no start hangs, and no thread ends silently."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from typing import Any

from pollconsumer.core.users_code import OUR_THREAD, described, whose

START_WITHIN = 10.0
"""A new thread must have begun within so many seconds."""
NO_THREAD = "can't start new thread"
"""Python's text if the system refuses another thread, for lack of memory, or beyond the user's processes."""


def _log(line: str) -> None:
    from logging import getLogger  # before signals have their handlers, nothing slow is imported

    getLogger("pollconsumer").error(line)


report: list[Callable[[str], None]] = [_log]
"""Functions that write a line about a thread that has failed. The last one counts."""


class Started:
    """A thread of ours. It does not keep a process from ending."""

    def __init__(self, name: str) -> None:
        self._name, self._running = name, Lock()
        self._running.acquire()

    def run(self, target: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        try:
            _run(self._name, target, arguments)
        finally:
            self._running.release()

    def join(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the thread's end. Returns whether it has ended."""
        ended = self._running.acquire(timeout=max(0.0, seconds))
        if ended:
            self._running.release()
        return ended


def start_thread(name: str, target: Callable[..., object], *arguments: Any) -> Started:
    """Call ``target``, which is our code, in a thread. Its failure is reported in a line with the thread's ``name``.
    RuntimeError if the system refuses another thread."""
    started = Started(name)
    try:
        _thread.start_new_thread(started.run, (target, arguments))
    except MemoryError:
        raise RuntimeError(NO_THREAD) from None
    return started


def start_for_others(name: str, target: Callable[[], object]) -> Thread:
    """`start_thread` for a thread that runs code of the user's. That code finds the kind of thread that it expects,
    with its name and its tracing."""
    refused: list[RuntimeError] = []
    thread = Thread(target=_run, args=(name, target, ()), name=name, daemon=True)

    def start() -> None:
        with suppress(MemoryError):
            try:
                thread.start()
            except RuntimeError as error:
                refused.append(error)

    if not start_thread(f"start of {name}", start).join(START_WITHIN) or refused or thread.ident is None:
        raise RuntimeError(NO_THREAD)
    return thread


def _run(name: str, target: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    whose.set(OUR_THREAD)
    try:
        target(*arguments)
    except BaseException as error:
        with suppress(BaseException):  # no memory is left, or the interpreter ends
            report[-1](f"the thread {name} has ended: it raised {described(error)}")
