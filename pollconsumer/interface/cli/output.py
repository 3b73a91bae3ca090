"""What commands print on standard output: JSON for programs, aligned text for people. All of it is flushed at once,
so that a closed or full output is noticed; the frame of the command line turns that OSError into an end."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TextIO

import click

from pollconsumer.interface.logs import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def print_json(value: object) -> None:
    """``value``, an object or array, on one line; times in it are strings already."""
    click.echo(json.dumps(value, allow_nan=False))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest cell, None as ``-``, control characters escaped."""
    lines = [list(headers), *([one_line("-" if cell is None else str(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    click.echo("\n".join(text))


def iso(epoch_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds, as in ``2030-01-31T09:00:00.000Z``."""
    return (EPOCH + timedelta(milliseconds=epoch_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(epoch_ms: int, now_ms: int) -> str:
    """``3 minutes ago`` or ``in 3 minutes``, in the largest whole unit; ``now`` within a second."""
    seconds = abs(now_ms - epoch_ms) // 1000
    for size, unit in _UNITS:
        count = seconds // size
        if count:
            text = f"{count} {unit}{'' if count == 1 else 's'}"
            return f"{text} ago" if epoch_ms < now_ms else f"in {text}"
    return "now"


def discard(stream: TextIO) -> None:
    """Send what ``stream`` still holds, and gets, to nowhere: else the interpreter tries again at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
