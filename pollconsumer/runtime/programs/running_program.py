"""A program that runs: its output as it comes, its exit, signals to its process group."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pollconsumer.core.notation.instants import ceil_ms

KEPT_BYTES = 8192
"""Bytes of output that are kept of its beginning, and again of its end."""
CHUNK, MOST_CHUNKS = 65536, 32
"""Bytes per read; and maximum reads after the program's exit, since its children may continue to print."""
LAST_LINES, LAST_CHARACTERS, LAST_LINE_CHARACTERS = 20, 2000, 400
LONGEST_WAIT = 0.5
"""Seconds between looks whether the message is to stop."""
LOOK_EVERY = 0.02
"""Seconds between polls for the exit, if the system has no pidfds."""


class Output:
    """The beginning and the end of a program's output."""

    def __init__(self) -> None:
        self._first, self._last, self._size = bytearray(), b"", 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if room := KEPT_BYTES - len(self._first):
            self._first += data[:room]
            data = data[room:]
        self._last = (self._last + data)[-KEPT_BYTES:]

    def text(self) -> str:
        left_out = self._size - len(self._first) - len(self._last)
        between = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
        return (bytes(self._first) + between + self._last).decode("utf-8", "replace")

    def head(self) -> str:
        return f"{self._first.decode('utf-8', 'replace')}\n[{self._size - len(self._first)} bytes left out]\n"

    def last_lines(self) -> str:
        """The last lines that are not blank."""
        lines = [line for line in self.text().splitlines() if line.strip()]
        return "\n".join(lines[-LAST_LINES:])[-LAST_CHARACTERS:]

    def last_line(self) -> str:
        return self.last_lines().rpartition("\n")[2][-LAST_LINE_CHARACTERS:]


class RunningProgram:
    """A started program. It is reaped last, so that its pid is not reused."""

    def __init__(self, process: Any, outlet: int) -> None:
        self.output = Output()
        self._process, self._outlet = process, outlet
        self._exited = self._silent = False
        self._code: int | None = None
        self._poll = select.poll()
        os.set_blocking(outlet, False)
        self._poll.register(outlet, select.POLLIN)
        self._handle: int | None = None
        with suppress(AttributeError, OSError):
            self._handle = os.pidfd_open(process.pid)
            self._poll.register(self._handle, select.POLLIN)

    def wait(self, seconds: float | None, *, until_silent: bool = False, unless: Callable[[], bool] = bool) -> bool:
        """Read its output until it has exited: True; or until ``seconds`` have passed, or ``unless`` says so: False.
        With ``until_silent`` also until no process has its output open."""
        until = None if seconds is None else time.monotonic() + seconds
        while not self._exited or (until_silent and not self._silent):
            left = LONGEST_WAIT if until is None else until - time.monotonic()
            if left <= 0 or unless():
                return False
            self._attend(min(left, LONGEST_WAIT))
        return True

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def end(self, *, kill: bool) -> int | None:
        """The exit code, negative for a signal; None if another waiter reaped it. Reads the rest of the pipe. With
        ``kill``, kills the process group first."""
        if kill:
            self.signal(signal.SIGKILL)
        while not self._exited:
            self._attend(LONGEST_WAIT)
        if not self._silent:
            for _ in range(MOST_CHUNKS):
                if not self._read():
                    break
        os.close(self._outlet)
        if self._handle is not None:
            os.close(self._handle)
            self._reap(0)
        # Popen assumes exit code 0 for a process that another waiter has reaped.
        self._process.returncode = -1 if self._code is None else self._code
        return self._code

    def _attend(self, seconds: float) -> None:
        """Wait until it prints, exits, or ``seconds`` have passed."""
        if self._handle is None:
            seconds = min(seconds, LOOK_EVERY)
        for descriptor, _ in self._poll.poll(ceil_ms(seconds)):
            if descriptor == self._outlet:
                self._read()
            else:
                self._exited = True
                self._poll.unregister(descriptor)
        if self._handle is None and not self._exited:
            self._reap(os.WNOHANG)

    def _read(self) -> bool:
        try:
            data = os.read(self._outlet, CHUNK)
        except BlockingIOError:
            return False
        self.output.add(data)
        if not data:
            self._silent = True
            self._poll.unregister(self._outlet)
        return bool(data)

    def _reap(self, options: int) -> None:
        try:
            pid, status = os.waitpid(self._process.pid, options)
        except ChildProcessError:
            self._exited = True
            return
        if pid:
            self._exited, self._code = True, os.waitstatus_to_exitcode(status)
