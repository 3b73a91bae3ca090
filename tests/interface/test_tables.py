"""Tables keep to the width of a terminal, lose nothing there, and no cell can pass for a row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.interface.cli import output
from pollconsumer.interface.cli.messages.dead import LEAST, print_messages
from pollconsumer.interface.cli.output import FOLDED, aligned, columns
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.records.rows import BLANK, read_row
from tests.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.site import Site


LIST = ("id", "queue", "handler", "state", "attempts", "at", "last error")
DEAD = ("k" * 26, "default", "mail.send", "dead", 5, "2030-01-31T09:00:00.000Z", "ValueError: " + "abcde" * 5)


def test_without_a_width_a_row_is_a_line() -> None:
    lines = aligned(LIST, [DEAD, DEAD], None)
    assert len(lines) == 3
    assert lines[1].split("  ")[-1] == str(DEAD[-1]).rstrip()


def test_a_table_that_fits_is_as_it_is_without_a_width() -> None:
    rows = [("a", None), ("b\n", 2)]
    assert aligned(("name", "n"), rows, 40) == aligned(("name", "n"), rows, None) == ["name  n", "a     -", "b\\n   2"]


def test_a_row_that_does_not_fit_goes_on_in_lines_of_its_own() -> None:
    assert aligned(LIST, [DEAD], 60) == [
        "id                          queue    handler    state",
        "    attempts  at                        last error",
        "kkkkkkkkkkkkkkkkkkkkkkkkkk  default  mail.send  dead",
        "    5         2030-01-31T09:00:00.000Z",
        "    ValueError: abcdeabcdeabcdeabcdeabcde",
    ]


def test_a_value_beside_its_name_goes_on_below_itself() -> None:
    assert aligned(("id", "x"), [("payload", "abcdefghij" * 3 + " state  completed")], 30) == [
        "id       x",
        "payload  abcdefghijabcdefghija",
        "         bcdefghij state",
        "         completed",
    ]


def test_a_line_is_broken_at_spaces_and_never_within_a_command_that_is_to_be_copied() -> None:
    what = "others' messages wait meanwhile: 'pollconsumer init cron --queue slow'; or (see 'run --help')"
    assert aligned(("long work", what), [], 56) == [
        "long work  others' messages wait meanwhile:",
        "           'pollconsumer init cron --queue slow'; or",
        "           (see 'run --help')",
    ]
    too_long = "'" + "word " * 10 + "end'"
    assert aligned(("x", too_long), [], 20) == [
        "x", "    'word word word", "    word word word", "    word word word", "    word end'",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("width", "missing", "error"),
    [
        (130, [], "ValueError: abcdeabcdeabcdeabcdeabcde"),
        (110, ["attempts"], "ValueError: abcdeabcdeabcdea…"),
        (80, ["queue", "attempts", "at"], "ValueError: abcdeabcdeabcdeabcdea…"),
        (70, ["queue", "attempts", "at"], "ValueError: abcdeabcdea…"),
    ],
)
def test_a_narrow_terminal_does_without_the_least_columns_and_says_so(
    width: int,
    missing: list[str],
    error: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    columns = output.print_table(LIST, [DEAD], LEAST)
    shown = capsys.readouterr()
    header, row = shown.out.splitlines()
    assert header.split("  ")[0] == "id"
    assert [name for name in LIST if name not in header.split()] == [*missing, "last error"]
    assert row.startswith("k" * 26)
    assert row.endswith(error)
    assert [LIST[column] for column in columns] == [name for name in LIST if name not in missing]
    said = f"pollconsumer: too narrow for {', '.join(missing)}; --json has all\n"
    assert shown.err == (said if missing else "")
    assert output.print_table(LIST, [DEAD], LEAST, columns) == columns
    assert capsys.readouterr() == (shown.out, ""), "a later page of the list"


def test_wide_characters_take_two_columns_and_marks_none() -> None:
    assert columns("漢é") == 3
    assert columns("e\u0301") == 1
    assert aligned(("name", "n"), [("漢字", 1), ("ab", 2)], None) == ["name  n", "漢字  1", "ab    2"]


tables = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.text(max_size=40), min_size=n, max_size=n), min_size=1, max_size=5)
)


@given(tables, st.integers(12, 100))
def test_no_line_is_wider_than_the_terminal_and_no_character_is_lost(rows: Sequence[Sequence[str]], width: int) -> None:
    wide, narrow = (aligned(rows[0], rows[1:], limit) for limit in (None, width))
    assert all(columns(line) <= width for line in narrow)
    for together in (wide, narrow):
        assert re.sub(r"\s", "", "".join(together)) == re.sub(r"\s", "", "".join(wide))


@given(tables, st.integers(12, 100))
def test_only_a_row_begins_at_the_margin(rows: Sequence[Sequence[str]], width: int) -> None:
    rows = [["x" + row[0], *row[1:]] for row in rows]
    assert sum(not line.startswith(FOLDED) for line in aligned(rows[0], rows[1:], width) if line) == len(rows)


def test_only_a_terminal_limits_the_width(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    output.print_table(LIST, [DEAD])
    assert len(capsys.readouterr().out.splitlines()) == 2
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.print_table(LIST, [DEAD])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_a_list_is_printed_a_page_at_a_time_under_one_header(
    count: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.interface.cli.messages.dead.PAGE", 2)
    row = read_row(BLANK)
    with click.Context(click.Command("list")):
        print_messages((Message(f"m{n}", "mail", row, {}, None) for n in range(count)), 100)
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.startswith("id ")
    assert [line.split()[0] for line in lines] == [f"m{n}" for n in range(count)]


def test_at_80_columns_each_row_is_a_line_and_no_word_is_broken(site: Site) -> None:
    (site.directory / "config.toml").write_text(
        '[commands.render]\ncommand = ["false"]\nmax_attempts = 1\ntimeout = "5m"\n'
        '[commands.mail]\ncommand = ["true"]\n'
    )
    site.enqueue("render")
    for _ in range(2):
        site.drain()
    site.command("recurrences", "add", "check:42", "mail", "--every", "1h")
    for command, lines in {"list": 1, "dead list": 1, "launches": 2, "queue list": 1, "recurrences list": 1}.items():
        with Terminal(site, command=tuple(command.split()), columns=80) as terminal:
            shown = terminal.read_to_the_end().splitlines()
        table = [line for line in shown if not line.startswith("pollconsumer: too narrow for ")]
        assert [line for line in table if len(line) > 80] == [], command
        assert len(table) == 1 + lines, (command, shown)
    with Terminal(site, command=("check",), columns=80) as terminal:
        checked = terminal.read_to_the_end()
    assert "'pollconsumer init cron --install --queue render'" in checked
    words = set(site.command("check").stdout.split())
    unbroken = {word for word in words if len(word) < 40}
    assert unbroken - set(checked.split()) <= {word for word in words if "T" in word}, "instants may differ"
