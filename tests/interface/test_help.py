"""``--help``: examples that are valid, defaults of the settings, exit codes."""

from __future__ import annotations

import re
import shlex
from typing import Any

import click
import pytest

from pollconsumer.core import errors
from pollconsumer.interface.cli.group import EXIT_CODES, SEE_ALL, group
from tests.interface.test_text_from_outside import COMMANDS


def examples_of(name: str) -> list[str]:
    command: click.Command = group
    for word in name.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(group), word)
        assert found is not None
        command = found
    return [line.strip() for line in str(command.epilog).splitlines() if line.startswith("  pollconsumer")]


EXAMPLES = {name: examples_of(name) for name in COMMANDS}
LINES = [(name, line) for name, lines in EXAMPLES.items() for line in lines]


def test_every_command_has_an_example() -> None:
    assert [name for name, lines in EXAMPLES.items() if not lines] == []


@pytest.mark.parametrize(("name", "line"), LINES)
def test_an_example_is_a_command_line_of_its_command_that_click_takes(name: str, line: str) -> None:
    program, *arguments = shlex.split(line.partition(" >>")[0])
    assert program == "pollconsumer"
    command: click.Command = group
    context = command.make_context(program, arguments)
    read = []
    while isinstance(command, click.Group):
        word, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])  # noqa: SLF001  click has no other way
        assert found is not None
        read.append(word)
        command, context = found, found.make_context(word, rest, parent=context)
    assert " ".join(map(str, read)) == name


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_help_of_a_command_ends_with_its_examples_and_where_exit_codes_are(name: str, run: Any) -> None:
    code, out, err = run(*name.split(), "--help")
    assert (code, err) == (0, "")
    lines = [line.strip() for line in out.splitlines()]
    assert lines[-1] == SEE_ALL
    assert lines[-2 - len(EXAMPLES[name]) : -2] == [*EXAMPLES[name]]


def test_the_help_of_the_program_has_every_exit_code_of_an_error(run: Any) -> None:
    out = run("--help")[1]
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and hasattr(each, "exit_code")]
    codes = {str(kind.exit_code) for kind in kinds} | {"124", "130", "143"}
    assert codes <= {code for written in EXIT_CODES for code in written.split(", ")}
    for code, meaning in EXIT_CODES.items():
        assert re.search(rf"^ +{code} +{re.escape(meaning)}$", out, re.MULTILINE)


@pytest.mark.parametrize("name", sorted({name.split()[0] for name in EXAMPLES if " " in name}))
def test_the_list_of_the_commands_of_a_group_says_all_of_each_line(name: str, run: Any) -> None:
    listed = run(name, "--help")[1].partition("Commands:")[2].partition("Exit codes:")[0].strip()
    assert listed
    assert "..." not in listed


@pytest.mark.parametrize(
    ("command", "option", "default"),
    [
        ("run", "--timeout", "1m"),
        ("run", "--idle-time", "5s"),
        ("run", "--tolerance-factor", "5"),
        ("run", "--concurrency", "1"),
        ("run", "--handoff", "deadline"),
        ("run", "--launcher", "auto"),
        ("run", "--schedule", None),
        ("run", "--min-margin", None),
        ("run", "--until-empty", None),
        ("move", "--idle-time", "1s"),
        ("move", "--page-size", "250"),
    ],
)
def test_an_option_of_a_launch_shows_the_default_of_its_setting(
    command: str, option: str, default: str | None, run: Any
) -> None:
    text = run(command, "--help")[1].partition("Options:")[2].partition("Example")[0]
    described = re.split(r"\n  (?=-)", text)
    (found,) = [" ".join(each.split()) for each in described if each.split()[:1] == [option]]
    assert re.findall(r"\[default: (.*?)\]", found) == ([] if default is None else [default])
