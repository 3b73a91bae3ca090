"""The lines of an export, from a file, a device, or a pipe whose other end may stall or drip.

A pipe may take as long as its export needs, and no export is so slow that it brings less than `SLOWEST`: so all waiting
for it has one limit, which grows with what it has brought.
"""

from __future__ import annotations

import io
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pollconsumer.core import json_values
from pollconsumer.core.errors import BadData
from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.interface.cli.messages.enqueue import refuse_closed_input
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.named_files import open_incoming

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

FIRST_WITHIN = 3600.0
"""Seconds for the first byte: an export waits until the launches that are under way have ended."""
SAID_AFTER = 3.0
"""Seconds of waiting for the first bytes that are worth a line: perhaps nobody writes to the pipe."""
REST_WITHIN = 60.0
"""Seconds of waiting for the rest, and a second more for each `SLOWEST` bytes of it."""
SLOWEST = 16 * 1024
LONGEST_LINE = 1 << 28
"""Bytes of a line, at most. A page has some 256 KiB of values, or ten elements if these are long."""


class IncomingExport(io.RawIOBase):
    """What a descriptor brings. BadData where it takes too long."""

    def __init__(self, name: str, descriptor: int) -> None:
        self._name, self._descriptor = name, descriptor
        self._brought, self._waited = 0, 0.0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while True:
            began, limit = time.monotonic(), REST_WITHIN + self._brought / SLOWEST if self._brought else FIRST_WITHIN
            silent = not self._brought and not self._waited
            ready = self._poll.poll(max(0.0, 1000 * ((min(SAID_AFTER, limit) if silent else limit) - self._waited)))
            self._waited += time.monotonic() - began
            if not ready and self._waited < limit:
                log.warning("%s has brought nothing yet; waiting up to %s", self._name, format_duration(round(limit)))
            elif not ready:
                brought = f"brought {self._brought} bytes within {format_duration(round(limit, 1))}"
                raise BadData("export", self._name, f"{brought}: import it again")
            if not ready:
                continue
            try:
                read = os.readv(self._descriptor, [buffer])
            except BlockingIOError:
                continue
            if not self._brought:
                self._waited = 0.0
            self._brought += read
            return read


@contextmanager
def opened_export(name: str) -> Iterator[Iterator[tuple[int, dict[str, Any]]]]:
    """Yield the lines of an export, each after its number; those of standard input for ``-``. BadData if it cannot be
    read, or is no export."""
    if name == "-":
        refuse_closed_input()
    descriptor = None
    try:
        descriptor = 0 if name == "-" else open_incoming(name)
        yield _parsed(io.BufferedReader(IncomingExport(name, descriptor), 1 << 16))
    except OSError as error:
        raise BadData("export", name, f"cannot be read: {error.strerror}") from None
    finally:
        if descriptor:
            os.close(descriptor)


def _parsed(lines: io.BufferedReader) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    while text := lines.readline(LONGEST_LINE):
        number += 1
        try:
            line = json_values.parse(text)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            raise BadData("export damaged or cut off", f"line {number}", "export again")
        yield number, line
