"""A process beside its launch, which can be killed with its children."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

LOOK_EVERY = 0.02
"""Seconds between looks whether the process has ended, if the system has no pidfds."""


class ChildProcess:
    """A process that leads a session, so that its children get its signals. It is reaped last, so that its pid is not
    reused. ``exit_handle``: a descriptor that is readable once the process has ended; None if the system has none."""

    def __init__(self, argv: Sequence[str], passed: Collection[int], **how: Any) -> None:
        """``passed``: descriptors that the process inherits. ``how``: as of `Popen`, whose errors this raises."""
        from subprocess import Popen  # few launches start a process

        self._popen = Popen(argv, pass_fds=passed, start_new_session=True, **how)
        self.pid = self._popen.pid
        self.exit_handle: int | None = None
        with suppress(AttributeError, OSError):
            self.exit_handle = os.pidfd_open(self.pid)
        self._ended = False
        self._code: int | None = None

    def has_ended(self) -> bool:
        handle = self.exit_handle  # another thread may reap the process meanwhile
        if not self._ended and handle is not None:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            self._ended = bool(poll.poll(0))
        elif not self._ended:
            self._look()
        return self._ended

    def await_end(self, until: float) -> None:
        """Wait until the process has ended, at most until ``until`` by the monotonic clock."""
        while not self.has_ended() and time.monotonic() < until:
            time.sleep(0.005)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def reap(self) -> int | None:
        """The exit code, negative for a signal; None if the process has not ended, or something else here waited for
        its end."""
        if self.exit_handle is not None:
            self._look()
            self._ended = True
            os.close(self.exit_handle)
            self.exit_handle = None
        # Popen assumes exit code 0 for a process that another waiter has reaped.
        self._popen.returncode = -1 if self._code is None else self._code
        return self._code

    def _look(self) -> None:
        """Take the exit code, if the process has ended."""
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            self._ended = True
        else:
            if pid:
                self._ended, self._code = True, os.waitstatus_to_exitcode(status)
