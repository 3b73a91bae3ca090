"""Exits forked processes that return from the user's code: each would continue as a second launch.

It would settle the message, handle others under the same lease, outlive the window without a watchdog, whose thread is
not forked, and keep open the output that cron waits for.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def end_stray(pid: int, error: BaseException | None) -> None:
    """Exit this process unless it is ``pid``, which called the handler, hook or module; ``error`` is its exception."""
    if os.getpid() == pid:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed by the handler, or full
            stream.flush()
    os._exit(0 if error is None or (isinstance(error, SystemExit) and not error.code) else 1)
