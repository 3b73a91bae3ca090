"""A data directory that the users of a group share: a server goes on with the files of another user's.

A server makes its files with modes of its own, at any time: its append-only file can be read by the group, and written
by its user alone. So whoever starts the next server takes them over, while it holds the lock.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pollconsumer.core.errors import CannotCreate, PermissionDenied
from pollconsumer.runtime.embedded.directory import AOF_DIRECTORY, LOCK, DirectoryModes, cannot_create, make_shared

APPENDED = ".incr.aof"
"""The end of the name of the files to which a server appends; others it reads, or replaces."""


def as_whom(directory: Path) -> dict[str, Any]:
    """Arguments to start a process with: one that root starts runs as the directory's owner, since members of its group
    could place links there that lead root's server to files of root's."""
    found = directory.stat()
    if os.geteuid() != 0 or found.st_uid == 0:
        return {}
    return {"user": found.st_uid, "group": found.st_gid, "extra_groups": []}


def take_over(directory: Path, access: DirectoryModes) -> None:
    """Let the group read and write what is ours, and replace by copies of ours what it may only read. Root gives all to
    the directory's owner. PermissionDenied for a link, which could lead anywhere; CannotCreate on other failures."""
    appended = directory / AOF_DIRECTORY
    try:
        if not appended.exists():
            make_shared(appended, access.directory)
        for path in (*_files(directory), appended, *_files(appended)):
            _share(path, directory.stat(), access)
    except OSError as error:
        raise cannot_create(directory, error, access.fix) from None


def _files(directory: Path) -> Iterator[Path]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise PermissionDenied("link in the data directory", entry.path, "remove it: it could lead anywhere")
            if entry.is_file() and not entry.name.startswith(LOCK):  # also what another process makes its lock of
                yield Path(entry.path)


def _share(path: Path, directory: os.stat_result, access: DirectoryModes) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        raise CannotCreate("file in the data directory is its user's alone", path, "chmod g+rw it") from None
    try:
        found = os.fstat(descriptor)
        is_file = stat.S_ISREG(found.st_mode)
        if is_file and found.st_nlink != 1:
            raise PermissionDenied("link in the data directory", path, "remove it: it could lead anywhere")
        if os.geteuid() in (0, found.st_uid):
            os.fchown(descriptor, directory.st_uid if os.geteuid() == 0 else -1, directory.st_gid)
            os.fchmod(descriptor, access.file if is_file else access.directory)
        elif is_file and path.name.endswith(APPENDED) and not os.access(path, os.W_OK):
            _replace_by_copy(path, descriptor, access)
    finally:
        os.close(descriptor)


def _replace_by_copy(path: Path, source: int, access: DirectoryModes) -> None:
    copy = path.with_name(f"{path.name}.copy")  # one name, so that what a crash leaves behind does not add up
    copy.unlink(missing_ok=True)
    descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as target, os.fdopen(source, "rb", closefd=False) as content:
        shutil.copyfileobj(content, target, 1 << 20)
        target.flush()
        os.fchmod(descriptor, access.file)
        os.fsync(descriptor)
    copy.replace(path)
