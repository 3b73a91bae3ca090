"""Builds handlers from the configuration's ``[commands.NAME]``."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.notation.digests import sha256
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.settings.model import CommandSettings, Settings
from pollconsumer.interface.settings.owners import refuse_writable_program
from pollconsumer.interface.settings.rules import backoff_of
from pollconsumer.runtime.children.command import Command
from pollconsumer.runtime.children.notes import Programs
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.system.executables import why_not_run


def load_commands(settings: Settings, programs: Programs) -> dict[str, Handler]:
    """The handlers that are programs. ConfigurationError for one that cannot be run."""
    handlers = {}
    for name, command in settings.commands.items():
        directory = settings.directory / (command.directory or "")
        if not os.path.isdir(directory):  # noqa: PTH112  those of os.path do not raise in a directory of others
            problem = errno.ENOTDIR if os.path.exists(directory) else errno.ENOENT  # noqa: PTH110  as above
            raise ConfigurationError(f"commands.{name}.directory", directory, _described(problem))
        program = _program(name, command.command[0], settings.directory)
        if not settings.trust_writable:
            refuse_writable_program(Path(program))
        run = Command(
            (program, *command.command[1:]),
            programs,
            directory=directory,
            timeout=command.timeout or settings.consumer.handler_limit,
            kill_after=command.kill_after,
            fatal=command.fatal,
            environment=command.environment,
        )
        handlers[name] = _handler_of(name, run, command)
    return handlers


def _handler_of(name: str, run: Command, command: CommandSettings) -> Handler:
    return Handler(
        name,
        run,
        command.max_attempts,
        backoff_of(command.retry),
        queue=command.queue,
        rate=command.rate,
        rate_key=command.rate_key,
        takes_context=True,
        timeout=run.timeout,
        timed=lambda seconds: _handler_of(name, run.with_timeout(seconds), command),
    )


def running_programs(settings: Settings) -> Programs:
    """The notes of running programs for this store and namespace, in the directory of the state; no notes are kept if
    ``state`` is ``none``."""
    store = str(settings.data_directory()) if settings.is_embedded else settings.shown_store
    name = sha256(f"{store}\n{settings.namespace}".encode())[:32]
    files = settings.state_files()
    place = files.place() or next(iter(files.directories), None)
    return Programs(None if place is None else place / "programs" / name, log.warning)


def _program(name: str, word: str, directory: Path) -> str:
    """The absolute path of program ``word``, by PATH, or relative to the configuration's directory."""
    if "/" in word:
        path = directory / word
        problem = why_not_run(path)
        if problem:
            raise ConfigurationError(f"commands.{name}.command", path, _described(problem))
        return str(path)
    places = os.environ.get("PATH", os.defpath)
    for place in filter(os.path.isabs, places.split(os.pathsep)):
        problem = why_not_run(Path(place, word))
        if not problem:
            return str(Path(place, word))
        if problem not in (errno.ENOENT, errno.ENOTDIR):
            raise ConfigurationError(f"commands.{name}.command", Path(place, word), _described(problem))
    raise ConfigurationError(f"commands.{name}.command", word, f"{_described(errno.ENOENT)} in any directory of PATH")


def _described(problem: int) -> str:
    return f"{os.strerror(problem)} (errno {problem})"
