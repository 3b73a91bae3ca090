"""The end of a launch whatever its handlers do: exit 124 at the hard end, with every stack in the log.

A thread does it, unless a handler holds the interpreter's lock; then faulthandler's own thread does, which needs none
and is written in C, half a second later and with exit status 1, which is all it can say.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from typing import TYPE_CHECKING

from pollconsumer.core.window import StopReason

if TYPE_CHECKING:
    from pollconsumer.runtime.progress import Progress

WITHOUT_INTERPRETER_AFTER = 0.5
EXIT_CODE = 124
MESSAGE = b"pollconsumer: error: watchdog: the launch outlived its window and grace; its stacks follow\n"


class Watchdog:
    def __init__(self, seconds: float, progress: Progress) -> None:
        """Strikes in ``seconds``, unless the process has ended: a thread that a handler left behind may delay that."""
        self._progress = progress
        self._log = os.dup(2)  # a handler may close it
        faulthandler.enable(file=self._log)  # a handler may crash in C
        faulthandler.dump_traceback_later(seconds + WITHOUT_INTERPRETER_AFTER, exit=True, file=self._log)
        threading.Thread(target=self._watch, args=(seconds,), name="watchdog", daemon=True).start()

    def _watch(self, seconds: float) -> None:
        time.sleep(seconds)
        self._progress.end(StopReason.WATCHDOG, EXIT_CODE)
        os.write(self._log, MESSAGE)
        faulthandler.dump_traceback(file=self._log, all_threads=True)
        os._exit(EXIT_CODE)
