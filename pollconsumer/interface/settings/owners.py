"""Checks who owns, and who may write, the configuration, the files that name code to run, and the store.

A file or directory that determines which code we run is refused if others may write it. Root also refuses files of
other users. A user may run files that another user has deployed; ``check`` shows their owner. A file that its group may
write is accepted, since a umask of 002 creates such files; ``check`` names it."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pollconsumer.core.errors import ConfigurationError, shown
from pollconsumer.core.notation.digests import sha256
from pollconsumer.interface.logs.logs import PERSISTENT, UNDAMPED, LaunchStreaks, about, log
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.system.own_files import OwnFiles, modes_mean_nothing

TRUST = "set POLLCONSUMER_TRUST_WRITABLE=true"
COMPILED, IMPORTED = "__pycache__", (".py", ".pyc", ".so")
REMEDY = "set data= or store= to share one (documentation: embedded-server.md)"


def refuse_writable_file(path: Path) -> None:
    """Raise ConfigurationError for a configuration file that others may write or replace. In a sticky directory such as
    /tmp others cannot replace files that belong to this user or root."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        return  # /dev/null, or a pipe of a shell
    if found.st_mode & stat.S_IWOTH and not modes_mean_nothing(path):
        raise ConfigurationError("configuration file is writable by others", path, _remedy(path))
    if loose := _directory_to_replace_it_in(path):
        raise ConfigurationError("configuration's directory is writable by others", loose, _remedy(loose))


def refuse_found_of_others(path: Path, beside: int | None = None) -> None:
    """Raise ConfigurationError for another user's configuration that this process found without being given its path:
    the file names code to run. Root's files are accepted. ``beside``: the owner of the module at which the search
    began. A file of this owner is accepted, too, since the module's code runs anyway."""
    found = path.stat()
    # GUARD no found configuration of another user's is read, but that of the owner of the module beside it
    if stat.S_ISREG(found.st_mode) and found.st_uid not in (0, os.geteuid(), beside) and not modes_mean_nothing(path):
        fix = "name it to run its code as this user: --config PATH, or POLLCONSUMER_CONFIG"
        raise ConfigurationError("configuration that was found is another user's", path, fix)


def refuse_writable_modules(directory: Path, modules: Iterable[str] = ()) -> None:
    """Raise ConfigurationError if others may put a module into ``directory`` or one of PYTHONPATH. Python would find
    that module first, so a sticky directory is refused, too. Raise it also if others may write, or replace through a
    link, an importable file in ``directory`` or in the packages of ``modules``."""
    if loose := directory if _others_may_write(directory) else _directory_to_replace_it_in(directory):
        raise ConfigurationError("handlers' directory is writable by others", loose, _remedy(loose))
    for entry in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if _others_may_write(Path(entry)):
            raise ConfigurationError("directory of PYTHONPATH is writable by others", entry, _remedy(entry))
    levels = {directory: None}
    for module in modules:
        level = directory
        for name in module.split("."):
            level /= name
            levels[level] = None
    for level in levels:
        if loose := _others_may_decide(level) or _loose_in(level):
            raise ConfigurationError("handlers' module is writable by others", loose, _remedy(loose))


def refuse_writable_program(path: Path, what: str = "command's program") -> None:
    """Raise ConfigurationError for a program that others may write or replace. ``what``: its role, for the error."""
    if loose := _others_may_decide(path) or _directory_to_replace_it_in(path):
        raise ConfigurationError(f"{what} is writable by others", loose, _remedy(loose))


def _loose_in(level: Path | str) -> Path | None:
    """A file in ``level`` that Python can import, compiled or not, and others may write or replace; else None."""
    # If there is none, or this user may not read it, nothing is imported from it.
    with suppress(OSError, ValueError), os.scandir(level) as entries:
        for entry in entries:
            if (entry.name == COMPILED or entry.name.endswith(IMPORTED)) and (loose := _loose(entry)):
                return loose
    return None


def _loose(entry: os.DirEntry[str]) -> Path | None:
    if entry.is_symlink() or _is_loose(entry.stat()):  # a link may lead nowhere
        return _others_may_decide(Path(entry.path))
    return _loose_in(entry.path) if entry.name == COMPILED else None


def _others_may_decide(path: Path) -> Path | None:
    """The path through which others may change the file at ``path``; None if they cannot. It is ``path`` if they may
    write the file. If ``path`` is a link, it may be a directory in which they may replace the link's target."""
    if _others_may_write(path):
        return path
    return _directory_to_replace_it_in(path) if path.is_symlink() and path.exists() else None


def _directory_to_replace_it_in(path: Path) -> Path | None:
    """The nearest directory where others may replace ``path`` or a directory above it, along links, too; else None."""
    for entry in (path.absolute(), path.resolve()):
        for directory in entry.parents:
            found = directory.stat()
            kept = found.st_mode & stat.S_ISVTX and entry.lstat().st_uid in (0, os.geteuid())
            if _is_loose(found) and not kept and not modes_mean_nothing(directory):
                return directory
            entry = directory
    return None


