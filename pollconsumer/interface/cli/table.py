"""Columns of text, laid out for the width at hand."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING
from unicodedata import combining, east_asian_width

from pollconsumer.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GAP = "  "
FOLDED = "    "
"""What the further lines of a row begin with, where it takes several."""
READABLE = 20
"""Columns that a last cell is given at least before it is put on a line of its own."""


def lay_out(headers: Sequence[str], rows: Sequence[Sequence[object]], width: int | None) -> list[str]:
    """The lines of a table, columns as wide as their widest cell, None as ``-``, every cell escaped.

    No line is wider than ``width``, where one is given: a row that does not fit goes on in further lines, indented,
    and a cell that does not fit on a line of its own goes on below itself. Nothing is cut, for ids are there to be
    copied, and no continuation begins where a row begins, or a cell could fake one.
    """
    lines = [[printable("-" if cell is None else str(cell)) for cell in row] for row in (headers, *rows)]
    widths = [max(map(columns, column)) for column in zip(*lines, strict=True)]
    parts = _parts(widths, width)
    return list(chain.from_iterable(_row(line, widths, parts, width) for line in lines))


def columns(text: str) -> int:
    """How many columns of a terminal ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 1 + (east_asian_width(c) in "WF") for c in text)


def _parts(widths: list[int], width: int | None) -> list[range]:
    """Which columns share a line: as many as fit; the last one beside them if enough of it does."""
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
