"""Completion, as a shell asks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.site import Site


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
        (("enqueue", ""), []),
        (("--namespace", ""), []),
    ],
)
def test_commands_options_and_words_are_completed(site: Site, words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(site, *words) == offered


def test_bash_completes_with_the_script_that_is_printed(site: Site) -> None:
    script = (
        "source <(pollconsumer completion bash); COMP_WORDS=(pollconsumer enq); COMP_CWORD=1;"
        ' _pollconsumer_completion pollconsumer; echo "${COMPREPLY[@]}"'
    )
    environment = site.environment | {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    asked = ["bash", "--norc", "-c", script]
    done = subprocess.run(asked, env=environment, cwd=site.directory, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("enqueue\n", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_each_shell_asks_the_command(site: Site, shell: str) -> None:
    done = site.command("completion", shell)
    assert f"_POLLCONSUMER_COMPLETE={shell}_complete" in done.stdout
    assert site.command("completion", "ksh").returncode == 2
