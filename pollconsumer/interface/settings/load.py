"""Loads settings, from a cache if they have not changed.

There are 1,440 launches a day, and settings rarely change. Validating them needs pydantic, whose import costs more than
the rest of the start; so valid ones are cached in the user's cache directory, and ``sources.py`` is imported lazily,
when the file, the environment or pollconsumer has changed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pollconsumer.core.errors import ConfigurationError, PermissionDenied
from pollconsumer.core.notation.digests import sha256
from pollconsumer.core.notation.redaction import redacted
from pollconsumer.interface.logs import log
from pollconsumer.interface.named_files import open_plain
from pollconsumer.interface.settings.model import CONFIG_VARIABLE, PLACE, PREFIX, SECTIONS, TABLES, VERSION, Settings
from pollconsumer.interface.settings.rules import check_strict, validate
from pollconsumer.interface.settings.writable import refuse_found_of_others, refuse_writable_file
from pollconsumer.runtime.own_files import OwnFiles, cache_directory

READERS = ("model.py", "rules.py", "values.py", "sources.py", "environment.py")
"""Modules that define settings and their validation: a change of one invalidates the cache."""
MESSAGE_VARIABLE = f"{PREFIX}MESSAGE_ID"
"""Variables for programs that run for a message; not settings, if a program calls pollconsumer."""
HEADER_PREFIX = f"{PREFIX}HEADER_"
ABOUT_MESSAGE = frozenset(
    PREFIX + name
    for name in ("HANDLER", "QUEUE", "ATTEMPT", "GENERATION", "FENCE", "IDEMPOTENCY_KEY", "DEADLINE", "SECONDS_LEFT")
)
TRUST_VARIABLE, TRUSTED = f"{PREFIX}TRUST_WRITABLE", "true"
"""Only in the environment: a file that others may write cannot vouch for itself."""
DJANGO_VARIABLE = "DJANGO_SETTINGS_MODULE"
REMEMBERED = 8
"""Maximum number of cached sets of values."""


def load_settings(config: Path | None = None, *, store: str | None = None, namespace: str | None = None) -> Settings:
    """Settings from flags (the arguments), environment, file and defaults, in this precedence.

    ConfigurationError (78) for an invalid file, variable, key, value or ``store``; UsageError (2) for an invalid
    ``namespace``; PermissionDenied (77) for a file that may not be read.
    """
    variables = _variables()
    for name in (name for name, value in variables.items() if not value):
        log.debug("%s is empty: taken as unset", name)
    path, content = _find(config, variables)
    key = _key(path, content, variables)
    settings = _recalled(key, path) if key else None
    if settings is None:
        from pollconsumer.interface.settings.sources import read

        settings = _assemble(read(path if content else None, variables), path)
        validate(settings)
        # The file is read twice on the way here, and must not be cached if it changed in between.
        if key and not _has_secrets(settings) and key == _key(*_find(config, variables), variables):
            _remember(key, settings)
    flags = {name: value for name, value in (("store", store), ("namespace", namespace)) if value is not None}
    if flags:
        settings = replace(settings, **flags)  # type: ignore[arg-type]  # both are str
        validate(settings, flags)
    check_strict(settings)
    return settings


def _has_secrets(settings: Settings) -> bool:
    if settings.dashboard.token is not None or settings.pings.url is not None:
        return True
    if any(recurrence.ping is not None for recurrence in settings.recurrences.values()):
        return True
    return redacted(settings.store) != settings.store


def django_site() -> str | None:
    """The settings module of the Django site whose tasks are handlers, if the environment names one."""
    return os.environ.get(DJANGO_VARIABLE) or None


def environment_in_force() -> dict[str, str]:
    """The variables that a launch needs: those that settings were taken from, without the one that names the file, and
    that of the Django site."""
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
    """Settings of that file and defaults, without environment and cache. ConfigurationError as with `load_settings`."""
    from pollconsumer.interface.settings.sources import read

    path, content = _find(config, {})
    settings = _assemble(read(path if content else None, {}), path)
    validate(settings)
    check_strict(settings)
    return settings


def with_flags(settings: Settings, section: Literal["consumer", "mover"], flags: Mapping[str, object]) -> Settings:
    """``settings`` overridden by ``flags`` (setting → value), except None and (). Errors as those of ``validate``."""
    given: dict[str, Any] = {name: value for name, value in flags.items() if value not in (None, ())}
    if not given:
        return settings
    changed: Any = replace(getattr(settings, section), **given)
    settings = replace(settings, **{section: changed})
    validate(settings, [f"{section}.{name}" for name in given])
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
    """ConfigurationError if the current directory is gone."""
    try:
        return path.absolute()
    except OSError as error:
        raise ConfigurationError("current directory", error.strerror, "start in one that exists") from None


def _content(path: Path) -> bytes:
    """OSError, also for what is no plain file, but for the one that is always empty."""
    try:
        descriptor = open_plain(path)
    except OSError:
        if path.samefile(os.devnull):
            return b""
        raise
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def _assemble(values: dict[str, Any], path: Path | None) -> Settings:
    """Settings from plain ``values``, as read or, with lists for tuples, as cached. KeyError, TypeError or ValueError
    if they do not fit."""
    sections: dict[str, Any] = {name: kind(**_typed(kind, values[name])) for name, kind in SECTIONS.items()}
    for name, kind in TABLES.items():
        sections[name] = {key: kind(**_typed(kind, entry)) for key, entry in values[name].items()}
    plain = {name: value for name, value in values.items() if name not in sections}
    place = {"directory": path.parent if path else Path.cwd(), "config": path}
    return Settings(**_typed(Settings, plain), **sections, **place)  # type: ignore[arg-type]  # _typed has checked them


def _typed(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """``values`` with the types of the dataclass ``kind``: JSON has neither tuples nor enums. Another version, whose
    launch starts a process of this one while it is installed, may write settings that this one does not know."""
    known = {each.name: each for each in fields(kind)}
    words = {name: type(each.default) for name, each in known.items() if isinstance(each.default, StrEnum)}
    taken = {name: value for name, value in values.items() if name in known}
    typed = {name: tuple(value) if isinstance(value, list) else value for name, value in taken.items()}
    return typed | {name: word(values[name]) for name, word in words.items() if name in values}


def _key(path: Path | None, content: bytes, variables: Mapping[str, str]) -> str | None:
    """A digest of everything that settings depend on, as a file name; None if it cannot be determined or cached."""
    try:
        ours = [Path(__file__).with_name(name).stat().st_mtime_ns for name in READERS]
    except OSError:
        return None
    depends = (VERSION, sys.version, ours, os.fspath(path or ""), content, sorted(variables.items()))
    return sha256(repr(depends).encode())


def _recalled(key: str, path: Path | None) -> Settings | None:
    """The cached settings of ``key``; None if there are none, or others may have written them."""
    directory = cache_directory()
    content = None if directory is None else OwnFiles([directory]).read(f"{key}.json")
    digest, _, cached = (content or b"").partition(b"\n")
    try:
        return _assemble(json.loads(cached), path) if digest == sha256(cached).encode() else None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None


def _remember(key: str, settings: Settings) -> None:
    """Cache ``settings``, if possible."""
    directory = cache_directory()
    cached = json.dumps(as_values(settings)).encode()
    content = b"%b\n%b" % (sha256(cached).encode(), cached)
    if directory is None or not OwnFiles([directory]).write(f"{key}.json", content):
        return
    with suppress(OSError):
        entries = sorted(directory.glob("*.json"), key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
        for entry in entries[REMEMBERED:]:
            entry.unlink(missing_ok=True)


def as_values(settings: Settings) -> dict[str, Any]:
    """``settings`` as JSON for ``from_values``, without their place."""
    return {name: value for name, value in asdict(settings).items() if name not in PLACE}


def from_values(values: dict[str, Any], directory: Path, config: Path | None) -> Settings:
    return replace(_assemble(values, directory / "config.toml"), config=config)
