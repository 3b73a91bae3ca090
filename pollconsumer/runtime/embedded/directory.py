"""The embedded server's data directory, the path of its socket, and its lock.

The lock is an ``flock`` on ``server.lock``. The server inherits the locked descriptor, so the lock is held exactly as
long as the server lives, even with ``kill -9``. Only a process that holds the lock may start a server, since two
servers on one data directory would overwrite each other's append-only file without an error. A socket that does not
answer does not prove that no server lives: it may be stalled.

The users of a group may share a directory, so that one user's server goes on with the files of another's. A server
creates files with modes of its own choice: the group can read its append-only file, but only its user can write it. So
a process that starts a server first takes over the other user's files, while it holds the lock (`take_over`)."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pollconsumer.core.errors import CannotCreate, PermissionDenied, shown
from pollconsumer.core.notation.digests import sha256
from pollconsumer.runtime.system.own_files import ELSEWHERE, make_directory, why_not_ours, why_not_shared
from pollconsumer.store.client.own_descriptors import above_standard

SOCKET, LOCK, LOG, PID = "server.sock", "server.lock", "server.log", "server.pid"
AOF_DIRECTORY = "appendonlydir"
LONGEST_ADDRESS = 107 if sys.platform == "linux" else 103  # bytes of sockaddr_un, without the final NUL
LONGEST_SHOWN = 255
"""Maximum length of a path in an error, in characters."""
SHARE = "install -d -o USER -g GROUP -m 2770 makes one that the users of a group share"
ON_A_LOCAL_DISK = "the file system has no locks: name a directory on a local disk, with data or XDG_DATA_HOME"
OWN_OR_SHARE = f"install -d -o USER -m 700 makes one of your own, {SHARE}"
APPENDED = ".incr.aof"
"""The suffix of files to which a server appends. It only reads, or replaces, all others."""


class DirectoryModes(NamedTuple):
    """Modes of a directory and its files: private, or such that each user of a group can go on with files of the
    others. ``what``: the directory's name in errors."""

    directory: int
    file: int
    socket: str
    umask: int
    fix: str
    shared: bool
    what: str = "data directory"


PRIVATE = DirectoryModes(0o700, 0o600, "700", 0o077, f"make sure that it is yours alone, or {ELSEWHERE}", shared=False)
SHARED = DirectoryModes(0o2770, 0o660, "770", 0o007, OWN_OR_SHARE, shared=True)


def modes_of(directory: Path) -> DirectoryModes:
    """The modes for a directory that the settings name: private if only this user may write there, else shared by a
    group. A missing directory is shared if its parent has the setgid bit."""
    try:
        found = directory.lstat()
    except OSError:
        with suppress(OSError):
            if directory.parent.stat().st_mode & stat.S_ISGID:
                return SHARED
        return PRIVATE._replace(fix=OWN_OR_SHARE)
    return PRIVATE._replace(fix=OWN_OR_SHARE) if why_not_ours(found) is None else SHARED


def check_directory(directory: Path, access: DirectoryModes = PRIVATE) -> bool:
    """Whether the directory exists. PermissionDenied if users other than ``access`` allows can write there: they could
    replace its files, and read every payload."""
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise cannot_create(directory, error, access.fix) from None
    problem = why_not_shared(found) if access.shared else why_not_ours(found)
    if problem is None:
        return True
    if not stat.S_ISDIR(found.st_mode) and not stat.S_ISLNK(found.st_mode):
        raise CannotCreate(f"{access.what} {problem}", directory, access.fix)
    raise PermissionDenied(f"{access.what} {problem}", directory, access.fix)


def create_directory(directory: Path, access: DirectoryModes = PRIVATE) -> None:
    """Create the directory with the modes of ``access``, then check it. Missing parents of a private one get mode 0700.
    A shared one needs its parent, and gets the group of files there. CannotCreate if this fails."""
    if check_directory(directory, access):
        return
    try:
        if access.shared:
            make_shared(directory, access.directory)
        else:
            make_directory(directory)
    except OSError as error:
        path = directory if access.shared else Path(error.filename)  # a shared one is made under another name
        raise cannot_create(path, error, access.fix) from None
    check_directory(directory, access)


def check_parent(directory: Path, access: DirectoryModes) -> None:
    """Raise CannotCreate if this user cannot make the directory, which is missing."""
    parent = next(each for each in directory.parents if each.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        raise cannot_create(directory, PermissionError(errno.EACCES, os.strerror(errno.EACCES)), access.fix)
    if not parent.is_dir():
        raise cannot_create(directory, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)), access.fix)


def make_shared(directory: Path, mode: int) -> None:
    """Create a directory that has ``mode`` as soon as it appears, since another user may check it at once."""
    unfinished = directory.with_name(f".{directory.name}.{os.getpid()}-{os.urandom(4).hex()}")
    unfinished.mkdir(0o700)
    try:
        unfinished.chmod(mode)
        unfinished.rename(directory)
    except OSError:
        unfinished.rmdir()
        if not directory.is_dir():  # else another process was quicker
            raise


