"""Information about processes, read from /proc, and about programs. A system without /proc, or with parts of it hidden,
is no error: each function says what it returns then."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pollconsumer.core.launcher import Ancestor
from pollconsumer.store.client.patience import SYSTEM_CLOCKS

MOST_ANCESTORS = 6
"""A launch usually has fewer ancestors up to its launcher: the launcher's shell, and a wrapper script or two."""
BIRTH = 19
"""The index of the start time in the list that `_stat` returns."""
SYSTEM_PATH = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/bin")


def started_at() -> float:
    """The time at which the system started this process, on the monotonic clock."""
    now = time.monotonic()
    fields = _stat(os.getpid())
    if fields is None:
        return now - time.process_time()
    age = SYSTEM_CLOCKS.boot_time() - int(fields[BIRTH]) / os.sysconf("SC_CLK_TCK")
    return now - max(0.0, age)


def birth(pid: int) -> str | None:
    """A text that identifies the process even after its pid is reused. None if the process has exited, or is a zombie,
    or cannot be read."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return f"{boot_id()}.{int(fields[BIRTH])}"


def namespace() -> str:
    """The pid namespace of this process; empty if unknown."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def all_gone(seen_in: str, births: Mapping[str, str]) -> bool:
    """Whether all processes in ``births`` have ended: pids in the pid namespace ``seen_in``, each with its birth (see
    `birth`). False if this process cannot know: they ran in another namespace or boot, or are hidden."""
    boot = boot_id()
    if not births or not boot or not seen_in or seen_in != namespace():
        return False
    return all(
        pid.isdecimal() and born.startswith(f"{boot}.") and _is_gone(int(pid), born) for pid, born in births.items()
    )


def _is_gone(pid: int, born: str) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # it belongs to another user
    return _stat(pid) is not None and birth(pid) != born


def ancestors() -> Iterator[Ancestor]:
    """The ancestors of this process, its parent first. The list ends where another pid namespace hides the next
    ancestor. On macOS, which has no /proc, only launchd (pid 1) is recognised."""
    pid = os.getppid()
    if pid == 1 and sys.platform == "darwin":
        yield Ancestor("launchd", ("/sbin/launchd",))
        return
    for _ in range(MOST_ANCESTORS):
        if pid == 0 or (fields := _stat(pid)) is None:
            return
        command = _command(pid)
        yield Ancestor(_executable(pid, command), command)
        pid = int(fields[1])


def _command(pid: int) -> tuple[str, ...]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ()
    return tuple(word.decode("utf-8", "replace") for word in words if word)


def _executable(pid: int, command: tuple[str, ...]) -> str:
    """The file name of the process's program. If another user's process hides it, it is read from ``command``."""
    try:
        path = Path(f"/proc/{pid}/exe").readlink()
    except OSError:
        called = command[0].lstrip("-") if command else ""
        paths = (os.path.join(directory, called) for directory in SYSTEM_PATH)  # noqa: PTH118  for those of os.path
        # os.path's functions do not raise for a directory that this user may not read.
        found = next(filter(os.path.exists, paths), None)
        path = Path(called if found is None else os.path.realpath(found))
    return path.name.removesuffix(" (deleted)")


def boot_id() -> str:
    """A name of this boot of this machine; empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().decode("ascii").strip()
    except OSError:
        return ""


def is_stopped(pid: int) -> bool:
    """Whether the process is suspended, by SIGSTOP or a debugger."""
    fields = _stat(pid)
    return fields is not None and fields[0] in (b"T", b"t")


def resident_bytes() -> int:
    """Resident memory of this process; 0 if unknown."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third on; the second, the name, may contain any bytes. None if the file
    cannot be read, or has too few fields, as in sandboxes that imitate /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > BIRTH else None


def why_not_run(path: Path) -> int:
    """The errno with which running ``path`` would fail; 0 if it would not."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return error.errno or errno.EIO
    if stat.S_ISDIR(mode):
        return errno.EISDIR
    return 0 if stat.S_ISREG(mode) and os.access(path, os.X_OK) else errno.EACCES
