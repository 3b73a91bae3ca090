"""The sections of commands in the configuration: what they may say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.retry import Backoff
from pollconsumer.interface.assembly.handlers import load_commands
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.interface.settings.model import CommandSettings
from pollconsumer.runtime.children.command import Programs

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = """
[commands."mail.send: now!"]
command = ["true", "a b"]
timeout = "10m"
kill_after = 3
queue = "mail"
max_attempts = 7
retry = { first = "2s", factor = 3, most = "1m", jitter = 0 }
fatal = [64, 65]
environment = ["TOKEN"]
directory = "work"
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_key_is_read(place: Path) -> None:
    (place / "config.toml").write_text(WHOLE.replace(": now!", ""))
    read = load_settings()
    assert read.commands == {
        "mail.send": CommandSettings(
            command=("true", "a b"),
            timeout=600.0,
            kill_after=3.0,
            queue="mail",
            max_attempts=7,
            retry={"first": "2s", "factor": 3, "most": "1m", "jitter": 0},
            fatal=(64, 65),
            environment=("TOKEN",),
            directory="work",
        )
    }


def test_a_handler_is_made_of_it(place: Path) -> None:
    (place / "work").mkdir()
    (place / "config.toml").write_text(WHOLE.replace(": now!", ""))
    handler = load_commands(load_settings(), Programs(place / "programs", pytest.fail))["mail.send"]
    assert (handler.queue, handler.max_attempts, handler.takes_context, handler.timeout) == ("mail", 7, True, 600.0)
    assert isinstance(handler.retry, Backoff)
    assert [handler.retry.delay(attempt, 0.5) for attempt in (1, 2, 9)] == [2.0, 6.0, 60.0]


def test_what_a_program_was_told_is_no_setting(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "config.toml").write_text('[commands.x]\ncommand = ["true"]\n')
    read = load_settings()
    for message in ("m1", "m2"):
        monkeypatch.setenv("POLLCONSUMER_MESSAGE_ID", message)
        monkeypatch.setenv("POLLCONSUMER_QUEUE", "mail")
        assert load_settings() == read


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (WHOLE, "commands: handler name"),
        ('[commands.x]\ncommand = "ls -l"', "commands.x.command: ls -l; expected a list"),
        ("[commands.x]\ncommand = 3", "commands.x.command: 3; expected a list"),
        ('[commands.x]\ncommand = ["a", 3]', "commands.x.command: 3; expected text"),
        ('[commands.x]\ncommand = ["a\\u0000"]', "NUL"),
        ('[commands.x]\ncomand = ["a"]', "commands.x.comand; did you mean command?"),
        ('[commands.x]\ncommand = ["a"]\ntimeout = 0', "commands.x.timeout: 0; must be > 0"),
        ('[commands.x]\ncommand = ["a"]\ntimeout = "soon"', "commands.x.timeout: soon; units are"),
        ('[commands.x]\ncommand = ["a"]\nkill_after = "-1s"', "commands.x.kill_after"),
        ('[commands.x]\ncommand = ["a"]\nqueue = "a b"', "commands.x.queue: a b"),
        ('[commands.x]\ncommand = ["a"]\nmax_attempts = "3"', "commands.x.max_attempts: 3; expected an integer"),
        ('[commands.x]\ncommand = ["a"]\nmax_attempts = 0', "commands.x.max_attempts: 0; must be 1"),
        ('[commands.x]\ncommand = ["a"]\nfatal = [0]', "commands.x.fatal: [0]; expected a list of exit codes"),
        ('[commands.x]\ncommand = ["a"]\nfatal = 64', "commands.x.fatal: 64; expected a list of exit codes"),
        ('[commands.x]\ncommand = ["a"]\nfatal = ["64"]', "commands.x.fatal: ['64']; expected a list of exit codes"),
        ('[commands.x]\ncommand = ["a"]\nenvironment = ["A=secret"]', "commands.x.environment: A; name variables"),
        ('[commands.x]\ncommand = ["a"]\nretry = { frist = 1 }', "commands.x.retry: unknown key 'frist'"),
        (
            '[commands.x]\ncommand = ["a"]\nretry = { first = "soon" }',
            "commands.x.retry: first: soon; write a duration",
        ),
        ('[commands.x]\ncommand = ["a"]\nretry = { first = "1h" }', "commands.x.retry: backoff: first"),
        ('[commands.x]\ncommand = ["a"]\nretry = { factor = 0 }', "factor 0 must be 1 or more"),
        ('[commands.x]\ncommand = ["a"]\nretry = { factor = "2" }', "factor: 2; expected a number"),
        ("[commands]\nx = 3", "commands.x: 3; expected a section of keys"),
    ],
)
def test_what_cannot_be_meant_is_refused(place: Path, section: str, said: str) -> None:
    (place / "config.toml").write_text(section)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
