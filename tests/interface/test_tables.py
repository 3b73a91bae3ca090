"""Tables keep to the width of a terminal, lose nothing there, and no cell can pass for a row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.interface.cli import output
from pollconsumer.interface.cli.messages.list import print_messages
from pollconsumer.interface.cli.table import FOLDED, columns, lay_out
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.records.rows import BLANK, read_row

if TYPE_CHECKING:
    from collections.abc import Sequence


LIST = ("id", "queue", "handler", "state", "attempts", "at", "last error")
DEAD = ("k" * 26, "default", "mail.send", "dead", 5, "2030-01-31T09:00:00.000Z", "ValueError: " + "abcde" * 5)


def test_without_a_width_a_row_is_a_line() -> None:
    lines = lay_out(LIST, [DEAD, DEAD], None)
    assert len(lines) == 3
    assert lines[1].split("  ")[-1] == str(DEAD[-1]).rstrip()


def test_a_table_that_fits_is_as_it_is_without_a_width() -> None:
    rows = [("a", None), ("b\n", 2)]
    assert lay_out(("name", "n"), rows, 40) == lay_out(("name", "n"), rows, None) == ["name  n", "a     -", "b\\n   2"]


def test_a_row_that_does_not_fit_goes_on_in_lines_of_its_own() -> None:
    assert lay_out(LIST, [DEAD], 60) == [
        "id                          queue    handler    state",
        "    attempts  at                        last error",
        "kkkkkkkkkkkkkkkkkkkkkkkkkk  default  mail.send  dead",
        "    5         2030-01-31T09:00:00.000Z  ValueError: abcdeabc",
        "                                        deabcdeabcdeabcde",
    ]


def test_a_value_beside_its_name_goes_on_below_itself() -> None:
    assert lay_out(("id", "x"), [("payload", "abcdefghij" * 3 + " state  completed")], 30) == [
        "id       x",
        "payload  abcdefghijabcdefghija",
        "         bcdefghij state  comp",
        "         leted",
    ]


def test_wide_characters_take_two_columns_and_marks_none() -> None:
    assert columns("漢é") == 3
    assert columns("e\u0301") == 1
    assert lay_out(("name", "n"), [("漢字", 1), ("ab", 2)], None) == ["name  n", "漢字  1", "ab    2"]


tables = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.text(max_size=40), min_size=n, max_size=n), min_size=1, max_size=5)
)


@given(tables, st.integers(12, 100))
def test_no_line_is_wider_than_the_terminal_and_no_character_is_lost(rows: Sequence[Sequence[str]], width: int) -> None:
    wide, narrow = (lay_out(rows[0], rows[1:], limit) for limit in (None, width))
    assert all(columns(line) <= width for line in narrow)
    for together in (wide, narrow):
        assert re.sub(r"\s", "", "".join(together)) == re.sub(r"\s", "", "".join(wide))


@given(tables, st.integers(12, 100))
def test_only_a_row_begins_at_the_margin(rows: Sequence[Sequence[str]], width: int) -> None:
    rows = [["x" + row[0], *row[1:]] for row in rows]
    assert sum(not line.startswith(FOLDED) for line in lay_out(rows[0], rows[1:], width) if line) == len(rows)


def test_only_a_terminal_limits_the_width(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    output.print_table(LIST, [DEAD])
    assert len(capsys.readouterr().out.splitlines()) == 2
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.print_table(LIST, [DEAD])
    assert max(map(len, capsys.readouterr().out.splitlines())) == 60


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_a_list_is_printed_a_page_at_a_time_under_one_header(
    count: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.interface.cli.messages.list.PAGE", 2)
    row = read_row(BLANK)
    print_messages((Message(f"m{n}", "mail", row, {}, None) for n in range(count)), as_json=False)
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.startswith("id ")
    assert [line.split()[0] for line in lines] == [f"m{n}" for n in range(count)]
