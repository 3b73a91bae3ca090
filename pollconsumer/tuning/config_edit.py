"""Changes keys of the configuration file, and leaves its comments and its order as they are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pollconsumer.core.errors import CannotCreate, ConfigurationError, PermissionDenied
from pollconsumer.interface.named_files import replacement
from pollconsumer.interface.settings.model import Settings, changed
from pollconsumer.interface.settings.names import variable
from pollconsumer.interface.settings.rules import check_given


def edit_consumer(settings: Settings, values: Mapping[str, float | int | str], read: Mapping[str, Any]) -> Path:
    """Write ``values`` into the section ``consumer`` of the file of ``settings``. Returns the file's path. ``read``:
    the values as numbers.

    ConfigurationError if there is no file, a variable overrides a key, or the settings would be invalid;
    PermissionDenied or CannotCreate if the file cannot be replaced.
    """
    if settings.config is None:
        raise ConfigurationError("no configuration file", "config.toml", "create it, or name another with --config")
    for name in map(variable, (f"consumer.{key}" for key in values)):
        if given := os.environ.get(name):
            raise ConfigurationError(name, given, "it overrides the file: unset it, and apply again")
    check_given(changed(settings, consumer=changed(settings.consumer, **read)), [f"consumer.{key}" for key in read])
    path = settings.config.resolve()
    text = path.read_bytes().decode()
    ends = "\r\n" if "\r\n" in text else "\n"
    edited = _edited(text.replace("\r\n", "\n"), values).replace("\n", ends)
    _replace(path, edited.encode())
    return settings.config


def _edited(text: str, values: Mapping[str, float | int | str]) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    if "consumer" not in document:
        document["consumer"] = tomlkit.table()
    section = document["consumer"]
    for key, value in values.items():
        section[key] = value
    return tomlkit.dumps(document)


def _replace(path: Path, content: bytes) -> None:
    """Replace the file atomically. It keeps its mode and, if possible, its owner."""
    try:
        found = path.stat()
        with replacement(path, found.st_mode & 0o7777) as file:
            if found.st_uid != os.geteuid() or found.st_gid != os.getegid():
                os.fchown(file.fileno(), found.st_uid, found.st_gid)
            file.write(content)
    except PermissionError:
        raise PermissionDenied(
            "configuration file", path, "permission denied: let this user write its directory"
        ) from None
    except OSError as error:
        raise CannotCreate("configuration file", path, error.strerror or "check its file system") from None
