"""Standard output and error as a launch's handlers have them: no message fails because nobody reads what it prints.

Subprocesses of handlers, and what is written to the descriptors directly, find /dev/null there once the reader is known
to be gone: when the launch begins, or when its process prints.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

GONE = (errno.EPIPE, errno.ECONNRESET, errno.EIO)
"""No later write can succeed: the reader of a pipe or a socket has closed it, a terminal is hung up."""
STREAMS = {"standard output": "stdout", "standard error": "stderr"}


class HandlersOutput(io.FileIO):
    """A stream that never raises: output that cannot be written is discarded, and ``problem`` names the first cause."""

    problem: str | None = None

    def write(self, content: Any) -> int | None:  # type: ignore[override]  # of typeshed's base
        try:
            return super().write(content)
        except OSError as error:
            self.lose(error)
            return memoryview(content).nbytes

    def lose(self, error: OSError) -> None:
        """Note the cause. Once nobody can read the descriptor, have it lead to /dev/null."""
        self.problem = self.problem or os.strerror(error.errno or errno.EIO)
        if error.errno in GONE:
            with suppress(OSError):  # no descriptor is left
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self.fileno())
                os.close(null)


class HandlersStream(io.TextIOWrapper):
    """A text stream that stays open: a handler that closed it would make the handlers after it fail."""

    def close(self) -> None:
        self.flush()


def outlast_readers() -> Callable[[], list[tuple[str, str]]]:
    """Replace standard output and error, where they are the process's own, by streams that never raise. Returns a
    function that lists the streams that have lost output, each with its first cause."""
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
    if _is_unread(output.fileno()):
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


def _is_unread(descriptor: int) -> bool:
    """Whether ``descriptor`` is a pipe or a socket that nobody reads any more, or a terminal that is hung up."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in poll.poll(0))
