"""Standard error, and the standard streams that a launch's handlers have.

Our own lines go to where descriptor 2 led when the command began, since handlers may close descriptor 2 or redirect it.
That may be a pipe whose reader has stopped reading. No message fails because nobody reads what its handler prints. Once
the reader is known to be gone, descriptors 1 and 2 lead to /dev/null for subprocesses of handlers, and for direct
writes. It is found out when the launch begins, or when its process prints.
"""

from __future__ import annotations

import errno
import faulthandler
import io
import os
import select
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from pollconsumer.store.client.own_descriptors import Opened, high_copy

PATIENCE = 1.0
"""One line waits for a reader for so many seconds. The next lines do not wait until a reader is back."""
STACKS_WITHIN = 0.2
"""Stacks wait for a reader for so many seconds, which is less than faulthandler's thread waits for their writer."""
_MOST = 1 << 20
_unread = False
_at_first: list[Opened] = []
_kept: list[int] = []
"""Both ends of a pipe of this process, to which stacks are written without waiting."""
GONE = (errno.EPIPE, errno.ECONNRESET, errno.EIO)
"""Errors after which no write can succeed: the reader of a pipe or a socket has closed it, or a terminal is hung up."""
STREAMS = {"standard output": "stdout", "standard error": "stderr"}


def remember() -> None:
    """Let our lines go to where descriptor 2 leads now, whatever replaces it later."""
    if (copy := high_copy(2)) is not None:
        _at_first[:] = [copy]


def descriptor() -> int:
    """The descriptor to write to. It is 2 if its copy was closed, or if the process is not the command's."""
    return _at_first[0].number if _at_first and _at_first[0].is_open() else 2


def write(content: bytes, output: int | None = None, within: float = PATIENCE) -> bool:
    """Write ``content`` to ``output``, by default standard error. If the reader accepts nothing for ``within`` seconds,
    the rest is discarded. Returns whether all was written. Raises OSError if a write fails."""
    global _unread
    output = descriptor() if output is None else output
    while content:
        poll = select.poll()
        poll.register(output, select.POLLOUT)
        if not poll.poll(0 if _unread else 1000 * within):
            _unread = True
            return False
        # A pipe that is ready accepts so many bytes without blocking.
        content = content[os.write(output, content[: select.PIPE_BUF]) :]
    _unread = False
    return True


def write_stacks(line: str) -> None:
    """Write ``line`` and the stacks of all threads to standard error. If its reader is slow, the rest is discarded.
    Raises OSError if a write fails."""
    stacks = b""
    with suppress(OSError):  # no descriptor is left
        faulthandler.dump_traceback(file=_pipe()[1], all_threads=True)
        stacks = _kept_content()
    write(line.encode(errors="backslashreplace") + stacks, within=STACKS_WITHIN)


def unblocked() -> int:
    """A descriptor for a writer that must not block and does not poll first, such as faulthandler's thread. It leads to
    standard error. If this user may not open that again, such as another user's pipe, it leads to a pipe of this
    process. The heartbeat, which is forked later, passes on the pipe's content. Raises OSError."""
    number = descriptor()
    if stat.S_ISREG(os.fstat(number).st_mode):
        return os.dup(number)
    try:
        return os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return os.dup(_pipe()[1])


def pass_on(within: float) -> None:
    """Write what the parent process, from which this one was forked, has left in its pipe. Raises OSError."""
    if _kept:
        write(_kept_content(), within=within)


def leave() -> None:
    """Close, in this process, every descriptor of standard output and error, and let 0, 1 and 2 lead to /dev/null. So a
    reader that waits for the output's end does not wait for this process."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_RDWR)
        outputs = {_file_of(number) for number in (1, 2, descriptor())}
        for number in map(int, os.listdir("/dev/fd")):  # noqa: PTH208  numbers
            if _file_of(number) in outputs:
                os.dup2(null, number, inheritable=False)


def _file_of(number: int) -> tuple[int, int]:
    """A pair that identifies the file of a descriptor; zeros if it is closed."""
    try:
        status = os.fstat(number)
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


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


class HandlersOutput(io.FileIO):
    """A stream that never raises. It discards output that cannot be written; ``problem`` is the first cause."""

    problem: str | None = None

    def write(self, content: Any) -> int | None:  # type: ignore[override]  # of typeshed's base
        try:
            return super().write(content)
        except OSError as error:
            self.lose(error)
            return memoryview(content).nbytes

    def lose(self, error: OSError) -> None:
        """Record the cause. If nobody can read the descriptor any more, let it lead to /dev/null."""
        self.problem = self.problem or os.strerror(error.errno or errno.EIO)
        if error.errno in GONE:
            with suppress(OSError):  # no descriptor is left
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self.fileno())
                os.close(null)


class HandlersStream(io.TextIOWrapper):
    """A text stream that stays open: if a handler could close it, later handlers would fail. ``printed``, if given, is
    called with what is written."""

    printed: Callable[[str], object] | None = None

    def write(self, text: str, /) -> int:
        written = super().write(text)
        if (printed := self.printed) is not None:
            printed(text)
        return written

    def close(self) -> None:
        self.flush()


def outlast_readers() -> Callable[[], list[tuple[str, str]]]:
    """Replace standard output and error, if they are the process's own, by streams that never raise. Returns a function
    that lists the streams that have lost output, each with its first cause."""
    replaced = {}
    for name, attribute in STREAMS.items():
        stream = getattr(sys, attribute)
        if isinstance(stream, io.TextIOWrapper) and stream is getattr(sys, f"__{attribute}__"):
            output, replacement = _replacement(stream)
            setattr(sys, attribute, replacement)
            setattr(sys, f"__{attribute}__", replacement)
            replaced[name] = output, replacement

    def problems() -> list[tuple[str, str]]:
        for _, stream in replaced.values():
            with suppress(Exception):  # closed by a handler
                stream.flush()
        return [(name, output.problem) for name, (output, _) in replaced.items() if output.problem is not None]

    return problems


def _replacement(stream: io.TextIOWrapper) -> tuple[HandlersOutput, TextIO]:
    stream.flush()
    output = HandlersOutput(stream.fileno(), "wb", closefd=False)
    poll = select.poll()
    poll.register(output.fileno(), 0)
    # Nobody reads the pipe or the socket any more, or the terminal is hung up.
    if any(state & (select.POLLERR | select.POLLHUP) for _, state in poll.poll(0)):
        output.lose(BrokenPipeError(errno.EPIPE, ""))
    unbuffered = isinstance(stream.buffer, io.RawIOBase)
    text = HandlersStream(
        output if unbuffered else io.BufferedWriter(output),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    return output, text
