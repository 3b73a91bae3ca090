"""Prints all output of commands: JSON for programs, escaped text for people.

Output is flushed at once, so that a closed or full output raises OSError, which `cli.main` handles. On a terminal,
tables stay within its width. Elsewhere each row is one line."""

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
"""Indentation of the lines on which a table's row continues."""
READABLE = 20
"""If fewer columns are left for a row's last cell, the cell gets a line of its own."""
_WORD = re.compile(r"""[(\[:=,]*(?<!\w)(['"`]).*?\1(?!\w)\S*|\S+""")
"""Text that no line break may divide: a word, or quoted text such as a command."""


def note_json(context: click.Context, option: click.Parameter, value: bool) -> None:
    """The callback of the option ``--json``. It records whether the option was given."""
    del option
    context.meta[_WANTS_JSON] = value


def wants_json() -> bool:
    """Whether ``--json`` was given to the running command."""
    return bool(click.get_current_context().meta.get(_WANTS_JSON))


def printed_as_json(value: object) -> bool:
    """If ``--json`` was given, print ``value``, an object or an array, on one line. An iterator becomes an array, whose
    elements are printed as they come, each on a line. Returns whether ``--json`` was given."""
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
    """Print ``value``, an object or an array, as JSON on one line. Times in it must be strings already."""
    click.echo(_json(value))


def write_json(output: BinaryIO, value: object) -> None:
    """Write ``value`` as JSON on one line of ``output``, a file or standard output."""
    output.write(_json(value).encode() + b"\n")


def print_table(
    headers: Sequence[object], rows: Rows, least: Sequence[str] = (), columns: Sequence[int] | None = None
) -> Sequence[int]:
    """Print a table. Columns are as wide as their widest cell, and None is ``-``. A row that is a text is a line of its
    own. On a narrow terminal the columns with the headers ``least`` are left out, the first one first, and the last
    cell is shortened. Returns the columns shown; ``columns``: those that an earlier part of the table showed."""
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
    """The row of a property, in a list, for a table with a property a line. Empty if ``value`` is empty."""
    return [(name, value)] if value else []


def span(seconds: float | None) -> str | None:
    """A duration for a table, with its sign. None if ``seconds`` is None."""
    if seconds is None:
        return None
    return format_duration(seconds) if seconds >= 0 else f"-{format_duration(-seconds)}"


def print_lines(lines: Iterable[object]) -> None:
    """Print each of ``lines`` on one line: as text, or as JSON if ``--json`` was given. They are written in pieces that
    a pipe takes as a whole, so Ctrl-C cuts off no line."""
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
    """Wrap long work that changes the store. If Ctrl-C, SIGTERM or SIGHUP ends the work, or input or output fails, a
    line on standard error says what was ``done``. ``lost``: also if the store is lost after something was done."""
    try:
        with raising_terminations():
            yield
    except (KeyboardInterrupt, OSError, StoreUnreachable) as error:
        if not isinstance(error, StoreUnreachable) or (lost and not done().startswith("0 ")):
            print_notice(f"interrupted: {done()}")
        raise


def note_more(values: Iterator[object], limit: int) -> None:
    """Tell a person at the terminal if ``values`` has more than the ``limit`` that were printed."""
    if is_terminal(sys.stderr) and next(values, None) is not None:
        print_notice(f"the first {limit} are shown; --limit shows more")


def print_help(text: str) -> None:
    """Print the help on standard error if no command was named."""
    click.echo(text, err=True)


def ask(question: str) -> None:
    """Ask a person at a terminal; unless the answer is yes, abort the command. Without a terminal, go on."""
    if is_terminal(sys.stdin) and is_terminal(sys.stderr):
        lift()
        click.confirm(question, abort=True, err=True)


def progress_bar(length: int | None, *, shown: bool) -> AbstractContextManager[Any]:
    """A progress bar on standard error, if that is a terminal. ``update(n)`` advances it. Without ``length`` it shows a
    count only."""
    hidden = not (shown and is_terminal(sys.stderr))
    if length is None:
        return click.progressbar(count(), show_pos=True, file=sys.stderr, hidden=hidden)
    return click.progressbar(length=length, file=sys.stderr, hidden=hidden)


def json_text(value: object) -> str:
    """``value`` as JSON that a person can read and copy. Only invisible characters are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if printable(text) == text else "".join(c if printable(c) == c else _json(c)[1:-1] for c in text)


def was_printing(error: OSError) -> bool:
    """Whether ``click.echo``, which prints all output, raised ``error``."""
    return any(frame.f_code is click.echo.__code__ for frame, _ in walk_tb(error.__traceback__))


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False).replace(_DELETE, "\\u007f")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether ``stream`` is a terminal. False if it was closed before this process started."""
    return stream is not None and stream.isatty()


Rows = Sequence[Sequence[object] | str]
"""Rows of a table: cells, or a text that is a line of its own."""


def aligned(headers: Sequence[object], rows: Rows, width: int | None, *, shortens: bool = False) -> list[str]:
    """The lines of a table. Columns are as wide as their widest cell, None is ``-``, every cell is escaped.

    With ``width``, a row that is too wide continues on indented lines, and a cell that is wider than a line continues
    below itself. With ``shortens``, a last cell that alone does not fit is cut instead. No continuation begins in the
    first column, where a cell could fake a row. A row that is a text is a line of its own, escaped."""
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
    """The columns to show. Those of ``least`` are left out, one after the other, until every row fits into ``width``,
    apart from the end of its last cell."""
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
    """The columns on each line of a row, as many as fit. The last column fits if `READABLE` of its width does."""
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
    """``text`` in pieces of at most ``width`` columns, broken between words, and within words that are wider."""
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
    """How many characters of ``text`` fit into ``width`` columns, but at least one."""
    used = 0
    for position, c in enumerate(text):
        used += columns(c)
        if used > width:
            return max(1, position)
    return len(text)
