"""Threads of our own, whose start cannot hang."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import Any


def start_thread(target: Callable[..., object], *arguments: Any) -> bool:
    """Call ``target`` in a thread that keeps no process from ending. Returns False where the system refuses another
    one.

    `threading.Thread.start` waits until the thread runs: for ever, where that dies for lack of memory before it does.
    """
    try:
        _thread.start_new_thread(target, arguments)
    except RuntimeError:
        return False
    return True
