"""Where the embedded server lives: its data directory, the address of its socket, and the lock that it holds.

The lock decides everything. It is an ``flock`` on ``server.lock`` whose descriptor the server inherits, so it is held
exactly as long as the server lives, ``kill -9`` included. Only who has the lock may start a server: two servers on one
data directory both start without complaint and overwrite each other's append-only file, and a socket that does not
answer proves nothing, since a stalled server looks the same.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from pathlib import Path

from pollconsumer.core.errors import CannotCreate, PermissionDenied
from pollconsumer.runtime.own_files import ELSEWHERE, make_directory, why_not_ours

SOCKET, LOCK, LOG, PID = "server.sock", "server.lock", "server.log", "server.pid"
AOF_DIRECTORY = "appendonlydir"
LONGEST_ADDRESS = 107 if sys.platform == "linux" else 103  # bytes that sockaddr_un takes, without the final NUL


def check_directory(directory: Path) -> bool:
    """Whether the data directory exists; if so it is ours alone, or PermissionDenied.

    Whoever can write there can put a socket of their own in the server's place and read every payload.
    """
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise cannot_create(directory, error) from None
    problem = why_not_ours(found)
    if problem is None:
        return True
    if not stat.S_ISDIR(found.st_mode) and not stat.S_ISLNK(found.st_mode):
        raise CannotCreate(f"data directory {problem}", directory, ELSEWHERE)
    raise PermissionDenied(f"data directory {problem}", directory, f"make sure that it is yours alone, or {ELSEWHERE}")


def create_directory(directory: Path) -> None:
    """Create the data directory and its missing parents, each with mode 0700, and check it; CannotCreate if not."""
    if check_directory(directory):
        return
    try:
        make_directory(directory)
    except OSError as error:
        raise cannot_create(Path(error.filename), error) from None
    check_directory(directory)


def take_lock(directory: Path) -> int | None:
    """A descriptor that holds the lock, for the caller to hand on and close; None while another process has it.

    The lock file is never removed: with a second file of that name there would be a second lock.
    """
    path = directory / LOCK
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if (
            lock < 3
        ):  # started with closed stdio: the server's own stdio would replace the descriptor, and free the lock
            low = lock
            lock = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)
            os.close(low)
    except OSError as error:
        raise cannot_create(path, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError as error:
        os.close(lock)
        raise cannot_create(path, error) from None
    return lock


def process_without_socket(directory: Path, address: Path) -> int | None:
    """The server, where it holds the lock and its socket is gone: nobody reaches it again. A server that is just
    starting, or ending, looks the same for a moment. None where the system does not tell what a process has open."""
    if address.exists():
        return None
    try:
        pid = int((directory / PID).read_text())
        lock = (directory / LOCK).stat()
        with os.scandir(f"/proc/{pid}/fd") as opened:
            return pid if any(os.path.samestat(entry.stat(), lock) for entry in opened) else None
    except (OSError, ValueError):
        return None


def socket_address(directory: Path) -> Path:
    """Path under which to bind and connect to the server's socket: at most 107 bytes, for the kernel takes no more.

    For a longer data directory it leads through a symbolic link in the user's runtime directory (see ``link_address``).
    The socket itself is always in the data directory: the runtime directory may differ between cron and a login, and
    goes away with the last login. CannotCreate when a short path is needed and there is no runtime directory.
    """
    plain = directory / SOCKET
    if len(os.fsencode(plain)) <= LONGEST_ADDRESS:
        return plain
    import hashlib

    name = f"pollconsumer-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}"
    for runtime in (Path(os.environ.get("XDG_RUNTIME_DIR", "")), Path(f"/run/user/{os.geteuid()}")):
        short = runtime / name / SOCKET
        if runtime.is_absolute() and _is_private(runtime) and len(os.fsencode(short)) <= LONGEST_ADDRESS:
            return short
    what = f"socket path longer than {LONGEST_ADDRESS} bytes"
    raise CannotCreate(what, plain, "set XDG_DATA_HOME to a directory with a shorter path")


def link_address(directory: Path, address: Path) -> None:
    """Make ``address`` lead to the data directory; nothing to do where it lies there already."""
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


def cannot_create(path: Path, error: OSError) -> CannotCreate:
    """The operating system's refusal in its own words."""
    return CannotCreate(f"cannot create {path}", error.strerror or error, ELSEWHERE)


def _is_private(directory: Path) -> bool:
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
