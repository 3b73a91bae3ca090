"""Runs a program as a handler: spawn, payload on standard input, captured output, timeout.

Standard input is a file, which need not be read, and most of the output is discarded: no behaviour of a program can
block it or fill our memory.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Collection, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pollconsumer.core.messages.message_options import variable_of
from pollconsumer.core.notation.instants import iso_of
from pollconsumer.core.retry import Fatal, HandlerTimeout, NotBegun, Stopped
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.outcome import signal_name
from pollconsumer.runtime.programs.notes import ProgramNote, Programs
from pollconsumer.runtime.programs.running_program import Output, RunningProgram
from pollconsumer.runtime.session.result_encoder import MAX_RESULT_BYTES
from pollconsumer.runtime.system.system_limits import start_refused

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR")
PASSED_ON_PREFIXES = ("LC_", "XDG_")
"""What names of variables begin with that every program inherits, too; none of them holds secrets."""


class CommandFailed(Exception):
    """The program could not be started, exited with a code other than 0, or exceeded its timeout. ``trace``: the last
    lines that it printed, if they are several; they are stored in the place of a traceback."""

    trace = ""


class FatalExit(CommandFailed, Fatal):
    """The program exited with a code in ``fatal``."""


class Command:
    """The ``run`` of a handler that is a program. ``argv`` begins with the program's absolute path; durations in
    seconds.

    ``timeout`` is enforced here, with SIGTERM and, ``kill_after`` later, SIGKILL for the program's process group.
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
            except OSError as error:  # the system refuses a process; a program that is missing raises another error
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
        from subprocess import STDOUT, Popen

        stdin = _file_of(payload)
        outlet, inlet = os.pipe()
        try:
            process = Popen(
                self.argv,
                stdin=stdin,
                stdout=inlet,
                stderr=STDOUT,
                cwd=self._directory,
                env=self._environment(context),
                start_new_session=True,
                pass_fds=() if note.descriptor is None else (note.descriptor,),
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
        note.started(process.pid)
        return RunningProgram(process, outlet)

    def _environment(self, context: LaunchContext) -> dict[str, str]:
        left = context.time_left()
        deadline = datetime.now(UTC) + timedelta(seconds=left)
        passed_on = {
            name: value
            for name, value in os.environ.items()
            if name in self._names or name.startswith(PASSED_ON_PREFIXES)
        }
        headers = {f"POLLCONSUMER_HEADER_{variable_of(name)}": value for name, value in context.headers.items()}
        return (
            passed_on
            | headers
            | {
                "POLLCONSUMER_MESSAGE_ID": context.id,
                "POLLCONSUMER_HANDLER": context.handler,
                "POLLCONSUMER_QUEUE": context.queue,
                "POLLCONSUMER_ATTEMPT": str(context.attempt),
                "POLLCONSUMER_GENERATION": str(context.generation),
                "POLLCONSUMER_FENCE": str(context.fence),
                "POLLCONSUMER_IDEMPOTENCY_KEY": context.idempotency_key,
                "POLLCONSUMER_DEADLINE": iso_of(deadline),
                "POLLCONSUMER_SECONDS_LEFT": str(int(left)),
            }
        )

    def _outcome(self, code: int | None, output: Output, *, in_time: bool) -> dict[str, Any]:
        if not in_time:
            how = str(HandlerTimeout(self.timeout or 0.0, "from its timeout or consumer.handler_limit"))
        elif code == 0:
            return _result(output)
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


def _result(output: Output) -> dict[str, Any]:
    """The result of a program that exited with 0; of output that is too long as JSON, the head alone."""
    result = {"exit_code": 0, "output": output.text()}
    if len(json.dumps(result, ensure_ascii=False).encode()) > MAX_RESULT_BYTES:
        result["output"] = output.head()
    return result


def _file_of(payload: dict[str, Any]) -> int:
    """A descriptor of ``payload`` as one line of JSON. A pipe would block if the program does not read it."""
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
