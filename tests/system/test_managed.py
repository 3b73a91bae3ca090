"""A server that somebody else runs: some commands are disabled, and our user has no more rights than are documented."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pollconsumer.runtime.embedded.start import find_program
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from tests.short_directory import short_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.site import Site

FORBIDDEN = (
    "ACL",
    "BGSAVE",
    "CLUSTER",
    "CONFIG",
    "DEBUG",
    "FLUSHALL",
    "KEYS",
    "MONITOR",
    "REPLICAOF",
    "SAVE",
    "SHUTDOWN",
)
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "rights.md"
PASSWORD = "canary-1b9"


@contextmanager
def managed(*disabled: str) -> Iterator[str]:
    """The address of a server without these commands, with the users of docs/reference/rights.md."""
    directory = short_directory()
    users = re.findall(r"^ACL SETUSER (\w+ (?:.*\\\n)*.*)$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    lines = [f'rename-command {name} ""' for name in disabled]
    lines += ["user " + each.replace("\\\n", " ").replace(">PASSWORD", f">{PASSWORD}") for each in users]
    (directory / "conf").write_text("\n".join(["user default off", *lines]) + "\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--save", "", "--appendonly", "yes", "--dir", str(directory)]
    with subprocess.Popen([find_program(), str(directory / "conf"), *options], stdout=subprocess.DEVNULL) as process:
        try:
            wire = Wire(f"redis://launch:{PASSWORD}@127.0.0.1:{port}", lambda: Budget(20))
            wire.command("TIME")
            wire.close()
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
    shutil.rmtree(directory)


@pytest.mark.ends_with(1)
def test_with_the_documented_rights_alone_everything_works_on_a_server_without_administrators_commands(
    site: Site,
) -> None:
    with managed(*FORBIDDEN) as address:
        url = {role: f"redis://{role}:{PASSWORD}@{address}" for role in ("producer", "launch", "operator", "keeper")}

        def succeeds(role: str, *command: str) -> str:
            done = site.command("--store", url[role], *command)
            assert (done.returncode, done.stderr) == (0, ""), (role, done)
            return done.stdout

        succeeds("producer", "enqueue", "record", '{"name": "a"}')
        succeeds("producer", "enqueue", "record", '{"name": "b"}', "--in", "1ms", "--key", "k", "--priority", "3")
        succeeds("launch", "check")
        succeeds("launch", "run", "--until-empty", "--linger", "10ms")
        succeeds("launch", "move", "--timeout", "100ms")
        for command in (
            "status",
            "launches",
            "list",
            "queue list",
            "dead list",
            "lease show",
            "recurrences list",
            "metrics",
        ):
            succeeds("operator", *command.split())
        succeeds("operator", "queue", "pause", "default")
        succeeds("operator", "dashboard", "--static", "pages")
        findings = json.loads(site.command("--store", url["operator"], "doctor", "--json").stdout)
        assert [each["name"] for each in findings["findings"]] == ["rights"], findings
        succeeds("keeper", "store", "export", "moved")
        succeeds("keeper", "store", "reopen", "--yes")
        assert sorted(site.notes()) == ["a", "b"]


@pytest.mark.parametrize("command", ["INFO", "EVALSHA", "SCRIPT"])
def test_a_server_without_a_command_that_everything_needs_is_refused_by_its_name(site: Site, command: str) -> None:
    with managed(command) as address:
        for role, arguments in (
            ("launch", ["run"]),
            ("launch", ["check"]),
            ("producer", ["enqueue", "record", '{"name": "a"}']),
        ):
            done = site.command("--store", f"redis://{role}:{PASSWORD}@{address}", *arguments)
            assert done.returncode == 78, done
            assert f"server without a command: {command};" in done.stderr


def test_a_server_without_a_command_of_launches_is_said_by_check_and_begins_none(site: Site) -> None:
    with managed("LREM") as address:
        url = f"redis://launch:{PASSWORD}@{address}"
        checked = site.command("--store", url, "check")
        assert checked.returncode == 0
        assert "launches cannot start, since the store's user may not run lrem" in checked.stderr
        begun = site.command("--store", url, "run")
        assert begun.returncode == 77
        assert "+lrem" in begun.stderr