def _others_may_write(path: Path) -> bool:
    """Whether others may write the file at ``path``. False if there is none."""
    try:
        return _is_loose(path.stat()) and not modes_mean_nothing(path)
    except (OSError, ValueError):
        return False


def _is_loose(found: os.stat_result) -> bool:
    """Whether others may write a file with this status. For root, any owner but root counts as another."""
    return bool(found.st_mode & stat.S_IWOTH) or (os.geteuid() == 0 and found.st_uid != 0)


def _remedy(path: Path | str) -> str:
    found = Path(path).stat()
    if found.st_mode & stat.S_IWOTH:
        return f"chmod o-w it, or {TRUST}"
    return f"it belongs to user id {found.st_uid}, and root would run it: run as that user, chown it, or {TRUST}"


def group_writable(*paths: Path | None) -> list[Path]:
    """The files and directories among ``paths`` that a group may write."""
    modes = {path: path.stat().st_mode for path in paths if path is not None}
    return [path for path, mode in modes.items() if mode & stat.S_IWGRP and (stat.S_ISREG(mode) or stat.S_ISDIR(mode))]


class OwnStore(NamedTuple):
    """This user's embedded store, if each user of the configuration has a store of their own."""

    config: Path
    owner: str
    user: str
    directory: Path
    is_anothers: bool
    """Whether the configuration belongs to neither this user nor root."""

    def __str__(self) -> str:
        if self.is_anothers:
            return (
                f"{self.config.name} is {self.owner}'s, but you are {self.user} and would use your own server in "
                f"{self.directory}, which {self.owner}'s launches never read; {REMEDY}"
            )
        return (
            f"this store is {self.user}'s alone: {self.directory}; launches of another user of {self.config} read "
            f"that user's own; {REMEDY}"
        )


def user_and_home() -> tuple[str, Path]:
    """Name and home of the user of this process, from the user database, as cron finds them, not from variables."""
    try:
        found = pwd.getpwuid(os.getuid())
    except KeyError:  # as in a container that runs as any user id
        return str(os.getuid()), Path("/")
    return found.pw_name, Path(found.pw_dir)


def user_named(user: int) -> str:
    """The name of the user with the id ``user``; the id if it has no name."""
    try:
        return shown(pwd.getpwuid(user).pw_name)
    except KeyError:
        return f"user id {user}"


def is_others(path: Path) -> bool:
    """Whether neither this user nor root owns ``path``. False if it is missing, or if `modes_mean_nothing` there."""
    try:
        return path.stat().st_uid not in (0, os.geteuid()) and not modes_mean_nothing(path)
    except OSError:
        return False


def others_among(paths: Iterable[Path | None]) -> Iterator[tuple[Path, str]]:
    """The paths that belong to others, each with its owner."""
    for path in paths:
        if path is not None and is_others(path):
            yield path, user_named(path.stat().st_uid)


def own_store(settings: Settings) -> OwnStore | None:
    """This user's own store, if the configuration has several users, each with a store of their own. None otherwise, as
    for the project of one user."""
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
    """Whether users other than its owner can read the file. A file below this user's home counts as this user's alone,
    even if its mode lets others read it."""
    found, home = config.stat(), Path(os.environ.get("HOME") or "/nonexistent")
    if config.is_relative_to(home):
        return False
    group = found.st_mode & stat.S_IRGRP and found.st_gid != os.getegid()
    enter = stat.S_IXOTH | (stat.S_IXGRP if group else 0)
    return bool(group or found.st_mode & stat.S_IROTH) and all(
        each.stat().st_mode & enter for each in config.resolve().parents
    )


def warn_of_another_store(settings: Settings, files: OwnFiles | None = None) -> None:
    """Warn if this user has a store of their own (`own_store`), so does not use the store of the configuration's owner.
    Repetitions by later launches, and by other processes that enqueue, are damped."""
    if settings.config is None or not is_others(settings.config):
        return  # most launches end here, without looking up names
    found = own_store(settings)
    if found is None:
        return
    text = str(found)
    if log.streaks is not None:
        log.warning("%s", text, extra=about("another's configuration", kind=PERSISTENT))
        return
    name = sha256(f"producer\n{settings.config}\n{settings.namespace}".encode())[:32]
    line = LaunchStreaks(name, files or settings.state_files()).meet(PERSISTENT, "another's configuration", text)
    if line is not None:
        log.warning("%s", line, extra=UNDAMPED)


def warn_once_of_own_store(found: OwnStore, files: OwnFiles) -> None:
    """Warn, once for each of root's configuration files, that this user would use an `own_store`."""
    name = f"own-store-{sha256(os.fsencode(found.config))[:32]}"
    if files.read(name) is None:
        files.write(name, b"")
        log.warning("%s", found)
