"""Finds and loads settings: flags take precedence over the environment, and the environment over the file."""

from __future__ import annotations

import os
import re
import stat
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pollconsumer.core.errors import ConfigurationError, PermissionDenied, PollConsumerError, StoreUnreachable
from pollconsumer.core.notation.text import printable
from pollconsumer.interface.command_line import values_of
from pollconsumer.interface.logs.logs import PERSISTENT, about, log
from pollconsumer.interface.named_files import open_regular
from pollconsumer.interface.settings.model import SECTIONS, TABLES, Settings, changed, declared_fields, settings_of
from pollconsumer.interface.settings.names import CONFIG_VARIABLE, OVERRIDING_VARIABLE, PREFIX, variable
from pollconsumer.interface.settings.owners import refuse_found_of_others, refuse_writable_file
from pollconsumer.interface.settings.reading import check_connection, check_given, check_strict, check_together, read
from pollconsumer.runtime.system.own_files import EMBEDDED, modes_mean_nothing

NAME = "config.toml"
MOST_BYTES = 1 << 20
NAMED_BY = "--config names one, 'pollconsumer init project' begins one"
MESSAGE_VARIABLE = f"{PREFIX}MESSAGE_ID"
"""pollconsumer sets this variable and those below for a program that handles a message. They are no settings."""
HEADER_PREFIX = f"{PREFIX}HEADER_"
ABOUT_MESSAGE = frozenset(
    PREFIX + name
    for name in ("HANDLER", "QUEUE", "ATTEMPT", "GENERATION", "FENCE", "IDEMPOTENCY_KEY", "DEADLINE", "SECONDS_LEFT")
)
TRUST_VARIABLE, TRUSTED = f"{PREFIX}TRUST_WRITABLE", "true"
"""Read only from the environment: a file that others may write cannot declare itself trusted."""
DJANGO_VARIABLE = "DJANGO_SETTINGS_MODULE"
NO_HANDLERS = "no handlers: messages are kept, not handled; name the modules as handlers in the configuration"
SAYING_WHERE = tuple(map(variable, ("store", "namespace", "data", "client")))
"""Variables that say where messages go, even without a configuration file."""


class Beside(NamedTuple):
    """The directories where the search for an application's configuration begins. ``owner``: the user who owns the
    application's module there, whose code this process runs anyway."""

    directories: tuple[Path, ...]
    owner: int


def beside_module(file: str | None) -> Beside | None:
    """Where to look for a module's configuration: first beside a link to its file, if there is one, then beside the
    file; for an installed module, which belongs to no project, also in the current directory. None without a file, as
    in a notebook."""
    if file is None:
        return None
    module = Path(file)
    try:
        found = [module.parent, module.resolve().parent]
        if "-packages" in module.parent.as_posix():
            found.append(Path.cwd())
        return Beside(tuple(dict.fromkeys(found)), module.stat().st_uid)
    except OSError:
        return None


def name_file(error: Exception, config: Path | None, given: object = None) -> None:
    """If ``error`` is about a setting in the file ``config``, put the file's name in front of its text. Other errors,
    as about a variable or a flag, stay as they are. ``given``: the value of the flag ``--store``, if it is given."""
    table = declared_fields()
    keys = "|".join(filter(None, (*table.section(""), *table.sections, *table.tables)))
    if config is None or type(error) is not ConfigurationError:
        return
    found = re.match(rf"unknown key\b|({keys})(\.\w+)?\b(?=[.:,])", str(error))
    if (
        found is None
        or (found[1] and os.environ.get(variable(found[0])))
        or (found[1] == "store" and given is not None)
    ):
        return
    error.args = (printable(f"{_shown(config)}: {error}"),)


def name_source(error: Exception, settings: Settings, given: object = None) -> None:
    """Call `name_file`. If the server was never reached, and the error names no fix, say what gave its address."""
    name_file(error, settings.config, given)
    if type(error) is not StoreUnreachable or error.sent or settings.is_embedded:
        return
    if not re.search(r"^store unreachable: .*; it says: [^;]*$", str(error)):
        return
    key, source = "store" if settings.client is None else "client", "--store"
    if given is None:
        source = variable(key) if os.environ.get(variable(key)) else f"{key} in {_shown(settings.config)}"
    error.args = (printable(f"{error}; see whether the server is started, and the address right: {source} names it"),)


def _shown(config: Path | None) -> Path | None:
    with suppress(OSError):  # the current directory is gone
        return config.relative_to(Path.cwd()) if config and config.parent == Path.cwd() else config
    return config


def candidates(directory: Path) -> Iterator[Path]:
    """The paths at which the configuration of ``directory`` may be, nearest first."""
    yield directory / NAME
    if (above := found_above(directory)) is not None:
        yield above


def found_above(directory: Path) -> Path | None:
    """The nearest ``config.toml`` in a directory above ``directory`` that has a key of pollconsumer; None if there is
    none. The search ends before the first directory that others may write, since anybody could put a file there."""
    for parent in directory.parents:
        try:
            # GUARD no file is found in a directory that others may write, nor above it
            if parent.stat().st_mode & stat.S_IWOTH and not modes_mean_nothing(parent):
                return None
            if (path := parent / NAME).is_file() and _is_ours(path):
                return path
        except OSError:  # this user may not read it
            continue
    return None


