"""Imports the user's code. If that fails, a ConfigurationError says why in one line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import ConfigurationError, PollConsumerError
from pollconsumer.core.notation.text import redacted
from pollconsumer.core.users_code import answering, called, text_of, users_output
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.owners import refuse_writable_modules
from pollconsumer.runtime.handling.handler import describe, trace, user_frames
from pollconsumer.runtime.system.signals import end_stray

if TYPE_CHECKING:
    from pollconsumer.store.client.address import CredentialProvider
    from pollconsumer.store.user_client import SuppliedClient

MOST_CHARACTERS = 500
"""Maximum length of an error's text. The end may have Python's hint at a circular import."""
NEEDED_LATER = ("queue", "ssl")
"""Modules that we or asyncio import after the user's modules, which may have files of the same names."""


def shadowed(settings: Settings) -> list[str]:
    """Modules of Python's that must be imported before the configuration's directory is on sys.path, because files
    there have their names."""
    names = (name for name in NEEDED_LATER if name not in settings.handlers)
    return [name for name in names if (settings.directory / f"{name}.py").exists()]


def find_modules(settings: Settings, modules: Iterable[str]) -> None:
    """Put the configuration's directory first on sys.path. ConfigurationError if others may write any of
    ``modules``."""
    if not settings.trust_writable:
        refuse_writable_modules(settings.directory, modules)
    directory = str(settings.directory)
    if sys.path[:1] != [directory]:
        for name in shadowed(settings):
            import_module(name)
        sys.path.insert(0, directory)


@contextmanager
def importing(setting: str, module: str) -> Iterator[None]:
    """Wrap an import of ``module``, which ``setting`` names. ConfigurationError if the import raises, except for Ctrl-C
    and MemoryError, which pass. If ``module`` has forked this process, the child process ends here."""
    pid = os.getpid()
    try:
        with users_output(), _refusing(setting, module):
            yield
    except BaseException as error:
        end_stray(pid, error)
        raise
    end_stray(pid, None)


@contextmanager
def _refusing(setting: str, module: str) -> Iterator[None]:
    dotted = module.partition(":")[0].removesuffix(".py").removeprefix("./").replace("/", ".")
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
        if isinstance(error, MemoryError):
            raise  # a launch without memory reports that in a line, without a traceback
        if dotted != module:
            raise ConfigurationError(setting, module, f"name the module; did you mean {dotted}?") from None
        if isinstance(error, ModuleNotFoundError):
            problem = f"{setting}: {module}; {text_of(error)}"
            own = (error.name or "").partition(".")[0] == module.partition(".")[0]
            location = "in the configuration file's directory" if own else f"installed in {sys.prefix}"
            raise _refusal(error, problem, f"; is it {location}?") from None
        reason = describe(error)[:MOST_CHARACTERS]
        raise _refusal(error, f"{setting}: {module}; importing it raised {reason}") from None


def _refusal(error: BaseException, problem: str, hint: str = "") -> ConfigurationError:
    """The ConfigurationError for ``error``, with its traceback. It says where in the user's code it was raised."""
    frames = user_frames(error, installed=False)
    location = f"{frames[-1].tb_frame.f_code.co_filename}:{frames[-1].tb_lineno}" if frames else ""
    if isinstance(error, SyntaxError) and error.filename:
        location = f"{error.filename}:{error.lineno}"
    problem = problem if location in problem else f"{problem}, at {location}"
    refusal = ConfigurationError(f"{problem}{hint}")
    refusal.traced = trace(error.with_traceback(frames[0])) if frames else ""
    return refusal


def client_of(settings: Settings) -> SuppliedClient:
    """The redis-py client that the function named by ``client`` returns. ConfigurationError for anything else."""
    from pollconsumer.store.user_client import supplied_client  # it imports redis-py

    name = str(settings.client)
    function = _found(settings, "client", name)
    if not callable(function):
        fix = "name a function that returns a redis-py client"
        raise ConfigurationError(f"client: {name}", f"a {type(function).__name__}", fix)
    return supplied_client(_made("client", name, function), f"client: {name}")


def credentials_of(settings: Settings) -> CredentialProvider:
    """The provider that ``credentials`` names, or the named function returns. ConfigurationError for anything else."""
    name = str(settings.credentials)
    provider = _found(settings, "credentials", name)
    if callable(provider) and (isinstance(provider, type) or not hasattr(provider, "get_credentials")):
        provider = _made("credentials", name, provider)
    if not callable(getattr(provider, "get_credentials", None)):
        fix = "name a redis-py CredentialProvider, or what makes one"
        raise ConfigurationError(f"credentials: {name}", f"a {type(provider).__name__}", fix)
    found: CredentialProvider = provider
    return found


def _made(setting: str, name: str, function: Callable[[], Any]) -> Any:
    """The return value of the function ``name``. ConfigurationError if it raises, or is a coroutine function."""
    try:
        with users_output(), answering():
            made = called(function)
    except Exception as error:
        reason = redacted(describe(error))[:MOST_CHARACTERS]
        raise _refusal(error, f"{setting}: {name}; calling it raised {reason}") from None
    if iscoroutine(made):
        made.close()  # else Python warns that it was never awaited
        raise ConfigurationError(f"{setting}: {name}", "a coroutine function", "name a plain one")
    return made


def _found(settings: Settings, setting: str, name: str) -> Any:
    """The object that ``name``, ``module:object``, means. ConfigurationError if it is missing, or its import fails."""
    module, _, attribute = name.partition(":")
    find_modules(settings, [module])
    with importing(setting, module):
        imported = import_module(module)
    if not hasattr(imported, attribute):
        raise ConfigurationError(setting, name, f"{module} has no {attribute}")
    return getattr(imported, attribute)
