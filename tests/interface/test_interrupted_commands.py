"""What a command that changes the store says when it is interrupted: a line on standard error, and 130."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.exits import PATCHED
from tests.site import PATIENCE, wait_until

if TYPE_CHECKING:
    from tests.site import Site
    from tests.store.servers import Server

INTERRUPTED = """
import os, sys
from pollconsumer.{module} import {kind}
original, calls = {kind}.{method}, 0

def interrupted(*args, **named):
    global calls
    calls += 1
    if {after} and calls == {at}:
        original(*args, **named)
    if calls == {at}:
        os.kill(os.getpid(), {number})
    return original(*args, **named)

{kind}.{method} = interrupted
sys.argv[1:] = {arguments!r}
from pollconsumer.__main__ import main
main()
"""


def interrupted(
    site: Site,
    module: str,
    kind: str,
    method: str,
    *arguments: str,
    at: int,
    after: bool = False,
    number: int = signal.SIGINT,
) -> subprocess.CompletedProcess[str]:
    """A command that is interrupted before, or after, a call of a method, the ``at``-th."""
    text = INTERRUPTED.format(
        module=module, kind=kind, method=method, at=at, after=after, arguments=[*arguments], number=int(number)
    )
    (site.directory / PATCHED).write_text(text)
    process = site.start_program([sys.executable, PATCHED])
    output, errors = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def write_lines(site: Site, count: int) -> None:
    lines = ["", *(json.dumps({"handler": "record", "payload": {"name": str(n)}}) for n in range(count))]
    (site.directory / "lines").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("after", [False, True])
def test_enqueueing_lines_says_which_are_accepted_and_how_to_go_on(site: Site, after: bool) -> None:
    write_lines(site, 2500)
    done = interrupted(
        site, "store.queues.producer", "Producer", "_send", "enqueue", "--ndjson", "lines", at=3, after=after
    )
    accepted = len(done.stdout.split())
    line = accepted + 1  # the first is empty
    assert done.returncode == 130
    assert done.stderr == (
        f"pollconsumer: interrupted: {accepted} accepted, up to line {line}, and perhaps some of lines {line + 1} to "
        f"{2001 if accepted >= 1000 else 1001}: those with an id may be repeated, with --skip {line}\n"
    )
    assert 0 < accepted < 2500
    known = site.json("status")["queues"][0]["ready"]
    assert known == accepted if not after else accepted < known


def test_a_batch_is_open_and_the_whole_command_goes_on(site: Site) -> None:
    write_lines(site, 1000)
    command = ("enqueue", "--ndjson", "lines", "--batch", "import")
    done = interrupted(site, "store.queues.producer", "Producer", "_send", *command, at=2)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == (
        "pollconsumer: interrupted: batch import is open: repeat the command with all lines within an hour: "
        "lines that are members already are not added twice\n"
    )
    assert site.json("batch", "show", "import")["state"] == "open"
    assert 0 < site.json("status")["queues"][0]["ready"] < 1000
    assert site.command(*command).stdout == "import\n"
    assert site.json("status")["queues"][0]["ready"] == site.json("batch", "show", "import")["total"] == 1000


def is_asleep(pid: int) -> bool:
    """Without /proc, True."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    except FileNotFoundError:
        return True


def test_between_two_pages_it_is_known_which(site: Site) -> None:
    os.mkfifo(site.directory / "pipe")
    write_lines(site, 1000)
    lines = (site.directory / "lines").read_text()
    process = site.start_program([sys.executable, "-m", "pollconsumer", "enqueue", "--ndjson", "pipe"])
    assert process.stdout is not None
    with (site.directory / "pipe").open("w") as pipe:
        pipe.write(lines)
        pipe.flush()
        ids = [process.stdout.readline() for _ in range(1000)]
        # A signal between Python's last look for signals and its read would be noticed after the read alone.
        wait_until(lambda: is_asleep(process.pid), "the command reads on")
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, rest, len(set(ids))) == (130, "", 1000)
    assert errors == "pollconsumer: interrupted: 1000 accepted, up to line 1001: go on with --skip 1001\n"


def test_where_ids_cannot_be_printed_it_says_which_are_accepted(site: Site) -> None:
    write_lines(site, 2500)
    script = f"exec {sys.executable} -m pollconsumer enqueue --ndjson lines >/dev/full"
    process = site.start_program(["/bin/sh", "-c", script])
    first, *rest = process.communicate(timeout=PATIENCE)[1].splitlines()
    assert process.returncode == 73
    assert rest == ["pollconsumer: error: standard output: No space left on device; check where it goes"]
    said = r"pollconsumer: interrupted: (\d+) accepted, up to line \d+, and perhaps some of lines \d+ to 1001: "
    found = re.match(said, first)
    assert found is not None
    assert 0 < int(found[1]) <= site.json("status")["queues"][0]["ready"] <= 1000


