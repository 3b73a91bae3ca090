"""Writing to standard error, which may be a pipe whose reader has stopped reading."""

from __future__ import annotations

import faulthandler
import os
import select
import stat
from contextlib import suppress

PATIENCE = 1.0
"""Seconds that one line waits for a reader; those after it do not wait until one is there again."""
STACKS_WITHIN = 0.2
"""The same, of stacks: less than faulthandler's thread waits for whoever writes them."""
_MOST = 1 << 20
_unread = False
_kept: list[int] = []
"""Both ends of a pipe of this process: what stacks are written to without waiting."""


def write(content: bytes, descriptor: int = 2, within: float = PATIENCE) -> bool:
    """Write ``content`` as far as it is read within so many seconds. Returns whether all of it was. OSError as for
    every write."""
    global _unread
    while content:
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        if not poll.poll(0 if _unread else 1000 * within):
            _unread = True
            return False
        # A pipe that is ready takes so much without blocking.
        content = content[os.write(descriptor, content[: select.PIPE_BUF]) :]
    _unread = False
    return True


def write_stacks(line: str, descriptor: int = 2) -> None:
    """Write ``line`` and the stacks of all threads, as far as they are read. OSError."""
    stacks = b""
    with suppress(OSError):  # no descriptor is left
        faulthandler.dump_traceback(file=_pipe()[1], all_threads=True)
        stacks = _kept_content()
    write(line.encode(errors="backslashreplace") + stacks, descriptor, STACKS_WITHIN)


def unblocked() -> int:
    """A descriptor of standard error for a writer that must not wait for ever and does not ask first, as faulthandler's
    thread. Where the system does not let this user open it again, as a pipe of another user, it is that of a pipe of
    this process: its heartbeat, forked later, passes on what is in it. OSError."""
    if stat.S_ISREG(os.fstat(2).st_mode):
        return os.dup(2)
    try:
        return os.open("/proc/self/fd/2", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return os.dup(_pipe()[1])


def pass_on(within: float) -> None:
    """Write what the process that this one was forked from has left in its pipe. OSError."""
    if _kept:
        write(_kept_content(), within=within)


def _pipe() -> list[int]:
    if not _kept:
        _kept[:] = os.pipe()
        for descriptor in _kept:
            os.set_blocking(descriptor, False)
    return _kept


def _kept_content() -> bytes:
    with suppress(BlockingIOError):
        return os.read(_kept[0], _MOST)
    return b""
