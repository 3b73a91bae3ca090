"""Files and directories that decide what is run as us, and that others may write: refused, not used without a word.

Group-writable ones are left alone, since a umask of 002 makes them; ``check`` names those.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.runtime.file_systems import modes_mean_nothing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ACCEPT = "or set POLLCONSUMER_TRUST_WRITABLE=true"


def refuse_writable_file(path: Path) -> None:
    """ConfigurationError for a configuration that others may write or replace. In a sticky directory, as /tmp is, they
    may not replace what is ours or root's."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        return  # /dev/null, or a pipe of a shell, which is nobody else's
    if found.st_mode & stat.S_IWOTH and not modes_mean_nothing(path):
        raise ConfigurationError("configuration file is writable by others", path, f"chmod o-w it, {ACCEPT}")
    if loose := _directory_to_replace_it_in(path):
        raise ConfigurationError("configuration's directory is writable by others", loose, f"chmod o-w it, {ACCEPT}")


def refuse_writable_modules(directory: Path, modules: Iterable[str] = ()) -> None:
    """ConfigurationError for a directory of modules into which others may put one: it is imported before others of
    that name, sticky or not. And for one of ``modules`` in it, or its package, that others may write."""
    if loose := directory if _others_may_write(directory) else _directory_to_replace_it_in(directory):
        raise ConfigurationError("handlers' directory is writable by others", loose, f"chmod o-w it, {ACCEPT}")
    for module in modules:
        place = directory
        for name in module.split("."):
            place /= name
            for path in (place, place / "__init__.py", place.with_name(f"{name}.py")):
                if _others_may_write(path):
                    raise ConfigurationError("handlers' module is writable by others", path, f"chmod o-w it, {ACCEPT}")


def _directory_to_replace_it_in(path: Path) -> Path | None:
    """The nearest directory in which others may put something else in place of ``path``, or of a directory on the way
    to it; where links are, and where they lead."""
    for entry in (path.absolute(), path.resolve()):
        for directory in entry.parents:
            mode = directory.stat().st_mode
            kept = mode & stat.S_ISVTX and entry.lstat().st_uid in (0, os.geteuid())
            if mode & stat.S_IWOTH and not kept and not modes_mean_nothing(directory):
                return directory
            entry = directory
    return None


def _others_may_write(path: Path) -> bool:
    """False where there is none."""
    try:
        return bool(path.stat().st_mode & stat.S_IWOTH) and not modes_mean_nothing(path)
    except (OSError, ValueError):
        return False


def group_writable(*paths: Path | None) -> list[Path]:
    """Those of ``paths`` that a group may write."""
    return [path for path in paths if path is not None and _is_group_writable(path.stat().st_mode)]


def _is_group_writable(mode: int) -> bool:
    return bool(mode & stat.S_IWGRP) and (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
