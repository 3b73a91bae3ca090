"""The program of the embedded server that the settings name: run, shown, and refused where it cannot be one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.runtime.embedded import start
from pollconsumer.runtime.embedded.start import find_program
from tests.site import Site

FIX = "name a valkey-server, or a redis-server of 7.0 or later, by its path"
NO_STORE = "is neither Redis 7.0 or later, nor Valkey"


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def named(site: Site) -> Path:
    """A site whose configuration names a program of its own."""
    program = site.directory / "bin" / "our-server"
    program.parent.mkdir()
    program.symlink_to(find_program())
    config = site.directory / "config.toml"
    config.write_text(f'server = "bin/our-server"\n{config.read_text()}')
    return program


def test_the_program_that_the_settings_name_is_run_and_shown(site: Site, named: Path) -> None:
    site.enqueue("record", name="a")
    assert (site.drain().returncode, site.notes()) == (0, ["a"])
    assert site.json("store", "status")["program"] == str(named)
    assert site.json("check")["server"] == str(named)
    assert site.json("doctor")["program"] == str(named)
    for shown in (["store", "status"], ["check"], ["doctor"]):
        assert str(named) in site.command(*shown).stdout, shown


def test_its_path_is_relative_to_the_configuration_wherever_a_command_is_started(site: Site, named: Path) -> None:
    elsewhere = site.directory / "elsewhere"
    elsewhere.mkdir()
    shown = site.start_program(
        ["sh", "-c", f"cd elsewhere && exec {sys.executable} -m pollconsumer --config ../config.toml check --json"]
    )
    printed, complaint = shown.communicate(timeout=90)
    assert (shown.returncode, complaint) == (0, "")
    assert Path(json.loads(printed)["server"]).resolve() == named.resolve()


def test_a_variable_names_it_too(site: Site) -> None:
    program = site.directory / "other-server"
    program.symlink_to(find_program())
    assert site.command("store", "start", POLLCONSUMER_SERVER=str(program)).returncode == 0
    assert site.json("store", "status")["program"] == str(program)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be run: No such file or directory"),
        ("", "cannot be run: Permission denied"),
        ("/", "cannot be run: Is a directory"),
        ("true", f"{NO_STORE}: no version"),
        ("echo Redis server v=6.2.14 sha=0; echo more", f"{NO_STORE}: Redis server v=6.2.14 sha=0"),
    ],
)
def test_what_is_no_such_program_is_refused_in_one_line(site: Site, content: str | None, problem: str) -> None:
    program = site.directory / "s"
    if content == "/":
        program.mkdir()
    elif content is not None:
        script(program, content).chmod(0o755 if content else 0o644)
    refused = site.command("store", "start", POLLCONSUMER_SERVER=str(program))
    assert (refused.returncode, refused.stdout) == (78, "")
    assert refused.stderr == f"pollconsumer: error: server {program} {problem}; {FIX}\n"


@pytest.mark.parametrize("command", [["run"], ["move"], ["check"], ["enqueue", "record", '{"name": "a"}']])
def test_each_command_refuses_it(site: Site, command: list[str]) -> None:
    refused = site.command(*command, POLLCONSUMER_SERVER="/bin/true")
    assert (refused.returncode, refused.stdout) == (78, "")
    assert refused.stderr.startswith(f"pollconsumer: error: server /bin/true {NO_STORE}: ")
    assert refused.stderr.endswith(f"; {FIX}\n")
    assert refused.stderr.count("\n") == 1


def test_a_program_that_hangs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "VERSION_WITHIN", 0.2)
    with pytest.raises(ConfigurationError, match=r"no version within 0\.2 s; name a valkey-server"):
        find_program(script(tmp_path / "server", "exec sleep 60"))


def test_a_program_that_cannot_be_executed_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_bytes(b"\x7fELF, and nothing else")
    program.chmod(0o755)
    with pytest.raises(ConfigurationError, match="cannot be run, Exec format error; name a valkey-server"):
        find_program(program)


def test_an_empty_name_is_refused_with_the_settings(site: Site) -> None:
    config = site.directory / "config.toml"
    config.write_text(f'server = ""\n{config.read_text()}')
    refused = site.command("check")
    assert refused.returncode == 78
    assert refused.stderr.startswith("pollconsumer: error: config.toml: server: ")
    assert refused.stderr.endswith("; name a valkey-server or a redis-server by its path\n")


def test_a_program_that_others_may_write_is_refused_unless_that_is_trusted(site: Site, named: Path) -> None:
    program = script(named.with_name("loose"), f'exec {find_program()} "$@"')
    program.chmod(0o777)
    refused = site.command("store", "start", POLLCONSUMER_SERVER=str(program))
    assert refused.returncode == 78
    assert refused.stderr.startswith(f"pollconsumer: error: server's program is writable by others: {program}; chmod")
    environment = {"POLLCONSUMER_SERVER": str(program), "POLLCONSUMER_TRUST_WRITABLE": "true"}
    assert site.command("store", "start", **environment).returncode == 0


def test_a_server_that_runs_goes_on_when_the_named_program_is_gone_and_check_says_so(site: Site, named: Path) -> None:
    assert site.command("store", "start").returncode == 0
    named.unlink()
    site.enqueue("record", name="a")
    assert (site.drain().returncode, site.notes()) == (0, ["a"])
    refused = site.command("check")
    assert (refused.returncode, refused.stdout) == (78, "")
    assert f"server {named} cannot be run: No such file or directory; " in refused.stderr


@pytest.mark.ends_with(1)
def test_doctor_names_a_server_that_still_runs_another_program(site: Site, named: Path) -> None:
    assert site.command("store", "start").returncode == 0
    other = named.with_name("newer")
    other.write_bytes(named.read_bytes())
    other.chmod(0o755)
    told = site.command("doctor", POLLCONSUMER_SERVER=str(other))
    assert told.returncode == 1
    assert f"embedded server still runs another program: {named}; stop it (pollconsumer store stop)" in told.stdout
    assert site.command("store", "stop").returncode == 0
    well = site.command("doctor", POLLCONSUMER_SERVER=str(other))
    assert (well.returncode, well.stdout.endswith(f", {other}\n")) == (0, True)


def test_a_store_of_ones_own_needs_no_program(site: Site) -> None:
    assert site.command("store", "start").returncode == 0
    environment = {"POLLCONSUMER_STORE": f"unix://{site.socket}", "POLLCONSUMER_SERVER": "/nowhere"}
    done = site.command("check", "--json", **environment)
    assert (done.returncode, done.stderr, json.loads(done.stdout)["server"]) == (0, "", None)
