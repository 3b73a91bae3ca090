"""Opens, checks and creates files that a user names. If the name leads to a pipe without a peer, a device or a link,
the program neither waits for it nor replaces it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """A descriptor of a plain file. ``path`` may be a link to it. OSError, without waiting, for anything else."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that nobody reads, or a socket
            refuse_unless_regular(path, path.stat())
        raise
    try:
        refuse_unless_regular(path, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_incoming(path: str) -> int:
    """A descriptor for reading a file, a pipe or a device, without waiting for a writer. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def open_stream(path: Path) -> int | None:
    """Open ``path`` for writing if it is a pipe that has a reader, or a device, or a link to one, such as /dev/fd/63.
    Returns the descriptor; None for other files. Raises OSError, as for a pipe that nobody reads."""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError:
        return None
    if kind not in (stat.S_IFIFO, stat.S_IFCHR):
        return None
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "nobody reads it") from None
        raise
    os.set_blocking(descriptor, True)
    return descriptor


def refuse_to_replace(path: Path) -> None:
    """Raise OSError if ``path`` must not be replaced: if it is no plain file, which would be lost, or if it is another
    user's, and its directory does not let this user remove it."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    refuse_unless_regular(path, found)
    us, around = os.geteuid(), path.parent.stat()
    if us not in (0, found.st_uid, around.st_uid) and around.st_mode & stat.S_ISVTX:
        raise PermissionError(errno.EPERM, "belongs to another user", str(path))


@contextmanager
def replacement(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """A new file beside ``path``, with ``mode`` whatever the umask is. At the block's end it replaces ``path``, so a
    reader finds either the old content or the new. Raises OSError."""
    part = path.parent / f".{path.name}.{os.urandom(8).hex()}.part"
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if mode != 0o600:  # it has that mode already; some file systems refuse the call
                os.fchmod(descriptor, mode)
            yield file
            file.flush()
            os.fsync(descriptor)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def refuse_unless_regular(path: Path, found: os.stat_result) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"is {KINDS.get(kind, 'no file')}, not a plain file", str(path))


def other_than_directory(path: Path) -> str | None:
    """What is at ``path`` if that is no directory. None if a directory is or can be there, or if that is unknown."""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError:
        return "a link to nothing" if path.is_symlink() else None
    except OSError:
        return None
    return None if kind == stat.S_IFDIR else KINDS.get(kind, "a file")


def make_directory(path: Path) -> None:
    """Create a directory if there is none, but not its parent: a missing parent is likely a typo. Raises OSError."""
    if not path.is_dir():
        path.parent.stat()
        path.mkdir(0o755, exist_ok=True)


def named_path(text: str) -> Path:
    """The path that an option of the command line names. ValueError if it names none."""
    if not text or "\0" in text:
        raise ValueError("name a path")
    return Path(text)
