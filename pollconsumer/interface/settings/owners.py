"""Finds whose the configuration, the modules and the embedded store are, and warns if that is not one user."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from pollconsumer.core.errors import shown
from pollconsumer.interface.logs.logs import NEWS, STANDING, about, damped_by, log
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.system.own_files import OwnFiles, modes_mean_nothing

REMEDY = "share one: set data to a directory of a group's (docs/two-users.md), or store to the URL of a Redis"


def owner_of(path: Path) -> str:
    """The name of the path's user, or its number."""
    import pwd

    user = path.stat().st_uid
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user id {user}"


def is_others(path: Path) -> bool:
    """Whether the path belongs to neither this user nor root. False where it is missing, or there are no users."""
    try:
        return path.stat().st_uid not in (0, os.geteuid()) and not modes_mean_nothing(path)
    except OSError:
        return False


def others_among(paths: Iterable[Path | None]) -> Iterator[tuple[Path, str]]:
    """The paths that belong to others, each with its owner."""
    for path in paths:
        if path is not None and is_others(path):
            yield path, owner_of(path)


def another_store(settings: Settings) -> tuple[str, str] | None:
    """The owner of another's configuration that leads each user to an embedded store of their own, and where this
    user's store is; None for any other configuration."""
    if not settings.is_embedded or settings.data is not None or settings.config is None:
        return None
    if not is_others(settings.config):
        return None
    return owner_of(settings.config), str(settings.data_directory())


def warn_of_another_store(settings: Settings, files: OwnFiles | None = None) -> None:
    """Warn of `another_store`; damped across launches, and across processes that enqueue."""
    found = another_store(settings)
    if found is None:
        return
    text = f"configuration belongs to {shown(found[0])}, and leads to this user's own store: {found[1]}; {REMEDY}"
    if damped_by() is not None:
        log.warning("%s", text, extra=about("another's configuration", kind=STANDING))
        return
    from pollconsumer.core.notation.digests import sha256
    from pollconsumer.interface.logs.streaks import LaunchStreaks  # few configurations are another user's

    name = sha256(f"producer\n{settings.config}\n{settings.namespace}".encode())[:32]
    line = LaunchStreaks(name, files or settings.state_files()).meet(STANDING, "another's configuration", text)
    if line is not None:
        log.warning("%s", line, extra=NEWS)
