"""Loads settings: of flags, of the environment, of the file, in this precedence."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pollconsumer.core.errors import ConfigurationError, PermissionDenied, PollConsumerError
from pollconsumer.interface.command_line import values_of
from pollconsumer.interface.logs.logs import STANDING, about, log
from pollconsumer.interface.named_files import open_plain
from pollconsumer.interface.settings.config_search import NAME, Beside, candidates, name_file
from pollconsumer.interface.settings.fields import declared_fields
from pollconsumer.interface.settings.model import Settings, changed, settings_of
from pollconsumer.interface.settings.names import CONFIG_VARIABLE, PREFIX, variable
from pollconsumer.interface.settings.reading import read
from pollconsumer.interface.settings.rules import check_connection, check_given, check_strict, check_together
from pollconsumer.interface.settings.writable import refuse_found_of_others, refuse_writable_file
from pollconsumer.runtime.system.own_files import EMBEDDED

MESSAGE_VARIABLE = f"{PREFIX}MESSAGE_ID"
"""Set for a program that handles a message, with the variables below: no settings, where it calls pollconsumer."""
HEADER_PREFIX = f"{PREFIX}HEADER_"
ABOUT_MESSAGE = frozenset(
    PREFIX + name
    for name in ("HANDLER", "QUEUE", "ATTEMPT", "GENERATION", "FENCE", "IDEMPOTENCY_KEY", "DEADLINE", "SECONDS_LEFT")
)
TRUST_VARIABLE, TRUSTED = f"{PREFIX}TRUST_WRITABLE", "true"
"""Read from the environment alone: a file that others may write cannot vouch for itself."""
DJANGO_VARIABLE = "DJANGO_SETTINGS_MODULE"
NO_HANDLERS = "no handlers: messages are kept, not handled; name the modules as handlers in the configuration"
SAYING_WHERE = tuple(map(variable, ("store", "namespace", "data", "client")))
"""Variables that say where messages go, without a configuration."""


def load_settings(
    config: Path | None = None,
    *,
    store: str | None = None,
    namespace: str | None = None,
    beside: Beside | None = None,
) -> Settings:
    """Settings from flags (the arguments), environment, file and defaults, in this precedence. ``beside``: where the
    search for a file begins that nobody names; by default in the current directory.

    ConfigurationError (78) for an invalid file, variable, key, value or ``store``; UsageError (2) for an invalid
    ``namespace``; PermissionDenied (77) for a file that may not be read.
    """
    variables = _variables()
    for name in (name for name, value in variables.items() if not value):
        log.debug("%s is empty: taken as unset", name)
    file = _find(config, variables, beside)
    try:
        settings = _checked(_load(file, variables), store, namespace)
    except ConfigurationError as error:
        name_file(error, file.path, store)
        raise
    if file.path is None and store is None and namespace is None and not any(map(variables.get, SAYING_WHERE)):
        settings.nowhere = f"no {NAME} in {file.directory} or above it"
    return settings


def _checked(settings: Settings, store: str | None, namespace: str | None) -> Settings:
    given = {name: value for name, value in (("store", store), ("namespace", namespace)) if value is not None}
    if given:
        settings = changed(settings, **given)
        if store is not None:  # what the file says of another one does not hold
            settings = changed(settings, client=None)
        if store == EMBEDDED:
            settings = changed(settings, credentials=None)
        check_given(settings, given, given)
    check_strict(settings)
    check_connection(settings)
    return settings


def _load(file: _ConfigFile, variables: Mapping[str, str]) -> Settings:
    """The settings of file and environment, before those that depend on the store are compared."""
    settings = settings_of(read(file.path, file.content, variables), file.directory, file.path)
    check_together(settings)
    return settings


def django_site() -> str | None:
    """The settings module of the Django site whose tasks are handlers, if the environment names one."""
    return os.environ.get(DJANGO_VARIABLE) or None


def environment_in_force() -> dict[str, str]:
    """The variables that a launch by a platform needs, too: settings, but not the file's name, and the Django site."""
    ours = {name: value for name, value in _variables().items() if value and name != CONFIG_VARIABLE}
    site = django_site()
    return ours if site is None else ours | {DJANGO_VARIABLE: site}


def _variables() -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    if variables.pop(MESSAGE_VARIABLE, None) is not None:
        about = ABOUT_MESSAGE | {name for name in variables if name.startswith(HEADER_PREFIX)}
        variables = {name: value for name, value in variables.items() if name not in about}
    return variables


def read_settings(config: Path) -> Settings:
    """Settings of the file and defaults, without environment. ConfigurationError as by `load_settings`."""
    settings = _load(_find(config, {}), {})
    check_strict(settings)
    return settings


