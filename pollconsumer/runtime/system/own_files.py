"""The user's XDG directories (XDG Base Directory Specification), and small files in them that only the user can write.

If the file system refuses a read or a write of such a file, no error is raised. ``Settings.state_files()`` says which
directories hold these files. With ``state = "none"`` there are no such files."""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pollconsumer.core.errors import CannotCreate

NAME = "pollconsumer"
EMBEDDED = "embedded"
"""The value of ``store`` with which pollconsumer starts a server of its own, with its data in `data_directory`."""
ELSEWHERE = "set data to a directory that you may write (documentation: embedded-server.md)"
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_IN_IT = stat.S_IWOTH | stat.S_ISVTX
SHARED_MODE = stat.S_ISGID | stat.S_IRWXU | stat.S_IRWXG | OTHERS_IN_IT
"""The bits of a shared directory's mode that matter: its group may do everything, others may not write, and no sticky
bit keeps members of the group from replacing each other's files."""
WITHOUT_MODES = (
    r"cifs|smb3|smbfs|vfat|msdos|exfat|ntfs3?|fuseblk|vboxsf|prl_fs|drvfs|"
    r"fuse\.(blobfuse2?|gcsfuse|s3fs|rclone|mount-s3)"
)
"""File systems in which a mount option sets the mode of every file, such as Azure's /home."""
MOUNTS = Path("/proc/self/mountinfo")
TEMPORARY = Path("/tmp")


def data_directory() -> Path:
    """``$XDG_DATA_HOME/pollconsumer``, else ``~/.local/share/pollconsumer``. It is neither created nor checked."""
    directory = _directory("XDG_DATA_HOME", ".local/share")
    if directory is None:
        raise CannotCreate("no home directory for user id", os.getuid(), ELSEWHERE)
    return directory


def state_directories() -> list[Path]:
    """The directories for state files, the preferred one first: ``$XDG_STATE_HOME/pollconsumer``, else
    ``~/.local/state/pollconsumer``. The directories for data and cache follow, in case the first is not writable."""
    paths = [("XDG_STATE_HOME", ".local/state"), ("XDG_DATA_HOME", ".local/share"), ("XDG_CACHE_HOME", ".cache")]
    return [directory for variable, below in paths if (directory := _directory(variable, below))]


def spare_directory() -> Path | None:
    """A directory in ``/tmp`` for files that may be lost. Not created. None if another owns it, or may write there."""
    directory = TEMPORARY / f"{NAME}-{os.geteuid()}"
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return directory
    except OSError:
        return None
    return directory if why_not_ours(found) is None else None


def _directory(variable: str, below_home: str) -> Path | None:
    """``pollconsumer`` below the directory that the environment variable names, else below ``below_home`` in the user's
    home. An empty or relative value counts as unset. None if the user has no home."""
    base = Path(os.environ.get(variable, ""))
    if not base.is_absolute():
        home = _home()
        if home is None:
            return None
        base = home / below_home
    return base / NAME


def _home() -> Path | None:
    """The user's home. None for a user id without one, such as a numeric user in a container."""
    home = Path(os.environ.get("HOME", ""))
    if not home.is_absolute():
        try:
            home = Path(pwd.getpwuid(os.getuid()).pw_dir)
        except KeyError:
            return None
    return home if home.is_absolute() else None


def why_not_ours(found: os.stat_result) -> str | None:
    """Why other users may change files in the directory described by ``found``. None if they cannot."""
    if stat.S_ISLNK(found.st_mode):
        return "is a symbolic link"
    if not stat.S_ISDIR(found.st_mode):
        return "is not a directory"
    if found.st_uid != os.geteuid():
        return f"belongs to user id {found.st_uid}"
    if found.st_mode & OTHERS_MAY_WRITE:
        return f"is writable by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


