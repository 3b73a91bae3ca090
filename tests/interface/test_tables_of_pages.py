"""A table that a page shows is as a command prints it: the words of its head, its columns, their widths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pollconsumer.interface.cli.output import aligned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.site import Site

ROOT = Path(__file__).parents[2]
DRAWN = ("docs/architecture.md", "docs/reference/", "docs/evidence/")
"""Pages with drawings and charts, and pages that are made from what commands print."""
LEFT_OUT = "…"
Table = list[list[str]]


def pages() -> Iterator[tuple[str, str]]:
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(DRAWN):
            yield name, path.read_text("utf-8")


def cells_of(line: str) -> list[str]:
    return re.split(r" {2,}", line)


def tables_of(page: str) -> Iterator[tuple[list[str], Table]]:
    """The lines of each table in blocks of output, and its cells."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for lines in (text.splitlines() for language, text in blocks if language in ("", "text")):
        at = 0
        while at < len(lines):
            head = cells_of(lines[at])
            end = at + 1
            while end < len(lines) and len(cells_of(lines[end])) == len(head):
                end += 1
            if len(head) > 2 and end > at + 1:
                yield lines[at:end], [cells_of(line) for line in lines[at:end]]
            at = end


SHOWN = [
    pytest.param(lines, cells, id=f"{name}: {' '.join(cells[0]).strip()}")
    for name, page in pages()
    for lines, cells in tables_of(page)
]


def test_pages_show_tables() -> None:
    assert len(SHOWN) >= 3


@pytest.mark.parametrize(("lines", "cells"), SHOWN)
def test_a_table_of_a_page_is_laid_out_as_commands_do(lines: list[str], cells: Table) -> None:
    assert lines == aligned(cells[0], cells[1:], None)


@pytest.mark.ends_with(1)
def test_the_heads_of_tables_of_pages_are_those_that_commands_print(site: Site) -> None:
    site.enqueue("fatal", "--id", "f")
    site.enqueue("record", "--in", "1h", name="b")
    site.drain()
    commands = [("list",), ("dead", "list"), ("launches",), ("queue", "list"), ("status",), ("interventions",)]
    printed = [cells_of(line) for words in commands for line in site.command(*words).stdout.splitlines()]
    for name, page in pages():
        for _, (head, *_) in tables_of(page):
            assert any(is_part_of(head, each) for each in printed), (name, head)


def is_part_of(head: list[str], printed: list[str]) -> bool:
    """Whether the head of a page is one that is printed, from its first column to its last, perhaps with some left out
    where it says so."""
    if LEFT_OUT not in head:
        return head == printed
    before, after = head[: head.index(LEFT_OUT)], head[head.index(LEFT_OUT) + 1 :]
    return printed[: len(before)] == before and printed[-len(after) :] == after


@pytest.mark.parametrize("row", ["1  2  3", "1    20  3"])
def test_a_table_whose_columns_are_not_those_of_the_widest_cells_is_found(row: str) -> None:
    ((lines, cells),) = tables_of(f"```\na    b  c\n{row}\n```\n")
    assert lines != aligned(cells[0], cells[1:], None)
