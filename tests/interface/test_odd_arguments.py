"""Every argument and option of every command with every odd value: none ends as a bug, none prints two lines, or one
that is long or acts on a terminal. A new parameter is tried without a line here."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from pollconsumer.interface import cli
from pollconsumer.interface.cli.group import group
from pollconsumer.interface.cli.types import MOST
from tests.conftest import NAMESPACE
from tests.core.test_text import is_harmless
from tests.interface.odd_values import LONG, WORDS
from tests.interface.test_text_from_outside import walk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.store.servers import Server

GIVEN = {
    "ID": "m", "NAME": "n", "HANDLER": "f", "FILE": "file", "SHELL": "bash", "PLATFORM": "cron", "FILE|-": "file",
    "PAYLOAD": "{}", "[PAYLOAD]": "{}", "ID...": "m", "[ID]...": "m", "DIR": "dir",
}  # fmt: skip
"""What stands for the required arguments beside the one in question, by their names in the help."""
UNTRIED = {"run", "move", "dashboard", "store start", "store stop", "store adopt", "store reopen"}
"""Commands that go on, or that have an effect outside of their store, whatever they are given: their options are tried
with values that are refused."""
OF_ALL = {"config", "verbosity", "quiet", "help"}
EXITS = {0, 1, 2, 65, 66, 73, 77, 78}
ENDLESS = {"watch", "serve"}


def leaves(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    with click.Context(command) as context:
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from leaves(found, f"{name} {each}".strip())


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    for name, command in leaves(group):
        for parameter in command.params:
            flag = isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count)
            if not flag and parameter.name not in OF_ALL | ENDLESS:
                yield name, parameter


PARAMETERS = {f"{name} {max(each.opts, key=len)}": (name, each) for name, each in parameters()}
COMMANDS = dict(leaves(group))


def arguments(command: str, parameter: click.Parameter, value: str) -> list[str]:
    """The command line with ``value`` for ``parameter``, and what else it needs."""
    words = command.split()
    if isinstance(parameter, click.Option):
        words.append(f"{max(parameter.opts, key=len)}={value}")
    beside = []
    for each in COMMANDS[command].params:
        if isinstance(each, click.Argument) and (each.required or each is parameter):
            metavar = each.make_metavar(click.Context(COMMANDS[command]))
            beside.append(value if each is parameter else GIVEN.get(metavar.strip("[]"), GIVEN.get(metavar, "m")))
    return [*words, "--", *beside]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("[commands.f]\ncommand = ['true']\n")
    monkeypatch.setattr("pollconsumer.interface.cli.opened.COMMAND_BUDGET", 5.0)
    return tmp_path


@pytest.mark.matrix
@pytest.mark.parametrize("name", [name for name, (command, _) in PARAMETERS.items() if command not in UNTRIED])
def test_no_value_of_a_parameter_is_a_bug(
    name: str, valkey: Server, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del place
    command, parameter = PARAMETERS[name]
    store = [] if parameter.name == "store" else ["--store", valkey.url]
    namespace = [] if parameter.name == "namespace" else ["--namespace", NAMESPACE]
    for kind, value in WORDS.items():
        if "\0" in value or (kind == "a URL" and parameter.name == "store"):
            continue  # no argument can hold the one, and nothing is asked of a host that does not exist
        code = cli.main([*store, *namespace, *arguments(command, parameter, value)])
        out, err = capsys.readouterr()
        assert code in EXITS, (kind, code, err[-500:])
        assert code != 1 or command == "doctor", (kind, err[-500:])
        assert "Traceback" not in err, (kind, err[-500:])
        assert "not an answer of Redis" not in err, (kind, err[-500:])
        errors = [line for line in err.splitlines() if line.startswith("pollconsumer: error: ")]
        assert len(errors) == (code not in (0, 1)), (kind, err[-500:])
        assert all(len(line) < 900 and is_harmless(line) for line in errors), (kind, errors[0][:900])
        assert all(is_harmless(line) for line in out.split("\n")), kind


@pytest.mark.parametrize("name", PARAMETERS)
def test_text_that_is_none_is_refused_and_every_number_has_an_end(name: str) -> None:
    command, parameter = PARAMETERS[name]
    if isinstance(parameter.type, click.IntRange):
        assert parameter.type.max is not None
        assert parameter.type.max <= MOST
    elif isinstance(parameter.type, click.types.StringParamType) and parameter.name != "store":
        with pytest.raises(click.BadParameter, match="must be UTF-8"):
            parameter.type.convert("caf\udce9", parameter, click.Context(COMMANDS[command]))


def test_every_parameter_is_tried() -> None:
    assert {command for command, _ in PARAMETERS.values()} | UNTRIED <= COMMANDS.keys() == set(walk(group))
    assert len(PARAMETERS) > 100


@pytest.mark.parametrize("limit", ["99999999999999999999", str(MOST + 1), "9" * 5000, LONG])
def test_a_limit_that_is_too_large_is_refused_in_a_short_line(
    limit: str, valkey: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("list", "dead list", "recurrences list", "batch list"):
        assert cli.main(["--store", valkey.url, *command.split(), "--limit", limit]) == 2
        assert len(capsys.readouterr().err) < 200


def test_an_argument_of_bytes_that_are_no_text_is_refused_by_a_process(valkey: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pollconsumer", "--store", valkey.url, "batch", "show", b"caf\xe9"],
        capture_output=True, check=False, timeout=90, env=os.environ,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, b"pollconsumer: error: ID: caf\\udce9; must be UTF-8\n")