def take_lock(directory: Path, access: DirectoryModes = PRIVATE, name: str = LOCK) -> int | None:
    """A descriptor that holds the lock; the caller must close it. None if another process holds the lock. The lock file
    is never removed, since a new file would be a second lock."""
    path = directory / name
    try:
        if access.shared and not path.exists():
            _make_lock(path, access.file)
        with above_standard():  # else the server's own stdio would replace the descriptor, and free the lock
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise cannot_create(path, error, access.fix) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError as error:
        os.close(lock)
        raise cannot_create(path, error, ON_A_LOCAL_DISK) from None  # NFS without its lock service, and the like
    return lock


def _make_lock(path: Path, mode: int) -> None:
    """Create the lock file. It has ``mode`` as soon as it exists, since another user may open it at once."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, mode)
        with suppress(FileExistsError):  # another process was quicker
            path.hardlink_to(unfinished)
    finally:
        os.close(descriptor)
        unfinished.unlink()


def process_without_socket(directory: Path, address: Path) -> int | None:
    """The pid of a server that holds the lock, but cannot be reached because its socket was removed. None if there is
    none, or no /proc. A server that is starting or ending looks like that for a moment."""
    if os.path.exists(address):  # noqa: PTH110  it does not raise in a directory of others
        return None
    try:
        pid = int((directory / PID).read_text())
        lock = (directory / LOCK).stat()
        with os.scandir(f"/proc/{pid}/fd") as opened:
            return pid if any(_is_same(entry, lock) for entry in opened) else None
    except (OSError, ValueError):
        return None


def _is_same(entry: os.DirEntry[str], file: os.stat_result) -> bool:
    """Whether ``entry``, a descriptor in /proc, leads to ``file``. False if it has been closed meanwhile."""
    try:
        return os.path.samestat(entry.stat(), file)
    except FileNotFoundError:
        return False


def socket_address(directory: Path) -> Path:
    """The path at which the server's socket is bound and connected. It has at most 107 bytes, the limit of Linux.

    For a longer data directory it leads through a symbolic link in the user's runtime directory (see `link_address`).
    The socket itself is always in the data directory, since the runtime directory may differ between cron and a login,
    and is removed with the last login. CannotCreate if the link is needed and there is no runtime directory."""
    in_directory = directory / SOCKET
    if len(os.fsencode(in_directory)) <= LONGEST_ADDRESS:
        return in_directory
    name = f"pollconsumer-{sha256(os.fsencode(directory))[:16]}"
    for runtime in (Path(os.environ.get("XDG_RUNTIME_DIR", "")), Path(f"/run/user/{os.geteuid()}")):
        short = runtime / name / SOCKET
        if runtime.is_absolute() and _is_private(runtime) and len(os.fsencode(short)) <= LONGEST_ADDRESS:
            return short
    what = f"socket path longer than {LONGEST_ADDRESS} bytes"
    raise CannotCreate(what, in_directory, "set XDG_DATA_HOME, or data, to a directory with a shorter path")


def link_address(directory: Path, address: Path) -> None:
    """Create the symbolic link of `socket_address`, unless ``address`` is in the data directory itself."""
    link = address.parent
    if link == directory:
        return
    try:
        link.symlink_to(directory)
    except FileExistsError:
        if not link.is_symlink() or link.readlink() != directory:
            raise CannotCreate("short socket path is taken", link, f"remove it, or {ELSEWHERE}") from None
    except OSError as error:
        raise cannot_create(link, error) from None


def cannot_create(path: Path, error: OSError, fix: str = ELSEWHERE) -> CannotCreate:
    """An error that says why ``path`` cannot be created, with the ``fix``. A very long path is cut."""
    name = path if len(str(path)) <= LONGEST_SHOWN else shown(path)
    return CannotCreate(f"cannot create {name}", error.strerror or error, fix)


def _is_private(directory: Path) -> bool:
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def as_whom(directory: Path) -> dict[str, Any]:
    """Arguments of Popen: the server runs as the directory's owner if root starts it. As root, it would follow links
    that members of the directory's group may have placed there."""
    found = directory.stat()
    if os.geteuid() != 0 or found.st_uid == 0:
        return {}
    return {"user": found.st_uid, "group": found.st_gid, "extra_groups": []}


def take_over(directory: Path, access: DirectoryModes) -> None:
    """Before a server starts in a shared directory: let the group read and write this user's files, and replace files
    that this user may only read by copies. Root gives all files to the directory's owner instead. PermissionDenied if
    there is a link, which could lead anywhere. CannotCreate on other failures."""
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
            if entry.is_file() and not entry.name.startswith(LOCK):  # or what another process makes its lock of
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
    import shutil  # slow to import, and few directories are shared

    copy = path.with_name(f"{path.name}.copy")  # always the same name, so that crashes do not leave ever more copies
    copy.unlink(missing_ok=True)
    descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as target, os.fdopen(source, "rb", closefd=False) as content:
        shutil.copyfileobj(content, target, 1 << 20)
        target.flush()
        os.fchmod(descriptor, access.file)
        os.fsync(descriptor)
    copy.replace(path)
