"""Imports of the user's code, whose failures are configuration errors in one line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TypeVar

from pollconsumer.core.errors import ConfigurationError, PollConsumerError
from pollconsumer.core.notation.text import redacted
from pollconsumer.core.users_code import answering, called, text_of, users_output
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.writable import refuse_writable_modules
from pollconsumer.runtime.handling.outcome import describe, trace, user_frames
from pollconsumer.runtime.system.stray_forks import end_stray

T = TypeVar("T")
MOST_CHARACTERS = 500
"""Maximum length of an error's text that is shown: at its end Python may hint at a circular import."""
NEEDED_LATER = ("queue", "ssl")
"""Modules that we or asyncio import after the user's, and whose names a user's file may have."""


def shadowed(settings: Settings) -> list[str]:
    """Modules of Python's that must be imported before the configuration's directory is on sys.path, since it has files
    of the same names."""
    names = (name for name in NEEDED_LATER if name not in settings.handlers)
    return [name for name in names if (settings.directory / f"{name}.py").exists()]


def find_modules(settings: Settings, modules: Iterable[str]) -> None:
    """Put the configuration's directory first on sys.path. ConfigurationError if others may write ``modules``."""
    if not settings.trust_writable:
        refuse_writable_modules(settings.directory, modules)
    directory = str(settings.directory)
    if sys.path[:1] != [directory]:
        for name in shadowed(settings):
            import_module(name)
        sys.path.insert(0, directory)


@contextmanager
def importing(setting: str, module: str) -> Iterator[None]:
    """Wrap an import of ``module``, which ``setting`` names: ConfigurationError for what it raises. A process that the
    module has forked ends here."""
    pid = os.getpid()
    try:
        with users_output(), _refusing(setting, module):
            yield
    except BaseException as error:
        end_stray(pid, error)
        raise
    end_stray(pid, None)


def made_by(setting: str, name: str, function: Callable[[], T]) -> T:
    """What the function ``name`` returns, which ``setting`` names. ConfigurationError for what it raises."""
    try:
        with users_output(), answering():
            return called(function)
    except Exception as error:
        reason = redacted(describe(error))[:MOST_CHARACTERS]
        raise _refusal(error, f"{setting}: {name}; calling it raised {reason}") from None


@contextmanager
def _refusing(setting: str, module: str) -> Iterator[None]:
    plain = module.partition(":")[0].removesuffix(".py").removeprefix("./").replace("/", ".")
    try:
        yield
    except PollConsumerError as error:
        own = isinstance(error, ConfigurationError)
        raise _refusal(error, str(error) if own else f"{setting}: {module}: {error}") from None
    except SystemExit:
        raise ConfigurationError(setting, module, "the module exits when it is imported") from None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            raise  # Ctrl-C; launches handle signals differently
        if plain != module:
            raise ConfigurationError(setting, module, f"name the module; did you mean {plain}?") from None
        if isinstance(error, ModuleNotFoundError):
            said = f"{setting}: {module}; {text_of(error)}"
            own = (error.name or "").partition(".")[0] == module.partition(".")[0]
            place = "in the configuration file's directory" if own else f"installed in {sys.prefix}"
            raise _refusal(error, said, f"; is it {place}?") from None
        reason = describe(error)[:MOST_CHARACTERS]
        raise _refusal(error, f"{setting}: {module}; importing it raised {reason}") from None


def _refusal(error: BaseException, said: str, hint: str = "") -> ConfigurationError:
    """The ConfigurationError that says where in the user's own code ``error`` was raised, with its traceback."""
    frames = user_frames(error, installed=False)
    place = f"{frames[-1].tb_frame.f_code.co_filename}:{frames[-1].tb_lineno}" if frames else ""
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{error.filename}:{error.lineno}"
    said = said if place in said else f"{said}, at {place}"
    refusal = ConfigurationError(f"{said}{hint}")
    refusal.traced = trace(error.with_traceback(frames[0])) if frames else ""
    return refusal
