"""Words of other queues: whoever types one is told what it is called here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.errors import COMMANDS, FLAGS, OPTIONS, STATES, suggestion
from pollconsumer.core.lifecycle import State
from pollconsumer.interface.cli.group import COMMANDS as OURS
from pollconsumer.runtime.new_messages import SendOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.toml").write_text("# all defaults\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("word", COMMANDS)
def test_a_command_of_another_queue_is_answered_with_ours(word: str, run: Run) -> None:
    assert word not in OURS
    assert run(word, "x") == (
        2, "", f"pollconsumer: error: unknown command: {word}; did you mean {COMMANDS[word]}?\n",
    )  # fmt: skip


@pytest.mark.parametrize("command", sorted(set(COMMANDS.values())))
def test_each_command_that_is_named_exists(command: str, run: Run) -> None:
    path, _, state = command.partition(" --state ")
    assert run(*path.split(), "--help")[0] == 0
    assert not state or (path == "list" and State(state))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("dead retry", "dead redrive"),
        ("batch retry", "batch redrive"),
        ("queue flush", "queue purge"),
        ("queue retry", "dead redrive"),
        ("recurrences suspend", "recurrences pause"),
        ("dead delete", "dead purge"),
        ("recurrences delete", "recurrences remove"),
        ("batch kill", "batch cancel"),
        ("queue rm", "queue purge"),
        ("queue stop", "queue pause"),
        ("dead ls", "dead list"),
        ("queue strat", None),
    ],
)
def test_within_a_group_the_command_of_that_group_is_meant(given: str, meant: str | None, run: Run) -> None:
    code, _, error = run(*given.split())
    assert (code, f"; did you mean {meant}?" in error) == (2, meant is not None)


@pytest.mark.parametrize("word", STATES)
def test_a_state_of_another_queue_is_answered_with_ours(word: str, run: Run) -> None:
    assert STATES[word] in [*State]
    meant = f"'{word}'; did you mean {STATES[word]}?"
    assert run("list", "--state", word) == (2, "", f"pollconsumer: error: --state: {meant}\n")
    with pytest.raises(ValueError, match=f"^state: {meant[:-1]}"):
        PollConsumer().messages(state=word)  # type: ignore[arg-type]


@pytest.mark.parametrize("word", OPTIONS)
def test_an_option_of_another_queue_is_answered_with_ours(word: str) -> None:
    known = [*SendOptions.__annotations__, "retry", "timezone"]  # the last one is of every
    assert suggestion(word, known).strip("?").rpartition(" ")[2].strip("_") == OPTIONS[word]


@pytest.mark.parametrize("word", FLAGS)
def test_a_flag_of_another_queue_is_answered_with_ours(word: str, run: Run) -> None:
    typed, meant = (f"--{each.replace('_', '-')}" for each in (word, FLAGS[word]))
    assert run("run", typed) == (
        2, "", f"pollconsumer: error: unknown option: {typed}; did you mean {meant}?\n",
    )  # fmt: skip


def test_a_word_that_is_known_here_is_meant_itself() -> None:
    assert suggestion("running_", ["running", "reserved"]) == "did you mean running?"
    assert suggestion("runing", ["running", "queue"]) == "did you mean running?"
    assert suggestion("running", ["runnings", "queue"]) == "did you mean runnings?"