def with_flags(settings: Settings, section: Literal["consumer", "mover"], flags: Mapping[str, object]) -> Settings:
    """``settings`` overridden by ``flags`` (setting → value); None and () stand for a flag that is not given. Errors as
    of `check_given`."""
    given: dict[str, Any] = {name: value for name, value in flags.items() if value not in (None, ())}
    if not given:
        return settings
    settings = changed(settings, **{section: changed(getattr(settings, section), **given)})
    paths = [f"{section}.{name}" for name in given]
    check_given(settings, paths, paths)
    return settings


class _ConfigFile(NamedTuple):
    """The configuration file, absolute, and its bytes; None and empty if there is none. ``directory``: of the file,
    else the one where the search began."""

    path: Path | None
    content: bytes
    directory: Path


def _find(config: Path | None, variables: Mapping[str, str], beside: Beside | None = None) -> _ConfigFile:
    """The file that is named, else the one that is found from ``beside`` on, by default the current directory."""
    trusted = variables.get(TRUST_VARIABLE, "").lower() == TRUSTED
    if named := config or variables.get(CONFIG_VARIABLE):
        path = absolute(Path(named))
        try:
            return _ConfigFile(path, _content(path, trusted), path.parent)
        except (FileNotFoundError, NotADirectoryError):
            raise ConfigurationError("configuration file not found", path, "create it, or name another one") from None
    starts = (absolute(Path()),) if beside is None else beside.directories
    for path in (path for start in starts for path in candidates(start)):
        with suppress(FileNotFoundError, NotADirectoryError):
            content = _content(path, trusted)
            if not trusted:
                refuse_found_of_others(path, None if beside is None else beside.owner)
            return _ConfigFile(path, content, path.parent)
    return _ConfigFile(None, b"", starts[0])


def find_config(config: Path | None, beside: Beside | None) -> Path | None:
    """The configuration file that `load_settings` would read; None if there is none, or it would be refused."""
    try:
        return _find(config, _variables(), beside).path
    except PollConsumerError:
        return None


def _content(path: Path, trusted: bool) -> bytes:
    """The bytes of a configuration file. FileNotFoundError or NotADirectoryError if nothing is there; errors as of
    `load_settings` for one that must not be read."""
    try:
        content = _bytes_of(path)
        if not trusted:
            refuse_writable_file(path)
        return content
    except (FileNotFoundError, NotADirectoryError):
        raise
    except IsADirectoryError:
        raise ConfigurationError("configuration file is a directory", path, "name the file in it") from None
    except PermissionError:
        raise PermissionDenied("configuration file", path, "permission denied: let this user read it") from None
    except OSError as error:
        raise ConfigurationError("configuration file", path, str(error.strerror)) from None


def absolute(path: Path) -> Path:
    """The absolute ``path``. ConfigurationError if the current directory is gone."""
    try:
        return path.absolute()
    except OSError as error:
        raise ConfigurationError("current directory", error.strerror, "start in one that exists") from None


def _bytes_of(path: Path) -> bytes:
    """The bytes of a plain file; none of ``/dev/null``. OSError for anything else."""
    try:
        descriptor = open_plain(path)
    except OSError:
        if path.samefile(os.devnull):
            return b""
        raise
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def warn_of_former_names(settings: Settings) -> None:
    """Warn of each former name that this command was given; damped across launches, as any warning that repeats."""
    for former, name in former_names(settings.config, os.environ, sys.argv[1:]):
        text = "%s is a former name, and goes with a later version: use %s"
        log.warning(text, former, name, extra=about("former name", former, kind=STANDING))


def former_names(
    config: Path | None, variables: Mapping[str, str], arguments: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the former names that a file, variables and a command line have, each with its present one."""
    for section, keys in declared_fields().sections.items():
        for setting in keys.values():
            if not setting.former:
                continue
            former = f"{section}.{setting.former}".lstrip(".")
            present = f"{section}.{setting.key}".lstrip(".")
            if _is_in(config, section, setting.former):
                yield former, present
            if variables.get(variable(former)):
                yield variable(former), variable(present)
            flag = f"--{setting.former.replace('_', '-')}"
            if setting.flag is not None and any(True for _ in values_of(flag, arguments)):
                yield flag, setting.flag


def _is_in(config: Path | None, section: str, key: str) -> bool:
    """Whether the file has the key; False for one that is gone meanwhile."""
    try:
        content = b"" if config is None else config.read_bytes()
        if key.encode() not in content:
            return False
        found: Any = tomllib.loads(content.decode())
    except (OSError, ValueError):
        return False
    return key in (found.get(section, {}) if section else found)
