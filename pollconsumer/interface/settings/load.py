"""Loads settings, from the cache where the file has not changed.

There are 1,440 launches a day, and files rarely change. Reading one needs pydantic, whose import costs more than the
rest of the start; so the values of a valid file without secrets, and the declared fields, are kept in the user's cache
directory. By these fields the variables of the environment, which are never kept, are laid over the values; where the
file or pollconsumer has changed, or a variable is invalid, ``sources.py`` is imported lazily.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pollconsumer.core.errors import ConfigurationError, PermissionDenied
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.named_files import open_plain
from pollconsumer.interface.settings.cache import key_of, recalled, remember
from pollconsumer.interface.settings.environment import overrides, put
from pollconsumer.interface.settings.model import Settings, changed, declared_fields, has_secrets, settings_of
from pollconsumer.interface.settings.names import CONFIG_VARIABLE, PREFIX
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


def load_settings(config: Path | None = None, *, store: str | None = None, namespace: str | None = None) -> Settings:
    """Settings from flags (the arguments), environment, file and defaults, in this precedence.

    ConfigurationError (78) for an invalid file, variable, key, value or ``store``; UsageError (2) for an invalid
    ``namespace``; PermissionDenied (77) for a file that may not be read.
    """
    variables = _variables()
    for name in (name for name, value in variables.items() if not value):
        log.debug("%s is empty: taken as unset", name)
    settings = _load(config, variables)
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


def _load(config: Path | None, variables: Mapping[str, str]) -> Settings:
    """The settings of file and environment: without pydantic, if the file was read before and the variables are
    valid."""
    path, content = _find(config, variables)
    key = key_of("file", os.fspath(path or ""), content)
    if (known := recalled(key)) is not None:
        with suppress(AttributeError, KeyError, TypeError, ValueError, RecursionError):
            return _laid_over(known, variables, path)
    from pollconsumer.interface.settings.declaration.sources import read

    source = path if content else None
    with suppress(ConfigurationError, ValueError):  # raised again below, unless variables mend the file
        values = read(source, {})
        alone = settings_of(values, *_place(path))
        check_together(alone)
        # The file is read twice on the way here, and must not be kept if it changed in between.
        if not has_secrets(alone) and key == key_of("file", os.fspath(path or ""), _find(config, variables)[1]):
            remember(key, values)
        return _laid_over(values, variables, path)
    settings = settings_of(read(source, variables), *_place(path))
    check_together(settings)
    return settings


def _laid_over(values: dict[str, Any], variables: Mapping[str, str], path: Path | None) -> Settings:
    """The settings of a file's ``values``, which were checked before, overridden by ``variables``. ValueError for an
    invalid variable; ConfigurationError for an unknown one, or for values that do not go together."""
    entries = set()
    for place, setting, value in overrides(values, variables, declared_fields()):
        put(values, place, value if setting is None else setting.accepted(value))
        entries.add(place[:2])
    settings = settings_of(values, *_place(path))
    if entries:
        check_together(settings, entries=entries)
    return settings


def _place(path: Path | None) -> tuple[Path, Path | None]:
    return path.parent if path else Path.cwd(), path


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
    """Settings of the file and defaults, without environment and cache. ConfigurationError as by `load_settings`."""
    from pollconsumer.interface.settings.declaration.sources import read

    path, content = _find(config, {})
    settings = settings_of(read(path if content else None, {}), *_place(path))
    check_together(settings)
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


def _find(config: Path | None, variables: Mapping[str, str]) -> tuple[Path | None, bytes]:
    """The configuration file, absolute, and its bytes; None and empty if there is none."""
    named = config or variables.get(CONFIG_VARIABLE) or None
    path = absolute(Path(named or "config.toml"))
    try:
        content = _content(path)
        if variables.get(TRUST_VARIABLE, "").lower() != TRUSTED:
            refuse_writable_file(path)
            if named is None:
                refuse_found_of_others(path)
        return path, content
    except (FileNotFoundError, NotADirectoryError):
        if named is None:
            return None, b""
        raise ConfigurationError("configuration file not found", path, "create it, or name another one") from None
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


def _content(path: Path) -> bytes:
    """The bytes of a plain file; none of ``/dev/null``. OSError for anything else."""
    try:
        descriptor = open_plain(path)
    except OSError:
        if path.samefile(os.devnull):
            return b""
        raise
    with os.fdopen(descriptor, "rb") as file:
        return file.read()
