"""Processes that code of the user forks and that come back from it: each would go on as a second launch.

It would settle the message, handle others under the same lease, outlive the window without a watchdog, whose thread no
fork copies, and hold the output that cron waits for.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def end_stray(pid: int, error: BaseException | None) -> None:
    """End this process unless its number is ``pid``: that of the one which called handler, hook or module.

    ``error`` is what that raised in it.
    """
    if os.getpid() == pid:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed by the handler, or full
            stream.flush()
    os._exit(0 if error is None or (isinstance(error, SystemExit) and not error.code) else 1)