def why_not_shared(found: os.stat_result) -> str | None:
    """Why the directory that ``found`` describes is not shared by exactly the users of its group. None if it is: each
    of them can change all files in it, and nobody else can."""
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        return why_not_ours(found)
    if found.st_uid != os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_ISGID):
        return f"belongs to user id {found.st_uid} alone"
    if stat.S_IMODE(found.st_mode) & SHARED_MODE != SHARED_MODE & ~OTHERS_IN_IT:
        return f"has mode {stat.S_IMODE(found.st_mode):04o}, not 2770"
    if os.geteuid() not in (0, found.st_uid) and found.st_gid not in (os.getegid(), *os.getgroups()):
        return f"belongs to group id {found.st_gid}, and user id {os.geteuid()} is not in that group"
    if found.st_uid not in (0, os.geteuid()) and not _is_member(found.st_uid, found.st_gid):
        return f"belongs to user id {found.st_uid}, who is no member of its group, id {found.st_gid}"
    return None


def _is_member(user: int, group: int) -> bool:
    try:
        found = pwd.getpwuid(user)
    except KeyError:
        return False
    return group in os.getgrouplist(found.pw_name, found.pw_gid)


def make_directory(directory: Path) -> None:
    """Create ``directory`` and its missing parents with mode 0700. An OSError names the directory that it concerns."""
    missing = [directory]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for path in reversed(missing):
        with suppress(FileExistsError):  # another process was quicker
            path.mkdir(0o700)


class OwnFiles:
    """Files, each written to the first of ``directories`` that is writable, and read from the first that has it."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self.directories = directories

    def read(self, name: str) -> bytes | None:
        """The file's content. None if the file is missing, or if another user may have written it."""
        for directory in self.directories:
            path = directory / name
            with suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                with os.fdopen(descriptor, "rb") as file:
                    if is_ours(path.parent) and _is_as_written(os.fstat(descriptor), path.parent):
                        return file.read()
        return None

    def write(self, name: str, content: bytes) -> bool:
        """Write or replace the file atomically. Returns whether that succeeded."""
        for at, directory in enumerate(self.directories):
            if _replace(directory / name, content):
                OwnFiles(self.directories[:at]).remove(name)  # older copies, which would be read first
                return True
        return False

    def remove(self, name: str) -> None:
        for directory in self.directories:
            with suppress(OSError):
                (directory / name).unlink()

    def writable_directory(self) -> Path | None:
        """The first directory that is writable or can be created, or None."""
        return next((directory for directory in self.directories if _can_be_written(directory)), None)


def _can_be_written(directory: Path) -> bool:
    if os.path.isdir(directory):  # noqa: PTH112  it never raises
        return os.access(directory, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)
    existing = directory
    while not os.path.lexists(existing):
        existing = existing.parent
    probe = existing / f".{NAME}-{os.urandom(8).hex()}"  # a mode does not prove that a directory can be created there
    try:
        probe.mkdir(0o700)
        probe.rmdir()
    except OSError:
        return False
    return existing != directory


def is_ours(directory: Path) -> bool:
    """Whether only this process's user can change files in ``directory``. True if `modes_mean_nothing` there."""
    return why_not_ours(directory.stat()) is None or modes_mean_nothing(directory)


def _is_as_written(found: os.stat_result, directory: Path) -> bool:
    ours = found.st_uid == os.geteuid() and found.st_mode == stat.S_IFREG | 0o600
    return ours or (stat.S_ISREG(found.st_mode) and modes_mean_nothing(directory))


def _replace(path: Path, content: bytes) -> bool:
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        if not path.parent.exists():
            make_directory(path.parent)
        if not is_ours(path.parent):
            return False
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    except OSError:
        return False
    return True


def modes_mean_nothing(path: Path) -> bool:
    """Whether a mount option sets the mode of ``path``, or it is mounted read-only, as Kubernetes mounts a ConfigMap.
    False if unknown."""
    try:
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return True
        device = path.stat().st_dev
        mounts = MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        # 36 35 98:0 /root /mount/point options... - type source options
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        if before.split()[2:3] == [number]:
            return bool(re.fullmatch(WITHOUT_MODES, kind)) or (kind == "9p" and "aname=drvfs" in options)
    return False