def test_ids_that_are_printed_are_whole_though_a_pipe_is_full(site: Site) -> None:
    lines = (json.dumps({"handler": "record", "payload": {"name": ""}, "id": f"{n:0128}"}) for n in range(1000))
    (site.directory / "lines").write_text("\n".join(lines))
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "pollconsumer", "enqueue", "--ndjson", "lines"],
        cwd=site.directory,
        env=site.environment,
        stdin=subprocess.DEVNULL,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    while select.select([], [write], [], 0)[1]:
        assert process.poll() is None
    os.close(write)
    process.send_signal(signal.SIGINT)
    with os.fdopen(read) as pipe:
        printed = pipe.read()
    errors = process.communicate(timeout=PATIENCE)[1]
    assert printed.endswith("\n")
    assert {*printed.split()} <= {each["id"] for each in site.json("list", "--limit", "1000")}
    assert process.returncode == 130
    assert errors.startswith("pollconsumer: interrupted: ")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["cancel", "--handler", "record", "--yes"], "100 of 250 cancelled"),
        (["queue", "purge", "default", "--yes"], "100 of 250 purged"),
        (["dead", "redrive", "--all"], "100 of 250 redriven"),
        (["dead", "purge", "--all", "--yes"], "100 of 250 purged"),
    ],
)
def test_what_is_done_to_many_messages_says_and_notes_how_many_are_done(
    site: Site, command: list[str], said: str
) -> None:
    write_lines(site, 250)
    site.command("enqueue", "--ndjson", "lines")
    if command[0] == "dead":
        (site.directory / "handlers.py").write_text(
            "from pollconsumer import PollConsumer\napp = PollConsumer()\n"
            "@app.handler(max_attempts=1)\ndef record(name: str) -> None:\n    raise ValueError(name)\n"
        )
        assert site.drain().returncode == 0
    done = interrupted(site, "store.client.wire", "Wire", "run", *command, at=2)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == f"pollconsumer: interrupted: {said}, and perhaps some of the next 100\n"
    assert [each["number"] for each in site.json("audit")] == [100]


def test_of_ids_that_are_named_it_says_how_many_were_asked_for(site: Site) -> None:
    ids = [site.enqueue("record", name=name) for name in "abc"]
    done = interrupted(site, "store.actions", "MessageActions", "cancel", "cancel", *ids, at=3)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "pollconsumer: interrupted: 2 of 3 done, and perhaps the next one\n"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)], ids=str
)
@pytest.mark.parametrize("method", ["close", "closed_key_names"])
def test_an_export_that_has_closed_the_store_says_so_and_leaves_no_part(
    site: Site, method: str, number: int, code: int
) -> None:
    site.enqueue("record", name="a")
    command, after = ("store", "export", "moved", "--yes"), method == "close"
    done = interrupted(site, "moving.store_closer", "StoreCloser", method, *command, at=1, after=after, number=number)
    said = "pollconsumer: the store stays closed: export it again, or reopen it: pollconsumer store reopen --yes\n"
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)
    assert site.command("status").returncode == 69
    assert [path.name for path in site.directory.glob("moved*")] == []


def test_a_program_that_ends_a_command_with_sigterm_is_told_as_a_person_is(site: Site) -> None:
    write_lines(site, 2500)
    command = ("enqueue", "--ndjson", "lines")
    done = interrupted(site, "store.queues.producer", "Producer", "_send", *command, at=3, number=signal.SIGTERM)
    assert done.returncode == 143
    assert done.stderr.startswith(f"pollconsumer: interrupted: {len(done.stdout.split())} accepted, up to line ")


def test_an_import_says_that_nothing_is_served_from_it(site: Site, valkey: Server) -> None:
    site.enqueue("record", name="a")
    assert site.command("store", "export", "moved").returncode == 0
    command = ("--store", valkey.url, "store", "import", "moved")
    done = interrupted(site, "moving.store_export", "Import", "take", *command, at=5)
    assert (done.returncode, done.stdout) == (130, "")
    end = " elements read, the store cannot be used before all are there: import the same file again\n"
    assert done.stderr.startswith("pollconsumer: interrupted: ")
    assert done.stderr.endswith(end)
    assert site.command(*command).returncode == 0