def _is_ours(path: Path) -> bool:
    """Whether the file ``path`` has one of our keys at its top level. OSError if it cannot be read.

    Other programs, such as Hugo, have a ``config.toml``, too. The file may be invalid TOML, so that its error is
    reported later."""
    with os.fdopen(open_regular(path), "rb") as file:
        text = file.read(MOST_BYTES).decode("utf-8-sig", "replace")
    keys = [key for key in declared_fields().section("") if key]
    tables = "|".join((*filter(None, SECTIONS), *TABLES))
    top, _, _ = f"\n{text}".partition("\n[")
    key = rf"^[ \t]*[\"']?({'|'.join(keys)})[\"']?[ \t]*=|^[ \t]*({tables})[ \t]*\.[^=]+="
    table = rf"^[ \t]*\[[ \t]*[\"']?({tables})[\"']?[ \t]*[\].]"
    return bool(re.search(key, top, re.MULTILINE) or re.search(table, text, re.MULTILINE))


def refuse_nowhere(settings: Settings) -> None:
    """Raise ConfigurationError if there is no configuration and the user has chosen no store: nobody would look for
    messages in the default one."""
    # GUARD nothing is changed in a store that nobody named
    if settings.nowhere is not None:
        raise ConfigurationError(settings.nowhere, fix=NAMED_BY)


def other_config(other: Path, settings: Settings) -> str:
    """The line about an application that reads the configuration ``other``, unlike the command with ``settings``."""
    here = settings.config or "the environment"
    return (
        f"the application beside {other} reads that file where it enqueues; this command reads {here}: name one of both"
    )


def load_settings(
    config: Path | None = None, *, store: str | None = None, namespace: str | None = None, beside: Beside | None = None
) -> Settings:
    """Settings from flags (``store``, ``namespace``), environment, file and defaults, in this precedence. ``config``:
    the file. If neither it nor a variable names one, the search begins at ``beside``, else in the current directory.

    ConfigurationError (78) for an invalid file, variable, key, value or ``store``. UsageError (2) for an invalid
    ``namespace``. PermissionDenied (77) for a file that this user may not read."""
    variables = _variables()
    for name in (name for name, value in variables.items() if not value):
        log.debug("%s is empty: taken as unset", name)
    file = _find(config, variables, beside)
    if store is None and OVERRIDING_VARIABLE in os.environ:
        store = variables.get(variable("store")) or None
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
        if store is not None:  # the file's settings for another store do not count
            settings = changed(settings, client=None)
        if store == EMBEDDED:
            settings = changed(settings, credentials=None)
        check_given(settings, given, given)
    check_strict(settings)
    check_connection(settings)
    return settings


def _load(file: _ConfigFile, variables: Mapping[str, str]) -> Settings:
    """The settings of file and environment. Settings that must fit the store are not checked against it yet."""
    settings = settings_of(read(file.path, file.content, variables), file.directory, file.path)
    check_together(settings)
    return settings


def django_site() -> str | None:
    """The settings module of a Django site, if the environment names one; the site's tasks are handlers."""
    return os.environ.get(DJANGO_VARIABLE) or None


def environment_in_force() -> dict[str, str]:
    """Variables of this process that a platform must set for launches, too: settings, Django site, but no file name."""
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
    """The settings of the file and defaults, without those of the environment, which may name the store for which the
    file is meant. The errors of `load_settings`, but for settings that do not fit the store."""
    return _load(_find(config, _variables()), {})


def with_flags(settings: Settings, section: Literal["consumer", "mover"], flags: Mapping[str, object]) -> Settings:
    """``settings`` with the values of ``flags`` (setting → value). None and () stand for a flag that is not given.
    Raises the errors of `check_given`."""
    given: dict[str, Any] = {name: value for name, value in flags.items() if value not in (None, ())}
    if not given:
        return settings
    settings = changed(settings, **{section: changed(getattr(settings, section), **given)})
    paths = [f"{section}.{name}" for name in given]
    check_given(settings, paths, paths)
    return settings


class _ConfigFile(NamedTuple):
    """The absolute path of the configuration file, and its bytes; None and empty if there is no file. ``directory``:
    that of the file, or the one in which the search began."""

    path: Path | None
    content: bytes
    directory: Path


def _find(config: Path | None, variables: Mapping[str, str], beside: Beside | None = None) -> _ConfigFile:
    """The file that ``config`` or a variable names, else the first in or above ``beside`` or the current directory."""
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
    """The configuration file that `load_settings` would read. None if there is none, or if it would be refused."""
    try:
        return _find(config, _variables(), beside).path
    except PollConsumerError:
        return None


def _content(path: Path, trusted: bool) -> bytes:
    """The bytes of a configuration file. FileNotFoundError or NotADirectoryError if it does not exist. The errors of
    `load_settings` if it must not be read."""
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
    """The bytes of a plain file; empty for ``/dev/null``. OSError for anything else."""
    try:
        descriptor = open_regular(path)
    except OSError:
        if path.samefile(os.devnull):
            return b""
        raise
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def warn_of_former_names(settings: Settings) -> None:
    """Warn of each former name of a setting or flag in use. Like any warning it is damped across launches."""
    for former, name in former_names(settings.config, os.environ, sys.argv[1:]):
        text = "%s is a former name, and goes with a later version: use %s"
        log.warning(text, former, name, extra=about("former name", former, kind=PERSISTENT))


def former_names(
    config: Path | None, variables: Mapping[str, str], arguments: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield each former name in the file, in ``variables`` and in ``arguments``, with its present name."""
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
    """Whether the file has ``key`` in ``section``. False if the file no longer exists."""
    try:
        content = b"" if config is None else config.read_bytes()
        if key.encode() not in content:
            return False
        found: Any = tomllib.loads(content.decode())
    except (OSError, ValueError):
        return False
    return key in (found.get(section, {}) if section else found)
