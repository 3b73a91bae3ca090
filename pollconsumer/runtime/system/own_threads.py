"""Starts the threads of pollconsumer itself. Starting one never hangs, and a thread that fails logs the error."""

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
"""Python's error text if the system refuses another thread, because memory or the user's process limit is used up."""


def _log(line: str) -> None:
    from logging import getLogger  # before signals have their handlers, nothing slow is imported

    getLogger("pollconsumer").error(line)


report: list[Callable[[str], None]] = [_log]
"""A stack of functions that log a line about a failed thread. Only the last one is called."""


class Started:
    """A running thread. It is a daemon: the process can exit while the thread runs."""

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
    """Like `start_thread`, for a ``target`` that runs users' code. It returns a regular ``threading.Thread``, because
    users' code may ask for the current thread's name, or set a trace function."""
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
