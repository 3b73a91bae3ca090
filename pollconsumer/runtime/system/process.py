"""Information about processes, from /proc, and about programs. If there is no /proc, or if it hides something, callers
do without."""

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
"""Enough for the shell of a launcher, a wrapper or two, and the launcher."""
BIRTH = 19
"""The index of the start time among the fields of a process."""
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
    """A text that identifies a process even if its pid is reused. None if the process has exited (even as a zombie), or
    is unknown."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return f"{_boot()}.{int(fields[BIRTH])}"


def namespace() -> str:
    """The pid namespace of this process; empty if unknown."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def all_gone(seen_in: str, births: Mapping[str, str]) -> bool:
    """Whether all these processes have ended, given by pid and birth (see `birth`), in the pid namespace ``seen_in``.
    False if that cannot be known, since they run elsewhere, or are hidden."""
    boot = _boot()
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
    """The ancestors of this process, from its parent on, up to one that another pid namespace hides. macOS has no
    /proc: there only process 1 is known."""
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
    """The file name of the process's program. Another user's process hides it, but not the name of its call."""
    try:
        path = Path(f"/proc/{pid}/exe").readlink()
    except OSError:
        called = command[0].lstrip("-") if command else ""
        paths = (os.path.join(directory, called) for directory in SYSTEM_PATH)  # noqa: PTH118  for those of os.path
        # os.path's functions do not raise for a directory that this user may not read.
        found = next(filter(os.path.exists, paths), None)
        path = Path(called if found is None else os.path.realpath(found))
    return path.name.removesuffix(" (deleted)")


def _boot() -> str:
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
    """The fields of /proc/PID/stat from the third on, since the name before them may contain any bytes. None if it is
    hidden, or has too few fields, as where a sandbox imitates /proc."""
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
