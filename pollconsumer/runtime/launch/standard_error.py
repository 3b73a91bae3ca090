"""Writing to standard error, which may be a pipe whose reader has stopped reading."""

from __future__ import annotations

import os
import select
import stat

PATIENCE = 1.0
"""Seconds that one line waits for a reader; those after it do not wait until one is there again."""
_unread = False


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


def unblocked() -> int:
    """A descriptor of standard error for a writer that does not ask first, as faulthandler's thread, and must not wait
    for ever. Where the system does not let this user open the pipe again, as one of another user's, it may wait."""
    if stat.S_ISFIFO(os.fstat(2).st_mode):
        try:
            return os.open("/proc/self/fd/2", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            pass
    return os.dup(2)
