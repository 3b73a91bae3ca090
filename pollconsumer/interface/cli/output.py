"""Prints all output of commands: JSON for programs, escaped text for people.

Output is flushed at once, so that a closed or full output raises OSError, which `cli.main` handles. On a terminal,
tables stay within its width. Elsewhere each row is one line.
"""

from __future__ import annotations

import json
import re
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, count
from traceback import walk_tb
from typing import Any, BinaryIO, TextIO
from unicodedata import combining, east_asian_width

import click

from pollconsumer.core.errors import StoreUnreachable
from pollconsumer.core.notation.text import printable, printable_lines
from pollconsumer.core.spans import format_duration
from pollconsumer.runtime.system.signals import raising_terminations
from pollconsumer.runtime.system.watchdog import lift

_DELETE = "\x7f"
"""The only control character that JSON allows unescaped in a string."""
_WANTS_JSON = "pollconsumer.json"
GAP = "  "
FOLDED = "    "
"""Indentation of a row's continuation lines."""
READABLE = 20
"""A last cell gets a line of its own if fewer columns than this are left for it."""
_WORD = re.compile(r"""[(\[:=,]*(?<!\w)(['"`]).*?\1(?!\w)\S*|\S+""")
"""A piece that no line break divides: a word, or quoted text such as a command."""


def note_json(context: click.Context, option: click.Parameter, value: bool) -> None:
    """The callback of the option ``--json``, which records whether it was given."""
    del option
    context.meta[_WANTS_JSON] = value


def wants_json() -> bool:
    """Whether ``--json`` was given to the running command."""
    return bool(click.get_current_context().meta.get(_WANTS_JSON))


def printed_as_json(value: object) -> bool:
    """Print ``value``, an object or an array, on one line if ``--json`` was given. An iterator is printed as an array
    with an element a line, as its values come. Returns whether ``--json`` was given."""
    if not wants_json():
        return False
    if not isinstance(value, Iterator):
        print_json(value)
        return True
    separator = "["
    for each in value:
        click.echo(separator + _json(each), nl=False)
        separator = ",\n "
    click.echo("[]" if separator == "[" else "]")
    return True


def print_json(value: object) -> None:
    """Print ``value``, an object or an array, on one line. Times in it are strings already."""
    click.echo(_json(value))


def write_json(output: BinaryIO, value: object) -> None:
    """Write ``value`` on one line of a file, or of standard output in bytes."""
    output.write(_json(value).encode() + b"\n")


def print_table(
    headers: Sequence[object], rows: Rows, least: Sequence[str] = (), columns: Sequence[int] | None = None
) -> Sequence[int]:
    """Print a table. Columns are as wide as their widest cell, and None is ``-``. A row that is a text is a line of its
    own. ``least``: headers of columns to leave out first on a narrow terminal, which also shortens the last cell.
    ``columns``: what this function returned for an earlier part of the table."""
    width, every = None, [*range(len(headers))]
    if is_terminal(sys.stdout):
        import shutil  # slow to import

        width = shutil.get_terminal_size().columns
    if columns is None:
        columns = every if width is None else kept_columns(headers, rows, width, least)
        if missing := [str(headers[column]) for column in every if column not in columns]:
            print_notice(f"too narrow for {', '.join(missing)}; --json has all")
    shown = [row if isinstance(row, str) else [row[column] for column in columns] for row in rows]
    click.echo("\n".join(aligned([headers[column] for column in columns], shown, width, shortens=bool(least))))
    return columns


def given_row(name: str, value: object) -> list[tuple[str, object]]:
    """A list with the row of a property, for a table with a property a line; empty if there is nothing to show."""
    return [(name, value)] if value else []


def span(seconds: float | None) -> str | None:
    """A duration for a table, with its sign; None if it is unknown."""
    if seconds is None:
        return None
    return format_duration(seconds) if seconds >= 0 else f"-{format_duration(-seconds)}"


