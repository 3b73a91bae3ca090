"""Files that a user names: a pipe without a peer, a device or a link in their place hangs nothing and loses nothing."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_plain(path: Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """A descriptor of a plain file, which may be named by a link. OSError, as for anything else, which is not waited
    for."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that nobody reads, or a socket
            refuse_unless_plain(path, path.stat())
        raise
    try:
        refuse_unless_plain(path, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_incoming(path: str) -> int:
    """A descriptor of what is to be read, a pipe's or a device's, too. Nobody is waited for. OSError."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def refuse_to_replace(path: Path) -> None:
    """OSError if what is at ``path`` is no plain file, so that putting another one there would lose it."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    refuse_unless_plain(path, found)


def refuse_unless_plain(path: Path, found: os.stat_result) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"is {KINDS.get(kind, 'no file')}, not a plain file", str(path))


def named_path(text: str) -> Path:
    """Of an option of the command line. ValueError if it names nothing."""
    if not text or "\0" in text:
        raise ValueError("name a path")
    return Path(text)
