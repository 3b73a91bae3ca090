"""Lays out tables of text within a given width.

Not by rich, whose import would lengthen every command, and which breaks cells anywhere: ids and commands are to be
copied, and no part of a cell may look like a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from unicodedata import combining, east_asian_width

from pollconsumer.core.notation.text import printable

GAP = "  "
FOLDED = "    "
"""Indentation of a row's continuation lines."""
READABLE = 20
"""Minimum columns of a last cell, before it gets a separate line."""


_WORD = re.compile(r"""[(\[:=,]*(?<!\w)(['"`]).*?\1(?!\w)\S*|\S+""")
"""What no line breaks: a word, or what is quoted, as a command."""
Rows = Sequence[Sequence[object] | str]
"""Rows of cells, or lines of their own."""


def lay_out(headers: Sequence[object], rows: Rows, width: int | None, *, shortens: bool = False) -> list[str]:
    """The lines of a table, columns as wide as their widest cell, None as ``-``, every cell escaped.

    If ``width`` is given, rows that do not fit continue in indented lines, and cells that do not fit on a separate line
    continue below themselves; but with ``shortens`` a last cell that is all that does not fit is cut. No continuation
    begins in the first column, where a cell could fake a row. A row that is a text is a line of its own, escaped.
    """
    cells = _cells(headers, rows)
    widths = _widths(cells)
    parts = _parts(widths, width)
    if shortens and width is not None and len(parts) == 1:
        room = width - sum(wide + len(GAP) for wide in widths[:-1])
        cells = [[*line[:-1], _shortened(line[-1], room)] for line in cells]
    laid_out = (_row(line, widths, parts, width) for line in cells)
    return list(
        chain.from_iterable([printable(row)] if isinstance(row, str) else next(laid_out) for row in (headers, *rows))
    )


def kept_columns(headers: Sequence[object], rows: Rows, width: int, least: Sequence[str]) -> list[int]:
    """The columns that remain where those ``least`` are left out, one after the other, until a row fits into ``width``
    but for the end of its last cell."""
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
    """The columns of each line: as many as fit, and the last column if `READABLE` of its width fits."""
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
        if width - len(below) < widest <= width - len(FOLDED):  # a path, which is to be copied
            yield text.rstrip()
            text = below = FOLDED
        for piece in _pieces(last, width - len(below)):
            yield (text + piece).rstrip()
            text = below


def _pieces(text: str, width: int) -> Iterator[str]:
    """``text`` in pieces of at most ``width`` columns, broken between words; within one that is wider than that."""
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
    """How many characters of ``text`` fit into ``width`` columns, at least one."""
    used = 0
    for place, c in enumerate(text):
        used += columns(c)
        if used > width:
            return max(1, place)
    return len(text)
