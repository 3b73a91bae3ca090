"""Processes that a handler forks and that come back from it: each would go on as a second launch.

It would settle the message, handle others under the same lease, outlive the window without a watchdog, whose thread no
fork copies, and hold the output that cron waits for.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pollconsumer.runtime.handlers import Outcome


def end_stray(pid: int, outcome: Outcome) -> None:
    """End this process unless its number is ``pid``: that of the one in which handlers are called."""
    if os.getpid() == pid:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed by the handler, or full
            stream.flush()
    error = outcome.error
    os._exit(0 if error is None or (isinstance(error, SystemExit) and not error.code) else 1)
