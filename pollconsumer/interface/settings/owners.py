"""Finds whose the configuration, the modules and the embedded store are, and warns if that is not one user."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pollconsumer.core.errors import shown
from pollconsumer.core.notation.digests import sha256
from pollconsumer.interface.logs.logs import NEWS, STANDING, about, damped_by, log
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.system.own_files import OwnFiles, modes_mean_nothing

REMEDY = "set data= or store= to share one (documentation: two-users.md)"


class OwnStore(NamedTuple):
    """Whose embedded store this is, where the configuration leads each of its users to one of their own."""

    config: Path
    owner: str
    user: str
    directory: Path
    of_another: bool
    """Whether the configuration belongs to neither this user nor root."""

    @property
    def is_roots(self) -> bool:
        """Whether the configuration is root's, and this user is not root."""
        return not self.of_another and self.owner != self.user

    def __str__(self) -> str:
        if self.of_another:
            return (
                f"{self.config.name} is {self.owner}'s, but you are {self.user} and would use your own server in "
                f"{self.directory}, which {self.owner}'s launches never read; {REMEDY}"
            )
        return (
            f"this store is {self.user}'s alone: {self.directory}; launches of another user of {self.config} read "
            f"that user's own; {REMEDY}"
        )


def owner_of(path: Path) -> str:
    """The name of the path's user, or its number."""
    return user_named(path.stat().st_uid)


def user_named(user: int) -> str:
    """The name of a user, or the number."""
    import pwd

    try:
        return shown(pwd.getpwuid(user).pw_name)
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


def own_store(settings: Settings) -> OwnStore | None:
    """This user's own store, where others who read the configuration have theirs; None for any other configuration,
    such as that of a project of one user."""
    config = settings.config
    if not settings.is_embedded or settings.data is not None or config is None:
        return None
    try:
        owner = config.stat().st_uid
        if (owner == os.geteuid() and not _others_may_read(config)) or modes_mean_nothing(config):
            return None
    except OSError:
        return None
    user = user_named(os.geteuid())
    return OwnStore(config, user_named(owner), user, settings.data_directory(), owner not in (0, os.geteuid()))


def _others_may_read(config: Path) -> bool:
    """Whether users beside its owner can read the file. What is below the user's home is a project of that user."""
    found, home = config.stat(), Path(os.environ.get("HOME") or "/nonexistent")
    if config.is_relative_to(home):
        return False
    group = found.st_mode & stat.S_IRGRP and found.st_gid != os.getegid()
    enter = stat.S_IXOTH | (stat.S_IXGRP if group else 0)
    return bool(group or found.st_mode & stat.S_IROTH) and all(
        each.stat().st_mode & enter for each in config.resolve().parents
    )


def warn_of_another_store(settings: Settings, files: OwnFiles | None = None) -> None:
    """Warn of an `own_store` beside that of the configuration's owner; damped across launches, and across processes
    that enqueue."""
    if settings.config is None or not is_others(settings.config):
        return  # most launches: no names are looked up for them
    found = own_store(settings)
    if found is None:
        return
    text = str(found)
    if damped_by() is not None:
        log.warning("%s", text, extra=about("another's configuration", kind=STANDING))
        return
    from pollconsumer.core.notation.digests import sha256
    from pollconsumer.interface.logs.streaks import LaunchStreaks  # few configurations are another user's

    name = sha256(f"producer\n{settings.config}\n{settings.namespace}".encode())[:32]
    line = LaunchStreaks(name, files or settings.state_files()).meet(STANDING, "another's configuration", text)
    if line is not None:
        log.warning("%s", line, extra=NEWS)


def warn_once_of_own_store(found: OwnStore, files: OwnFiles) -> None:
    """Warn of an `own_store` beside root's configuration, once for each configuration file."""
    name = f"own-store-{sha256(os.fsencode(found.config))[:32]}"
    if files.read(name) is None:
        files.write(name, b"")
        log.warning("%s", found)
