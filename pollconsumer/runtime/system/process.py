"""Information about processes from /proc, and about files that can be run. Without /proc, or where it hides something,
callers fall back."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pollconsumer.core.launcher.detection import Ancestor
from pollconsumer.store.client.patience import SYSTEM_CLOCKS

MOST_ANCESTORS = 6
"""Enough for a launcher's shell, a wrapper or two, and the launcher."""
BIRTH = 19
"""The index of a process's start among its fields."""
SYSTEM_PATH = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/bin")


def started_at() -> float:
    """When the system started this process, on the monotonic clock."""
    now = time.monotonic()
    fields = _stat(os.getpid())
    if fields is None:
        return now - time.process_time()
    age = SYSTEM_CLOCKS.boot_time() - int(fields[BIRTH]) / os.sysconf("SC_CLK_TCK")
    return now - max(0.0, age)


def birth(pid: int) -> str | None:
    """Identifies a process even if its pid is reused; None if it has exited (a zombie, too), or is unknown."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return f"{_boot()}.{int(fields[BIRTH])}"


def namespace() -> str:
    """The namespace of the pids that this process sees; empty if unknown."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def all_gone(seen_in: str, births: Mapping[str, str]) -> bool:
    """Whether all processes, by pid, with their births (see `birth`), which had the namespace ``seen_in``, have ended.
    False if that cannot be known: they run elsewhere, or are hidden."""
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
        pass  # another user's
    return _stat(pid) is not None and birth(pid) != born


def ancestors() -> Iterator[Ancestor]:
    """Ancestors of this process, from its parent on, as far as no other pid namespace hides them. macOS has no /proc:
    there only process 1 is known."""
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
    """The name of the process's file. Another user's process hides its file, but not the name by which it was
    called."""
    try:
        path = Path(f"/proc/{pid}/exe").readlink()
    except OSError:
        called = command[0].lstrip("-") if command else ""
        paths = (os.path.join(directory, called) for directory in SYSTEM_PATH)  # noqa: PTH118  for those of os.path
        # Those of os.path do not raise for a place into which this user may not look.
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
    """Fields of /proc/PID/stat from the third on; the name before them may contain any bytes. None if it is hidden, or
    has fewer than are needed, as where a sandbox imitates /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > BIRTH else None


def why_not_run(path: Path) -> int:
    """The errno with which running ``path`` would fail, or 0."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return error.errno or errno.EIO
    if stat.S_ISDIR(mode):
        return errno.EISDIR
    return 0 if stat.S_ISREG(mode) and os.access(path, os.X_OK) else errno.EACCES
