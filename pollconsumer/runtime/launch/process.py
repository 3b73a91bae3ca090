"""Information about processes from /proc. Without it, callers fall back."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pollconsumer.store.patience import SYSTEM_CLOCKS


def started_at() -> float:
    """When the system started this process, on the monotonic clock."""
    now = time.monotonic()
    fields = _stat(os.getpid())
    if fields is None:
        return now - time.process_time()
    age = SYSTEM_CLOCKS.boot_time() - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return now - max(0.0, age)


def birth(pid: int) -> str | None:
    """Identifies a process even if its pid is reused; None if it has exited (a zombie, too), or is unknown."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        boot = ""
    return f"{boot}.{int(fields[19])}"


def is_stopped(pid: int) -> bool:
    """Whether the process is suspended, by SIGSTOP or a debugger."""
    fields = _stat(pid)
    return fields is not None and fields[0] in (b"T", b"t")


def resident_bytes() -> int:
    """Resident memory of this process; 0 if unknown."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _stat(pid: int) -> list[bytes] | None:
    """Fields of /proc/PID/stat from the third on; the name before them may contain any bytes."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
