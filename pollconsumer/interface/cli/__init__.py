"""Runs a command: what is done at the beginning and the end of each."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from pollconsumer.core.errors import CannotCreate, PollConsumerError
from pollconsumer.core.users_code import answering
from pollconsumer.interface.cli.group import invoke
from pollconsumer.interface.cli.output import was_printing
from pollconsumer.interface.command_line import LAUNCHES, command_in
from pollconsumer.interface.logs import logs
from pollconsumer.interface.settings.names import PREFIX
from pollconsumer.runtime.system.own_files import OwnFiles, state_directories
from pollconsumer.runtime.system.signals import Terminated
from pollconsumer.runtime.system.system_limits import USED_UP, met_by
from pollconsumer.runtime.system.watchdog import finish


def main(arguments: Sequence[str]) -> int:
    """Run the command that ``arguments`` name, and return its exit code. An error that a user can fix is printed as one
    line. Any other exception is a bug, and is raised, unless it is damped."""
    logs.configure()
    logs.log.streaks = _streaks(arguments)
    streams = sys.stdout, sys.stderr  # handlers' modules may replace them
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    code, failure = 0, None
    try:
        with answering():
            code = invoke(arguments)
    except KeyboardInterrupt as interruption:
        code = 143 if isinstance(interruption, Terminated) else 130
    except Exception as error:
        if isinstance(error, OSError) and was_printing(error):
            failure = error
        elif (known := _reported(error)) is not None:
            code = known
        else:
            raise
    failure = failure or _flushed(streams[0])
    if failure is not None and not isinstance(failure, BrokenPipeError):  # a reader that closes the pipe is no error
        undelivered = CannotCreate("standard output", failure.strerror, "check where it goes")
        logs.write_error(undelivered)
        code = code or undelivered.exit_code
    finish(code)
    logs.close_streaks(code)
    for stream in streams:
        if stream is not None and _flushed(stream) is not None:
            discard(stream)
    return code


def _streaks(arguments: Sequence[str]) -> logs.LaunchStreaks | None:
    """The streaks of a launch's warnings. None for other commands, and at a terminal, where no warning is damped."""
    role = command_in(arguments)
    if role not in LAUNCHES or sys.stderr is None or sys.stderr.isatty():
        return None
    return logs.LaunchStreaks(logs.name_of(role, arguments, os.environ, PREFIX), OwnFiles(state_directories()))


def _reported(error: Exception) -> int | None:
    """Print the line of the error that ended a command. Returns the exit code; None if the error is to be raised."""
    shown = error if isinstance(error, PollConsumerError) else met_by(error)
    if shown is not None:
        logs.write_error(shown)
        return shown.exit_code
    too_many_files = getattr(error, "errno", None) in USED_UP
    return None if too_many_files or logs.prints_traceback_of(error) else 1


def discard(stream: TextIO) -> None:
    """Discard what is buffered in ``stream``. Otherwise the interpreter would try to flush it again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def _flushed(stream: TextIO | None) -> OSError | None:
    """The OSError that flushing ``stream`` raised. None without one, or if the stream is closed or missing."""
    try:
        if stream is not None:
            stream.flush()
    except OSError as error:
        return error
    except ValueError:  # closed
        return None
    return None
