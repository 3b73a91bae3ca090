"""Starts threads so that the start cannot hang.

`threading.Thread.start` waits until the new thread has said that it runs. A thread in which memory fails before it has
said so ends without a word, and whoever started it waits for ever.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from typing import Any

START_WITHIN = 10.0
"""Seconds in which a new thread must have begun."""
NO_THREAD = "can't start new thread"
"""How Python says that the system refuses another one: for lack of memory, or beyond the user's processes."""


class Started:
    """A thread of ours, which keeps no process from ending."""

    def __init__(self) -> None:
        self._running = Lock()
        self._running.acquire()

    def run(self, target: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        try:
            target(*arguments)
        finally:
            self._running.release()

    def join(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the thread's end. Returns whether it has ended."""
        ended = self._running.acquire(timeout=max(0.0, seconds))
        if ended:
            self._running.release()
        return ended


def start_thread(target: Callable[..., object], *arguments: Any) -> Started:
    """Call ``target``, code of ours, in a thread. RuntimeError if the system refuses another one."""
    started = Started()
    try:
        _thread.start_new_thread(started.run, (target, arguments))
    except MemoryError:
        raise RuntimeError(NO_THREAD) from None
    return started


def start_for_others(thread: Thread) -> None:
    """Start ``thread``, which runs code of the user's: that finds the thread that it expects, with its name and what
    traces it. RuntimeError if the system refuses another one."""
    refused: list[RuntimeError] = []

    def start() -> None:
        with suppress(MemoryError):
            try:
                thread.start()
            except RuntimeError as error:
                refused.append(error)

    if not start_thread(start).join(START_WITHIN) or refused or thread.ident is None:
        raise RuntimeError(NO_THREAD)
