"""Runs a program as a handler: spawn, payload on standard input, captured output, timeout.

Standard input is a file, which the program need not read, and most of the output is discarded. So no program can block,
or fill our memory, by what it does with them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pollconsumer.core.messages.message import variable_of
from pollconsumer.core.notation.instants import ceil_ms, iso_of
from pollconsumer.core.retry import Fatal, HandlerTimeout, NotBegun, Stopped
from pollconsumer.runtime.children.notes import ProgramNote, Programs
from pollconsumer.runtime.children.pool import LOOK_EVERY, ChildProcess
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.outcome import signal_name
from pollconsumer.runtime.session.settlements import MAX_RESULT_BYTES
from pollconsumer.runtime.system.system_limits import start_refused

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR")
PASSED_ON_PREFIXES = ("LC_", "XDG_")
"""Prefixes of environment variables that every program inherits besides the named ones. None of them holds secrets."""
KEPT_BYTES = 8192
"""Number of bytes that are kept of the beginning of the output, and again of its end."""
CHUNK, MOST_CHUNKS = 65536, 32
"""Bytes per read; and the maximum number of reads after the program's exit, since its children may continue to
print."""
LAST_LINES, LAST_CHARACTERS, LAST_LINE_CHARACTERS = 20, 2000, 400
LONGEST_WAIT = 0.5
"""Seconds between two checks whether the message was asked to stop."""


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


class RunningProgram(ChildProcess):
    """A started program. Its output is read as it comes, from the pipe ``outlet``, into which the program writes."""

    def __init__(self, argv: Sequence[str], passed: Collection[int], outlet: int, **how: Any) -> None:
        super().__init__(argv, passed, **how)
        self.output = Output()
        self._outlet, self._silent = outlet, False
        self._poll = select.poll()
        os.set_blocking(outlet, False)
        for each in filter(None, (outlet, self.exit_handle)):
            self._poll.register(each, select.POLLIN)

    def wait(self, seconds: float | None, *, until_silent: bool = False, unless: Callable[[], bool] = bool) -> bool:
        """Read the program's output. Returns True once the program has exited, and with ``until_silent`` only once no
        process has its output open. Returns False once ``seconds`` have passed, or ``unless`` returns True."""
        until = None if seconds is None else time.monotonic() + seconds
        while not self.has_ended() or (until_silent and not self._silent):
            left = LONGEST_WAIT if until is None else until - time.monotonic()
            if left <= 0 or unless():
                return False
            self._attend(min(left, LONGEST_WAIT))
        return True

    def end(self, *, kill: bool) -> int | None:
        """The exit code, as `ChildProcess.reap` returns it. Reads the rest of the pipe. With ``kill``, it first kills
        the process group."""
        if kill:
            self.signal(signal.SIGKILL)
        while not self.has_ended():
            self._attend(LONGEST_WAIT)
        if not self._silent:
            for _ in range(MOST_CHUNKS):
                if not self._read():
                    break
        os.close(self._outlet)
        return self.reap()

    def _attend(self, seconds: float) -> None:
        """Wait until the program prints or exits, at most ``seconds``."""
        if self.exit_handle is None:
            seconds = min(seconds, LOOK_EVERY)
        for descriptor, _ in self._poll.poll(ceil_ms(seconds)):
            if descriptor == self._outlet:
                self._read()
            else:
                self._poll.unregister(descriptor)

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


class CommandFailed(Exception):
    """The program could not be started, exited with a code other than 0, or exceeded its timeout. ``trace``: the last
    lines that it printed, if there are several. They are stored in place of a traceback."""

    trace = ""


class FatalExit(CommandFailed, Fatal):
    """The program exited with a code in ``fatal``."""


class Command:
    """The ``run`` of a handler that is a program. ``argv`` begins with the program's absolute path. Durations are in
    seconds.

    The ``timeout`` is enforced here: with SIGTERM, and ``kill_after`` later with SIGKILL, for the program's process
    group.
    """

    def __init__(
        self,
        argv: Sequence[str],
        programs: Programs,
        *,
        directory: Path,
        timeout: float | None = None,
        kill_after: float,
        fatal: Collection[int] = (),
        environment: Collection[str] = (),
    ) -> None:
        self.argv, self.timeout, self.kill_after = tuple(argv), timeout, kill_after
        self._programs, self._directory = programs, directory
        self._fatal, self._names = frozenset(fatal), frozenset((*PASSED_ON, *environment))

    def with_timeout(self, seconds: float | None) -> Command:
        other = copy(self)
        other.timeout = seconds
        return other

    def __call__(self, payload: dict[str, Any], context: LaunchContext | None) -> dict[str, Any]:
        """Run the program to its end. CommandFailed, StillRunning, NotBegun."""
        assert context is not None
        note = self._programs.begin(context.delivery)
        try:
            if self.timeout is not None:
                context.limit(self.timeout)
            try:
                running = self._start(payload, context, note)
            except OSError as error:  # the system refuses a process; a missing program raises another error
                raise NotBegun(start_refused(error)) from None
            try:
                in_time = running.wait(self.timeout, unless=lambda: context.stop_asked)
                if not in_time:
                    running.signal(signal.SIGTERM)
                    running.wait(self.kill_after, until_silent=True)
            except BaseException:
                in_time = False
                raise
            finally:
                code = running.end(kill=not in_time)
        finally:
            note.close()
        if not in_time and context.stop_asked:
            raise Stopped(running.output.last_line())
        return self._outcome(code, running.output, in_time=in_time)

    def _start(self, payload: dict[str, Any], context: LaunchContext, note: ProgramNote) -> RunningProgram:
        stdin = _file_of(payload)
        outlet, inlet = os.pipe()
        try:
            running = RunningProgram(
                self.argv,
                () if note.descriptor is None else (note.descriptor,),
                outlet,
                stdin=stdin,
                stdout=inlet,
                stderr=inlet,
                cwd=self._directory,
                env=self._environment(context),
            )
        except OSError as error:
            os.close(outlet)
            if error.filename is None:
                raise
            raise CommandFailed(f"cannot start {error.filename or self.argv[0]}: {error.strerror}") from None
        except BaseException:
            os.close(outlet)
            raise
        finally:
            os.close(stdin)
            os.close(inlet)
        note.started(running.pid)
        return running

    def _environment(self, context: LaunchContext) -> dict[str, str]:
        left = context.time_left()
        passed_on = {
            name: value
            for name, value in os.environ.items()
            if name in self._names or name.startswith(PASSED_ON_PREFIXES)
        }
        headers = {f"POLLCONSUMER_HEADER_{variable_of(name)}": value for name, value in context.headers.items()}
        message = {
            "POLLCONSUMER_MESSAGE_ID": context.id,
            "POLLCONSUMER_HANDLER": context.handler,
            "POLLCONSUMER_QUEUE": context.queue,
            "POLLCONSUMER_ATTEMPT": str(context.attempt),
            "POLLCONSUMER_GENERATION": str(context.generation),
            "POLLCONSUMER_FENCE": str(context.fence),
            "POLLCONSUMER_IDEMPOTENCY_KEY": context.idempotency_key,
            "POLLCONSUMER_DEADLINE": iso_of(datetime.now(UTC) + timedelta(seconds=left)),
            "POLLCONSUMER_SECONDS_LEFT": str(int(left)),
        }
        return passed_on | headers | message

    def _outcome(self, code: int | None, output: Output, *, in_time: bool) -> dict[str, Any]:
        if not in_time:
            how = str(HandlerTimeout(self.timeout or 0.0, "from its timeout or consumer.handler_limit"))
        elif code == 0:
            result = {"exit_code": 0, "output": output.text()}
            if len(json.dumps(result, ensure_ascii=False).encode()) > MAX_RESULT_BYTES:
                result["output"] = output.head()
            return result
        elif code is None:
            how = "exit code unknown, as something else here waited for its end"
        else:
            how = f"exit code {code}" if code > 0 else f"killed by {signal_name(-code)}"
        last = output.last_line()
        kind = FatalExit if in_time and code in self._fatal else CommandFailed
        failure = kind(f"{how}: {last}" if last else how)
        lines = output.last_lines()
        failure.trace = lines if lines != last else ""
        raise failure


def _file_of(payload: dict[str, Any]) -> int:
    """A descriptor from which ``payload`` can be read as one line of JSON. It is a file, since a pipe would block if
    the program did not read it."""
    try:
        line = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a lone surrogate, which must be escaped
        line = json.dumps(payload, separators=(",", ":")).encode()
    try:
        descriptor = os.memfd_create("payload")
    except (AttributeError, OSError):
        from tempfile import TemporaryFile

        with TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        view = memoryview(line + b"\n")
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
