"""Standard error for our own lines, and the standard streams for what handlers print.

Our own lines go to where descriptor 2 led when the command began, since handlers may close or redirect descriptor 2.
Standard error may be a pipe whose reader has stopped reading. A failed write to it never fails a message. Once the
reader is known to be gone, descriptors 1 and 2 are redirected to /dev/null, for subprocesses and direct writes of
handlers. The launch checks that when it begins; later, a failed write shows it."""

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
"""Seconds that a line waits for a slow reader. Once a line was lost, later lines do not wait until one is accepted."""
STACKS_WITHIN = 0.2
"""Seconds that stacks wait for a slow reader. Faulthandler's thread would end the process a little later."""
_MOST = 1 << 20
_unread = False
_at_first: list[Opened] = []
_kept: list[int] = []
"""The two ends of a non-blocking pipe, into which faulthandler writes stacks; empty until the pipe is first needed."""
GONE = (errno.EPIPE, errno.ECONNRESET, errno.EIO)
"""Errors after which no write can succeed: the reader of a pipe or a socket has closed it, or a terminal is hung up."""
STREAMS = {"standard output": "stdout", "standard error": "stderr"}


def remember() -> None:
    """Let our lines go to where descriptor 2 leads now, even if descriptor 2 is redirected later."""
    if (copy := high_copy(2)) is not None:
        _at_first[:] = [copy]


def descriptor() -> int:
    """The descriptor for our lines: the copy that `remember` made; 2 without a copy, or if a handler has closed it."""
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
    """Write ``line`` and the stacks of all threads to standard error. If its reader is slow, what is left is discarded.
    Raises OSError if a write fails."""
    stacks = b""
    with suppress(OSError):  # no descriptor is left
        faulthandler.dump_traceback(file=_pipe()[1], all_threads=True)
        stacks = _kept_content()
    write(line.encode(errors="backslashreplace") + stacks, within=STACKS_WITHIN)


def unblocked() -> int:
    """A non-blocking descriptor of standard error, for a writer that does not poll first, such as faulthandler's
    thread. If standard error cannot be opened again, as another user's pipe cannot, a descriptor of this process's own
    pipe. The heartbeat, which is forked later, copies that pipe to standard error (`pass_on`). Raises OSError."""
    number = descriptor()
    if stat.S_ISREG(os.fstat(number).st_mode):
        return os.dup(number)
    try:
        return os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return os.dup(_pipe()[1])


def pass_on(within: float) -> None:
    """In the heartbeat: copy the parent's pipe (`unblocked`) to standard error, in ``within`` seconds. Raises
    OSError."""
    if _kept:
        write(_kept_content(), within=within)


def leave() -> None:
    """Redirect to /dev/null every descriptor of this process that leads where standard output or error leads. So a
    reader that waits for the end of the output does not wait for this process."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_RDWR)
        outputs = {_file_of(number) for number in (1, 2, descriptor())}
        for number in map(int, os.listdir("/dev/fd")):  # noqa: PTH208  numbers
            if _file_of(number) in outputs:
                os.dup2(null, number, inheritable=False)


def _file_of(number: int) -> tuple[int, int]:
    """Device and inode of the descriptor's file. Zeros if the descriptor is closed."""
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
    """A binary stream whose writes never raise: it discards what fails. ``problem``: the first cause, or None."""

    problem: str | None = None

    def write(self, content: Any) -> int | None:  # type: ignore[override]  # of typeshed's base
        try:
            return super().write(content)
        except OSError as error:
            self.lose(error)
            return memoryview(content).nbytes

    def lose(self, error: OSError) -> None:
        """Record ``error`` as the cause of lost output. If the reader is gone, redirect the descriptor to /dev/null."""
        self.problem = self.problem or os.strerror(error.errno or errno.EIO)
        if error.errno in GONE:
            with suppress(OSError):  # no descriptor is left
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self.fileno())
                os.close(null)


class HandlersStream(io.TextIOWrapper):
    """A text stream that ``close`` only flushes: if a handler could close it, later handlers could not print.
    ``printed``, if set, is called with each text that is written."""

    printed: Callable[[str], object] | None = None

    def write(self, text: str, /) -> int:
        written = super().write(text)
        if (printed := self.printed) is not None:
            printed(text)
        return written

    def close(self) -> None:
        self.flush()


def outlast_readers() -> Callable[[], list[tuple[str, str]]]:
    """Replace ``sys.stdout`` and ``sys.stderr`` by streams whose writes never raise, unless they were replaced already.
    Returns a function that lists the streams that have lost output: for each, its name and the first cause."""
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
