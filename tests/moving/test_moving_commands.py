"""``store export``, ``import`` and ``reopen``, as a person uses them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.store.server_trial import ServerTrial
from tests.terminal import Screen

if TYPE_CHECKING:
    from tests.site import Site
    from tests.store.servers import Server


def moved(site: Site, valkey: Server) -> str:
    """Returns what the export says."""
    done = site.command("store", "export", "moved")
    assert (done.returncode, done.stderr) == (0, "")
    imported = site.command("--store", valkey.url, "store", "import", "moved")
    assert (imported.returncode, imported.stderr) == (0, "")
    assert imported.stdout.splitlines()[1:] == done.stdout.splitlines()[1:]
    return done.stdout


def test_messages_that_were_moved_are_handled_once_where_they_are_now(site: Site, valkey: Server) -> None:
    for name in ("a", "b"):
        site.enqueue("record", name=name)
    said = moved(site, valkey)
    assert said.split()[:4] == ["exported", "messages", "2", "elements"]
    for _ in range(2):
        assert site.drain("--store", valkey.url).returncode == 0
    assert site.notes() == ["a", "b"]


@pytest.mark.parametrize(("answer", "code"), [("n\n", 2), ("y\n", 0)])
def test_a_person_at_a_terminal_is_asked_before_an_export_closes_the_store(site: Site, answer: str, code: int) -> None:
    site.enqueue("record", name="a")
    command = [sys.executable, "-m", "pollconsumer", "store", "export", "copy"]
    place: dict[str, Any] = {"cwd": site.directory, "env": site.environment, "stdout": subprocess.PIPE}
    with Screen() as screen:
        screen.type(answer)
        done = subprocess.run(command, **place, stdin=screen.side, stderr=screen.side, timeout=60)
        assert "This closes the store" in screen.read_rest()
    assert done.returncode == code
    assert site.command("status").returncode == (69 if code == 0 else 0)


def test_every_command_says_that_a_store_was_closed_until_it_is_reopened(site: Site) -> None:
    site.enqueue("record", name="a")
    site.command("store", "export", "moved")
    for command in (["status"], ["enqueue", "record", '{"name": "b"}'], ["run"], ["move"], ["doctor"]):
        refused = site.command(*command)
        assert refused.returncode == 69, refused
        assert "store closed: for its export" in refused.stderr, refused
    assert site.command("store", "reopen").returncode == 2
    advised = re.search(r"open it again: pollconsumer (.*)$", refused.stderr, re.MULTILINE)
    assert advised is not None
    opened = site.command(*advised[1].split())
    assert opened.returncode == 0, "what the error advises is what reopens it"
    assert opened.stdout.startswith("opened: ")
    assert site.command("store", "reopen", "--yes").returncode == 66
    site.enqueue("record", name="b")
    assert site.drain().returncode == 0
    assert site.notes() == ["a", "b"]


def test_a_host_that_knew_the_other_server_by_another_id_uses_it_after_the_import(site: Site, valkey: Server) -> None:
    site.enqueue("record", name="a")
    assert site.command("--store", valkey.url, "check").returncode == 0
    assert site.command("--store", valkey.url, "status").returncode == 0
    moved(site, valkey)
    assert site.drain("--store", valkey.url).returncode == 0
    assert site.notes() == ["a"]


def test_an_export_waits_for_a_launch_and_says_so_and_no_other_begins(site: Site) -> None:
    site.enqueue("hold", name="a")
    launch = site.start("run", "--max-messages", "1", "--timeout", "60s")
    site.await_note("begin a")
    export = site.start_program([sys.executable, "-m", "pollconsumer", "store", "export", "moved"])
    assert export.stderr is not None
    assert export.stderr.readline() == "pollconsumer: waiting until these launches have ended: consumer:default:0\n"
    site.enqueue("record", name="b")
    second = site.command("run")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    (site.directory / "gate").touch()
    launch.communicate()
    assert launch.returncode == 0
    export.communicate()
    assert export.returncode == 0
    assert site.notes() == ["begin a", "end a"]
    (line,) = [line for line in lines_of(site.directory / "moved") if "end" in line]
    assert line["end"]["messages"] == 2


def lines_of(file: Path) -> list[dict[str, dict[str, int]]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def test_what_a_killed_trial_of_the_server_left_is_not_exported(
    site: Site, valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.command("--store", valkey.url, "enqueue", "record", '{"name": "a"}')
    monkeypatch.setattr(ServerTrial, "_remove", lambda _: [])
    assert ServerTrial(valkey.wire(), valkey.wire(), "pollconsumer").lacks() == []
    exported = site.command("--store", valkey.url, "store", "export", "moved")
    assert (exported.returncode, exported.stderr) == (0, "")
    assert not [each for each in lines_of(site.directory / "moved") if "trial" in str(each)]


def test_an_export_goes_through_a_pipe(site: Site, valkey: Server) -> None:
    site.enqueue("record", name="a")
    program = f"{sys.executable} -m pollconsumer"
    piped = f"{program} store export - | {program} --store {valkey.url} store import -"
    done = subprocess.run(
        ["sh", "-c", piped],
        cwd=site.directory,
        env=site.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.startswith("pollconsumer: exported: messages 1, elements ")
    assert site.drain("--store", valkey.url).returncode == 0
    assert site.notes() == ["a"]


def test_an_export_that_nobody_reads_to_its_end_says_what_becomes_of_the_store(site: Site) -> None:
    site.enqueue("record", name="a")
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m pollconsumer store export - | true"],
        cwd=site.directory,
        env=site.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    stays, error = done.stderr.splitlines()
    assert stays.startswith("pollconsumer: the store stays closed: ")
    assert error == "pollconsumer: error: export: -: Broken pipe; check where it goes"


def test_a_store_stays_open_if_its_export_cannot_be_written_anywhere(site: Site) -> None:
    site.enqueue("record", name="a")
    for file in ("nowhere/moved", "."):
        refused = site.command("store", "export", file)
        assert refused.returncode == 73
        assert re.fullmatch(r"pollconsumer: error: export: \S+: .*; check where it goes\n", refused.stderr)
    assert site.drain().returncode == 0
    assert site.notes() == ["a"]


def test_an_export_to_a_device_leaves_it_a_device(site: Site) -> None:
    site.enqueue("record", name="a")
    named = site.directory / "device"
    os.mkfifo(named)
    export = site.start("store", "export", str(named))
    content = named.read_bytes()
    assert "end" in json.loads(content.splitlines()[-1])
    export.communicate()
    assert named.is_fifo()


def test_an_export_that_finds_no_room_leaves_no_part_of_it(site: Site) -> None:
    site.enqueue("record", name="a")
    refused = site.command("store", "export", "/dev/full")
    assert refused.returncode == 73
    stays, error = refused.stderr.splitlines()
    assert stays.startswith("pollconsumer: the store stays closed: ")
    assert error == "pollconsumer: error: export: /dev/full: No space left on device; check where it goes"
    assert Path("/dev/full").is_char_device()


def test_an_export_has_its_name_once_it_is_complete_and_is_for_its_owner_alone(site: Site) -> None:
    site.enqueue("record", name="a")
    assert site.command("store", "export", "moved").returncode == 0
    assert (site.directory / "moved").stat().st_mode & 0o777 == 0o600
    assert not [*site.directory.glob("*.part")]


def test_two_exports_to_one_file_at_the_same_time_leave_a_whole_one(site: Site, valkey: Server) -> None:
    site.enqueue("hold", name="a")
    launch = site.start("run", "--max-messages", "1", "--timeout", "60s")
    site.await_note("begin a")
    exports = [site.start_program([sys.executable, "-m", "pollconsumer", "store", "export", "moved"]) for _ in "12"]
    for export in exports:
        assert export.stderr is not None
        assert "waiting until these launches have ended" in export.stderr.readline()
    (site.directory / "gate").touch()
    launch.communicate()
    for export in exports:
        export.communicate()
        assert export.returncode == 0
    assert site.command("--store", valkey.url, "store", "import", "moved").returncode == 0


def test_an_export_to_a_closed_output_is_refused_before_the_store_is_closed(site: Site) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m pollconsumer store export - >&-"],
        cwd=site.directory,
        env=site.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = "pollconsumer: error: standard output; is closed: redirect it to a file, or a pipe\n"
    assert (done.returncode, done.stderr) == (73, said)
    assert site.command("status").returncode == 0


def test_an_export_that_was_cut_off_is_not_served_and_the_whole_one_is(site: Site, valkey: Server) -> None:
    site.enqueue("record", name="a")
    site.command("store", "export", "moved")
    file = site.directory / "moved"
    whole = file.read_bytes()
    for part in (whole.replace(b'"at": 0', b'"at": Infinity', 1), b"[" * 100_000):
        file.write_bytes(part)
        refused = site.command("--store", valkey.url, "store", "import", "moved")
        assert (refused.returncode, "damaged" in refused.stderr) == (65, True), refused
    for part in (b"", whole[:20], whole[: len(whole) // 2], whole[: whole.rindex(b"{")], whole[:-3]):
        file.write_bytes(part)
        refused = site.command("--store", valkey.url, "store", "import", "moved")
        assert refused.returncode == 65, (part, refused)
    assert site.drain("--store", valkey.url).returncode == 69
    file.write_bytes(whole)
    done = site.command("--store", valkey.url, "store", "import", "moved", "--json")
    assert (done.returncode, json.loads(done.stdout)["messages"]) == (0, 1)
    assert site.drain("--store", valkey.url).returncode == 0
    assert site.notes() == ["a"]


@pytest.fixture
def impatient(site: Site) -> Site:
    site.constants = {"FIRST_WITHIN": 2.0, "REST_WITHIN": 2.0, "SLOWEST": 1 << 20}
    return site


@pytest.mark.parametrize("lines", [None, 0, 1, 3])
def test_an_import_from_a_pipe_that_stalls_or_drips_ends_and_can_be_repeated(
    impatient: Site, valkey: Server, lines: int | None
) -> None:
    """That brings nothing, or single bytes after so many lines."""
    site = impatient
    site.enqueue("record", name="a")
    site.command("store", "export", "moved")
    whole = (site.directory / "moved").read_bytes()
    os.mkfifo(site.directory / "pipe")
    importing = site.start("--store", valkey.url, "store", "import", "pipe")
    sent = 0
    if lines is not None:
        with (site.directory / "pipe").open("wb", buffering=0) as pipe, suppress(BrokenPipeError):
            pipe.write(b"".join(whole.splitlines(keepends=True)[:lines]))
            while importing.poll() is None:
                time.sleep(0.2)
                sent += pipe.write(b" ")
    _, errors = importing.communicate()
    assert importing.returncode == 65
    assert re.fullmatch(r"pollconsumer: error: export: pipe; brought \d+ bytes within \S+: import it again\n", errors)
    assert sent <= 50
    assert site.command("--store", valkey.url, "store", "import", "moved").returncode == 0


def test_an_import_from_a_slow_pipe_goes_on_as_long_as_it_brings_enough(impatient: Site, valkey: Server) -> None:
    site = impatient
    site.constants |= {"REST_WITHIN": 1.0, "SLOWEST": 100}
    site.enqueue("record", name="a")
    site.command("store", "export", "moved")
    os.mkfifo(site.directory / "pipe")
    importing = site.start("--store", valkey.url, "store", "import", "pipe")
    with (site.directory / "pipe").open("wb", buffering=0) as pipe:
        for line in (site.directory / "moved").read_bytes().splitlines(keepends=True):
            pipe.write(line)
            time.sleep(0.2)
    importing.communicate()
    assert importing.returncode == 0


def test_an_import_from_a_pipe_that_nobody_writes_to_says_that_it_waits(site: Site, valkey: Server) -> None:
    os.mkfifo(site.directory / "pipe")
    command = [sys.executable, "-m", "pollconsumer", "--store", valkey.url, "store", "import", "pipe"]
    importing = site.start_program(command)
    assert importing.stderr is not None
    assert importing.stderr.readline() == "pollconsumer: warning: pipe has brought nothing yet; waiting up to 1h\n"
    importing.kill()
