"""Lays out tables of text that wrap within a given width.

Not by rich, whose import would lengthen every command, and which cuts cells or breaks them anywhere: ids are to be
copied, and no part of a cell may look like a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from unicodedata import combining, east_asian_width

from pollconsumer.core.notation.text import printable

GAP = "  "
FOLDED = "    "
"""Indentation of a row's continuation lines."""
READABLE = 20
"""Minimum columns of a last cell, before it gets a separate line."""


def lay_out(headers: Sequence[object], rows: Sequence[Sequence[object] | str], width: int | None) -> list[str]:
    """The lines of a table, columns as wide as their widest cell, None as ``-``, every cell escaped.

    If ``width`` is given, rows that do not fit continue in indented lines, and cells that do not fit on a separate line
    continue below themselves. Nothing is cut, since ids are to be copied, and no continuation begins in the first
    column, where a cell could fake a row. A row that is a text is a line of its own, escaped.
    """
    cells = [
        [printable("-" if cell is None else str(cell)) for cell in row]
        for row in (headers, *rows)
        if not isinstance(row, str)
    ]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    parts = _parts(widths, width)
    laid_out = (_row(line, widths, parts, width) for line in cells)
    return list(
        chain.from_iterable([printable(row)] if isinstance(row, str) else next(laid_out) for row in (headers, *rows))
    )


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
        for piece in _pieces(last, width - len(below)):
            yield (text + piece).rstrip()
            text = below


def _pieces(text: str, width: int) -> Iterator[str]:
    """``text`` in pieces of at most ``width`` columns."""
    piece, used = "", 0
    for c in text:
        wide = columns(c)
        if piece and used + wide > width:
            yield piece
            piece, used = "", 0
        piece, used = piece + c, used + wide
    yield piece
