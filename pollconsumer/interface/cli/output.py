"""The only place from which commands print: JSON for programs, text for people, in which everything is escaped.

All of it is flushed at once, so that a closed or full output is noticed; the frame of the command line turns that
OSError into an end. On a terminal tables keep to its width; elsewhere a row is a line, however long.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, TextIO

import click

from pollconsumer.core.text import printable, printable_lines
from pollconsumer.interface.cli.table import lay_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PROGRESS_COLUMNS = 40
"""Most that progress takes."""
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_DELETE = "\x7f"
"""The one control character that JSON allows in a string as it is."""


def print_json(value: object) -> None:
    """``value``, an object or array, on one line; times in it are strings already."""
    click.echo(_json(value))


def print_json_array(values: Iterable[object]) -> None:
    """One array, an element a line, each written as it comes."""
    separator = "["
    for value in values:
        click.echo(separator + _json(value), nl=False)
        separator = ",\n "
    click.echo("[]" if separator == "[" else "]")


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest cell, None as ``-``."""
    click.echo("\n".join(lay_out(headers, rows, _width())))


def print_lines(lines: Iterable[object], *, as_json: bool = False) -> None:
    """Each of ``lines`` on one line, as text or as JSON; all of them at once."""
    click.echo("\n".join(_json(line) if as_json else printable(str(line)) for line in lines))


def print_line(text: object = "") -> None:
    """``text`` on one line."""
    click.echo(printable(str(text)))


def print_quoted(text: str) -> None:
    """Text of several lines that is not ours, a traceback: after an empty line, indented."""
    click.echo("\n" + "\n".join(printable_lines(text)))


def print_notice(text: str) -> None:
    """A line on standard error for a person at the terminal, in answer to what they do."""
    click.echo(f"pollconsumer: {printable(text)}", err=True)


def print_progress(text: str) -> None:
    """``text`` on standard error, in place of what was shown before."""
    click.echo(f"\r{printable(text)}", nl=False, err=True)


def clear_progress() -> None:
    click.echo(f"\r{' ' * PROGRESS_COLUMNS}\r", nl=False, err=True)


def json_text(value: object) -> str:
    """``value`` as JSON for a person, to read and to copy: only what is invisible is escaped, in the ways of JSON."""
    text = json.dumps(value, ensure_ascii=False)
    return text if printable(text) == text else "".join(c if printable(c) == c else _json(c)[1:-1] for c in text)


def ago(epoch_ms: int, now_ms: int) -> str:
    """``3 minutes ago`` or ``in 3 minutes``, in the largest whole unit; ``now`` within a second."""
    seconds = abs(now_ms - epoch_ms) // 1000
    for size, unit in _UNITS:
        count = seconds // size
        if count:
            text = f"{count} {unit}{'' if count == 1 else 's'}"
            return f"{text} ago" if epoch_ms < now_ms else f"in {text}"
    return "now"


def was_printing(error: OSError) -> bool:
    """Whether ``error`` came out of ``click.echo``, through which we print, and click itself."""
    return any(frame.f_code is click.echo.__code__ for frame, _ in walk_tb(error.__traceback__))


def discard(stream: TextIO) -> None:
    """Send what ``stream`` still holds, and gets, to nowhere: else the interpreter tries again at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False).replace(_DELETE, "\\u007f")


def _width() -> int | None:
    """Columns of the terminal that standard output is; None where it is none."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None


def is_terminal(stream: TextIO | None) -> bool:
    """False for one that was closed before we were started."""
    return stream is not None and stream.isatty()
