"""Exits forked processes that return from the user's code: each would continue as a second launch.

It would settle the message, handle others under the same lease, outlive the window without a watchdog, whose thread is
not forked, and keep open the output that cron waits for.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def handle_signals_plainly_in_forks(numbers: Iterable[int]) -> None:
    """Have processes that are forked from now on end at these signals, as those of any Python program do, where this
    one has handlers of ours; those that the user's code has set meanwhile stay."""
    ours = {number: signal.getsignal(number) for number in numbers}

    masks = threading.local()

    def block() -> None:  # one that comes before the fork has restored them would be ours
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, ours)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def restore() -> None:
        for number, handler in ours.items():
            if signal.getsignal(number) == handler:
                plain = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
                signal.signal(number, plain)
        if str(getattr(signal.getsignal(signal.SIGALRM), "__module__", "")).startswith("pollconsumer."):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a timeout's, which is not the fork's
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)


def end_stray(pid: int, error: BaseException | None) -> None:
    """Exit this process unless it is ``pid``, which called the handler, hook or module; ``error`` is its exception."""
    if os.getpid() == pid:
        return
    flush_streams()
    os._exit(0 if error is None or (isinstance(error, SystemExit) and not error.code) else 1)


def flush_streams() -> None:
    """Flush standard output and error, whatever handlers have put in their places, or left there."""
    for name in ("stdout", "stderr"):
        with suppress(Exception):  # deleted or closed by a handler, full, or an object of a user's
            getattr(sys, name).flush()
