"""Programs as handlers, as the configuration's ``[commands.NAME]`` gives them."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import BadData, ConfigurationError
from pollconsumer.core.message import check_handler
from pollconsumer.core.redaction import redacted
from pollconsumer.core.retry import Backoff
from pollconsumer.core.timespan import parse_duration
from pollconsumer.interface.checks import NAME, NAME_RULE
from pollconsumer.interface.logs import log
from pollconsumer.interface.settings import refusal
from pollconsumer.interface.writable import refuse_writable_program
from pollconsumer.runtime.commands import Command
from pollconsumer.runtime.handlers import Handler
from pollconsumer.runtime.opening import EMBEDDED
from pollconsumer.runtime.own_files import data_directory
from pollconsumer.runtime.programs import Programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pollconsumer.interface.settings import CommandSettings, Settings

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RETRY = ("first", "factor", "most", "jitter")
YEAR = 365 * 86400.0


def check_command(name: str, command: CommandSettings) -> None:
    """ConfigurationError with what is wrong in a command's section. Files are not looked at: a producer has none."""
    try:
        check_handler(name)
    except BadData as error:
        raise ConfigurationError(f"commands: {error}") from None
    for key, value, holds, rule in _rules(command):
        if not holds:
            raise refusal(f"commands.{name}.{key}", value, rule)
    try:
        _backoff(command.retry)
    except ValueError as error:
        raise ConfigurationError(f"commands.{name}.retry: {error}") from None


def _rules(command: CommandSettings) -> Iterator[tuple[str, object, bool, str]]:
    argv, timeout, attempts = command.command, command.timeout, command.max_attempts
    yield "command", list(argv), bool(argv and argv[0]), 'empty: name a program, as in ["/usr/local/bin/backup", "-v"]'
    yield "command", list(argv), not any("\0" in word for word in argv), "no argument can hold a NUL character"
    yield "timeout", timeout, timeout is None or 0 < timeout <= YEAR, "must be > 0, and at most 365d"
    yield "kill_after", command.kill_after, command.kill_after <= YEAR, "must be between 0 and 365d"
    yield "queue", command.queue, bool(NAME.fullmatch(command.queue)), NAME_RULE
    yield "max_attempts", attempts, 1 <= attempts <= 10_000, "must be 1-10000"
    for variable in command.environment:
        rule = "name variables to pass on, without values"
        yield "environment", variable.partition("=")[0], bool(VARIABLE.fullmatch(variable)), rule


def _backoff(retry: dict[str, Any]) -> Backoff:
    """ValueError, naming the key that is wrong."""
    for key, value in retry.items():
        if key not in RETRY:
            raise ValueError(f"unknown key {key!r}; known here: {', '.join(RETRY)}")
        if key in ("first", "most"):
            try:
                parse_duration(value)
            except (TypeError, ValueError):
                raise ValueError(f"{key}: {value}; write a duration, as in 500ms, 2s or 1m30s") from None
        elif not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"{key}: {value}; expected a number")
    return Backoff(**retry)


def load_commands(settings: Settings, programs: Programs) -> dict[str, Handler]:
    """The handlers that are programs. ConfigurationError for one that cannot be run."""
    handlers = {}
    for name, command in settings.commands.items():
        directory = settings.directory / (command.directory or "")
        if not directory.is_dir():
            problem = errno.ENOTDIR if directory.exists() else errno.ENOENT
            raise ConfigurationError(f"commands.{name}.directory", directory, _described(problem))
        program = _program(name, command.command[0], settings.directory)
        if not settings.trust_writable:
            refuse_writable_program(Path(program))
        run = Command(
            (program, *command.command[1:]),
            programs,
            directory=directory,
            timeout=command.timeout,
            kill_after=command.kill_after,
            fatal=command.fatal,
            environment=command.environment,
        )
        handlers[name] = Handler(
            name, run, command.max_attempts, _backoff(command.retry), queue=command.queue, takes_context=True
        )
    return handlers


def running_programs(settings: Settings) -> Programs:
    """The notes of programs that run for this store and namespace, in the user's state directory; none where that is
    what the settings ask for."""
    store = str(data_directory()) if settings.store == EMBEDDED else redacted(settings.store)
    name = hashlib.sha256(f"{store}\n{settings.namespace}".encode()).hexdigest()[:32]
    files = settings.state_files()
    place = files.place() or next(iter(files.directories), None)
    return Programs(None if place is None else place / "programs" / name, log.warning)


def _program(name: str, word: str, directory: Path) -> str:
    """The whole path of the program that ``word`` names: found by PATH, or from the configuration's directory."""
    if "/" in word:
        path = directory / word
        problem = _why_not(path)
        if problem:
            raise ConfigurationError(f"commands.{name}.command", path, _described(problem))
        return str(path)
    places = os.environ.get("PATH", os.defpath)
    for place in filter(os.path.isabs, places.split(os.pathsep)):
        problem = _why_not(Path(place, word))
        if not problem:
            return str(Path(place, word))
        if problem not in (errno.ENOENT, errno.ENOTDIR):
            raise ConfigurationError(f"commands.{name}.command", Path(place, word), _described(problem))
    raise ConfigurationError(f"commands.{name}.command", word, f"{_described(errno.ENOENT)} in any directory of PATH")


def _why_not(path: Path) -> int:
    """Error number of what keeps ``path`` from being run; 0 where nothing seems to."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return error.errno or errno.EIO
    if stat.S_ISDIR(mode):
        return errno.EISDIR
    return 0 if stat.S_ISREG(mode) and os.access(path, os.X_OK) else errno.EACCES


def _described(problem: int) -> str:
    return f"{os.strerror(problem)} (errno {problem})"