def print_lines(lines: Iterable[object]) -> None:
    """Print each of ``lines`` on one line: as text, or as JSON if ``--json`` was given. They are written in pieces that
    a pipe accepts whole, so that Ctrl-C breaks no line."""
    together = ""
    for line in lines:
        text = (_json(line) if wants_json() else printable(str(line))) + "\n"
        if together and len((together + text).encode(errors="replace")) > select.PIPE_BUF:
            click.echo(together, nl=False)
            together = ""
        together += text
    click.echo(together, nl=False)


def print_line(text: object = "") -> None:
    click.echo(printable(str(text)))


def print_quoted(text: str) -> None:
    """Print untrusted text of several lines, such as a traceback: indented, after an empty line."""
    click.echo("\n" + "\n".join(printable_lines(text)))


def print_notice(text: str) -> None:
    """Print a line on standard error for a person at the terminal."""
    click.echo(f"pollconsumer: {printable(text)}", err=True)


@contextmanager
def telling_when_interrupted(done: Callable[[], str], *, lost: bool = False) -> Iterator[None]:
    """Wrap long work that changes the store. If Ctrl-C, SIGTERM or SIGHUP ends it, or input or output fails, a line on
    standard error says what was ``done`` so far. ``lost``: also if the store is lost and anything was done."""
    try:
        with raising_terminations():
            yield
    except (KeyboardInterrupt, OSError, StoreUnreachable) as error:
        if not isinstance(error, StoreUnreachable) or (lost and not done().startswith("0 ")):
            print_notice(f"interrupted: {done()}")
        raise


def note_more(values: Iterator[object], limit: int) -> None:
    """Tell a person at the terminal if ``values`` go on after the ``limit`` that were printed."""
    if is_terminal(sys.stderr) and next(values, None) is not None:
        print_notice(f"the first {limit} are shown; --limit shows more")


def print_help(text: str) -> None:
    """Print the help on standard error if no command was named."""
    click.echo(text, err=True)


def ask(question: str) -> None:
    """Ask a person at a terminal, and abort the command unless the answer is yes. Without a terminal, continue."""
    if is_terminal(sys.stdin) and is_terminal(sys.stderr):
        lift()
        click.confirm(question, abort=True, err=True)


def progress_bar(length: int | None, *, shown: bool) -> AbstractContextManager[Any]:
    """A progress bar on standard error, if that is a terminal. ``update(n)`` advances it. Without ``length`` it
    counts."""
    hidden = not (shown and is_terminal(sys.stderr))
    if length is None:
        return click.progressbar(count(), show_pos=True, file=sys.stderr, hidden=hidden)
    return click.progressbar(length=length, file=sys.stderr, hidden=hidden)


def json_text(value: object) -> str:
    """``value`` as JSON that a person can read and copy. Only invisible characters are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if printable(text) == text else "".join(c if printable(c) == c else _json(c)[1:-1] for c in text)


def was_printing(error: OSError) -> bool:
    """Whether ``error`` was raised by ``click.echo``, which all output uses."""
    return any(frame.f_code is click.echo.__code__ for frame, _ in walk_tb(error.__traceback__))


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False).replace(_DELETE, "\\u007f")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether ``stream`` is a terminal. False for a stream that was closed before this process started."""
    return stream is not None and stream.isatty()


Rows = Sequence[Sequence[object] | str]
"""Rows of cells; or texts, each a line of its own."""


