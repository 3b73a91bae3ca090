"""Completion, as a shell asks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.site import Site

HANDLERS = """
from pollconsumer import PollConsumer
print("imported")
app = PollConsumer()

@app.handler("mail.send", queue="mail")
def send(to: str) -> None: ...
"""
SETTINGS = """
handlers = ["senders"]
[queues.reports]
max_in_flight = 2
[commands.backup]
command = ["/bin/true"]
"""


@pytest.fixture
def installed(site: Site) -> Site:
    (site.directory / "config.toml").write_text(SETTINGS)
    (site.directory / "senders.py").write_text(HANDLERS)
    return site


def completed(site: Site, *words: str) -> list[str]:
    """What bash offers for the last of ``words``."""
    asked = {"COMP_WORDS": " ".join(("pollconsumer", *words)), "COMP_CWORD": str(len(words))}
    done = site.command(_POLLCONSUMER_COMPLETE="bash_complete", **asked)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.removeprefix("plain,") for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("ru",), ["run"]),
        (("run", "--until"), ["--until-empty"]),
        (("list", "--state", "ca"), ["cancelled"]),
        (("queue", "p"), ["pause", "purge"]),
        (("enqueue", ""), ["backup", "mail.send"]),
        (("dead", "redrive", "--handler", "m"), ["mail.send"]),
        (("run", "--queue", ""), ["default", "reports"]),
        (("queue", "pause", "r"), ["reports"]),
        (("--namespace", ""), []),
    ],
)
def test_commands_options_and_names_are_completed(installed: Site, words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(installed, *words) == offered


def test_queues_that_only_the_store_knows_are_completed_and_no_server_is_started_to_ask(installed: Site) -> None:
    assert completed(installed, "run", "--queue", "m") == []
    assert installed.command("store", "status").stdout == "stopped\n"
    installed.enqueue("backup", "--queue", "moved")
    assert completed(installed, "run", "--queue", "m") == ["moved"]


def test_recurrences_that_the_store_has_are_completed_wherever_one_is_named(installed: Site) -> None:
    assert completed(installed, "recurrences", "pause", "") == []
    for name in ("nightly", "next*", "weekly"):
        added = installed.command("recurrences", "add", name.replace("*", ".1"), "backup", "--every", "1h")
        assert added.returncode == 0
    for words in (
        ["recurrences", "remove"],
        ["recurrences", "next"],
        ["list", "--recurrence"],
        ["cancel", "--recurrence"],
    ):
        assert completed(installed, *words, "n") == ["next.1", "nightly"]
    assert completed(installed, "recurrences", "pause", "n*") == []


@pytest.mark.parametrize("broken", ["raise ValueError", "import nowhere", "import sys; sys.exit(3)"])
def test_what_cannot_be_imported_completes_nothing_and_says_nothing(installed: Site, broken: str) -> None:
    (installed.directory / "senders.py").write_text(broken)
    assert completed(installed, "enqueue", "") == ["backup"]


def test_an_invalid_configuration_completes_no_names(installed: Site) -> None:
    (installed.directory / "config.toml").write_text("colour = 1")
    assert completed(installed, "enqueue", "") == []
    assert completed(installed, "enq") == ["enqueue"]


def test_bash_completes_with_the_script_that_is_printed(installed: Site) -> None:
    script = (
        "source <(pollconsumer completion bash); COMP_WORDS=(pollconsumer enqueue mail); COMP_CWORD=2;"
        ' _pollconsumer_completion pollconsumer; echo "${COMPREPLY[@]}"'
    )
    environment = installed.environment | {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    asked = ["bash", "--norc", "-c", script]
    done = subprocess.run(asked, env=environment, cwd=installed.directory, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("mail.send\n", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_each_shell_asks_the_command(installed: Site, shell: str) -> None:
    done = installed.command("completion", shell)
    assert f"_POLLCONSUMER_COMPLETE={shell}_complete" in done.stdout
    assert installed.command("completion", "ksh").returncode == 2