def aligned(headers: Sequence[object], rows: Rows, width: int | None, *, shortens: bool = False) -> list[str]:
    """The lines of a table. Columns are as wide as their widest cell, None is ``-``, every cell is escaped.

    With ``width``, rows that do not fit continue in indented lines, and cells that do not fit on a line of their own
    continue below themselves. But with ``shortens``, if only the last cell does not fit, it is cut. No continuation
    begins in the first column, where a cell could fake a row. A row that is a text is a line of its own, escaped.
    """
    cells = _cells(headers, rows)
    widths = _widths(cells)
    parts = _parts(widths, width)
    if shortens and width is not None and len(parts) == 1:
        room = width - sum(wide + len(GAP) for wide in widths[:-1])
        cells = [[*line[:-1], _shortened(line[-1], room)] for line in cells]
    aligned_rows = (_row(line, widths, parts, width) for line in cells)
    return list(
        chain.from_iterable(
            [printable(row)] if isinstance(row, str) else next(aligned_rows) for row in (headers, *rows)
        )
    )


def kept_columns(headers: Sequence[object], rows: Rows, width: int, least: Sequence[str]) -> list[int]:
    """The columns that remain if the ``least`` ones are left out, one after the other, until every row fits into
    ``width``, apart from the end of its last cell."""
    widths, kept = _widths(_cells(headers, rows)), [*range(len(headers))]
    for name in least:
        if len(_parts([widths[column] for column in kept], width)) == 1:
            break
        kept = [column for column in kept if headers[column] != name]
    return kept


def _cells(headers: Sequence[object], rows: Rows) -> list[list[str]]:
    return [
        [printable("-" if cell is None else str(cell)) for cell in row]
        for row in (headers, *rows)
        if not isinstance(row, str)
    ]


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(columns, column)) for column in zip(*cells, strict=True)]


def columns(text: str) -> int:
    """The width of ``text`` on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 1 + (east_asian_width(c) in "WF") for c in text)


def _parts(widths: list[int], width: int | None) -> list[range]:
    """The columns of each line: as many as fit. The last column counts as fitting if `READABLE` of its width does."""
    parts, first, used = [], 0, 0
    for column, wide in enumerate(widths):
        needed = min(wide, READABLE) if column == len(widths) - 1 else wide
        if width is not None and column > first and used + needed > width:
            parts.append(range(first, column))
            first, used = column, len(FOLDED)
        used += wide + len(GAP)
    return [*parts, range(first, len(widths))]


def _row(line: list[str], widths: list[int], parts: list[range], width: int | None) -> Iterator[str]:
    for number, part in enumerate(parts):
        start = FOLDED if number else ""
        text = start + "".join(line[c] + " " * (widths[c] - columns(line[c])) + GAP for c in part[:-1])
        last, below = line[part[-1]], " " * max(columns(text), len(FOLDED))
        if width is None or columns(text) + columns(last) <= width:
            yield (text + last).rstrip()
            continue
        widest = max((columns(found[0]) for found in _WORD.finditer(last)), default=0)
        if width - len(below) < widest <= width - len(FOLDED):  # a path, which a person will copy
            yield text.rstrip()
            text = below = FOLDED
        for piece in _pieces(last, width - len(below)):
            yield (text + piece).rstrip()
            text = below


def _pieces(text: str, width: int) -> Iterator[str]:
    """``text`` in pieces of at most ``width`` columns. It is broken between words, and within a word that is wider than
    that."""
    piece, end = "", 0
    for found in _WORD.finditer(text):
        gap, end = text[end : found.start()], found.end()
        for word in [found[0]] if columns(found[0]) <= width else found[0].split(" "):
            if piece and columns(piece + gap + word) > width:
                yield piece
                piece = gap = ""
            piece, gap = piece + gap + word, " "
            while columns(piece) > width and len(piece) > 1:
                fits = _fitting(piece, width)
                yield piece[:fits]
                piece = piece[fits:]
    yield piece


def _shortened(text: str, width: int) -> str:
    return text if columns(text) <= width else text[: _fitting(text, width - 1)] + "…"


def _fitting(text: str, width: int) -> int:
    """How many characters of ``text`` fit into ``width`` columns. At least one."""
    used = 0
    for position, c in enumerate(text):
        used += columns(c)
        if used > width:
            return max(1, position)
    return len(text)
