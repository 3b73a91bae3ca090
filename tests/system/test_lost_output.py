"""Handlers that print where nobody reads."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.leaving_out import long
from tests.site import PATIENCE

if TYPE_CHECKING:
    from tests.site import Site

HANDLERS = """
import os, subprocess, sys, threading
from pathlib import Path
from pollconsumer import PollConsumer

app = PollConsumer()
print("imported")

def prints(stream: str) -> None:
    for _ in range(100):
        print("x" * 1000, file=getattr(sys, stream), flush=True)
    print("left in the buffer", file=getattr(sys, stream))
    subprocess.run(["echo", "hello"], stdout=getattr(sys, stream), check=True)
    os.write(getattr(sys, stream).fileno(), b"directly")

@app.handler("main", max_attempts=1)
def in_main(stream: str) -> None:
    prints(stream)

@app.handler("thread", max_attempts=1, timeout="60s")
def in_thread(stream: str) -> None:
    prints(stream)

@app.handler("turns", max_attempts=1)
async def turns(stream: str) -> None:
    prints(stream)

@app.handler("alone", max_attempts=1, isolation="process")
def alone(stream: str) -> None:
    prints(stream)

@app.handler("later", max_attempts=1)
def later(stream: str) -> None:
    print("begun", flush=True)
    while not Path("gone").exists():
        pass
    prints(stream)

@app.handler("brief", max_attempts=1)
def brief() -> None:
    print("a word")
"""
LOST = "; what handlers print there is lost: redirect it to a file, or into a program that reads it\n"


def launched(site: Site, *options: str, output: int, errors: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pollconsumer", "run", "--until-empty", *options]
    return subprocess.run(
        command, cwd=site.directory, env=site.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
        text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


def unread() -> int:
    """A pipe whose reader is gone."""
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.fixture
def messages(site: Site) -> list[str]:
    (site.directory / "handlers.py").write_text(HANDLERS)
    return [site.enqueue(name, stream="stdout") for name in ("main", "thread", "turns", "alone")]


@pytest.mark.parametrize(("slots", "unbuffered"), [("1", ""), long("1", "1"), long("2", ""), ("2", "1")])
def test_a_message_does_not_fail_because_nobody_reads_the_launchs_output(
    site: Site, messages: list[str], slots: str, unbuffered: str
) -> None:
    site.environment["PYTHONUNBUFFERED"] = unbuffered
    done = launched(site, "--concurrency", slots, output=unread())
    assert [site.state(message) for message in messages] == ["completed"] * 4
    assert (done.returncode, done.stderr) == (0, f"pollconsumer: warning: standard output: Broken pipe{LOST}")


def test_nor_because_nobody_reads_its_errors(site: Site, messages: list[str]) -> None:
    messages = [site.enqueue(name, stream="stderr") for name in ("main", "thread", "turns", "alone")]
    done = launched(site, output=subprocess.DEVNULL, errors=unread())
    assert [site.state(message) for message in messages] == ["completed"] * 4
    assert done.returncode == 0


def test_nor_because_the_reader_ends_meanwhile(site: Site, messages: list[str]) -> None:
    message = site.enqueue("later", "--priority", "-1", stream="stdout")
    process = site.start_program([sys.executable, "-m", "pollconsumer", "run", "--until-empty"])
    assert process.stdout is not None
    assert process.stderr is not None
    assert [process.stdout.readline() for _ in range(2)] == ["imported\n", "begun\n"]
    process.stdout.close()
    process.stdout = None
    (site.directory / "gone").touch()
    errors = process.communicate(timeout=PATIENCE)[1]
    assert [site.state(each) for each in (message, *messages)] == ["completed"] * 5
    assert (process.returncode, errors) == (0, f"pollconsumer: warning: standard output: Broken pipe{LOST}")


@pytest.mark.usefixtures("messages")
def test_nor_because_its_disk_is_full(site: Site) -> None:
    site.command("cancel", "--queue", "default", "--yes")
    message = site.enqueue("brief")
    output = os.open("/dev/full", os.O_WRONLY)
    done = launched(site, output=output)
    os.close(output)
    assert site.state(message) == "completed"
    assert (done.returncode, done.stderr) == (
        0,
        f"pollconsumer: warning: standard output: No space left on device{LOST}",
    )


CLOSING = """
import sys
from pollconsumer import PollConsumer
app = PollConsumer()

@app.handler(max_attempts=1)
def closes() -> None:
    with sys.stdout:
        print("closed")

@app.handler(max_attempts=1)
def prints() -> None:
    print("printed")

@app.handler(max_attempts=1)
def deletes() -> None:
    del sys.stdout, sys.stderr

@app.handler(max_attempts=1, isolation="process")
def deletes_alone() -> None:
    del sys.stdout, sys.stderr
"""


def test_a_handler_that_closes_standard_output_keeps_no_other_one_from_printing(site: Site) -> None:
    (site.directory / "handlers.py").write_text(CLOSING)
    messages = [site.enqueue(name) for name in ("closes", "prints")]
    done = site.drain()
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\nprinted\n", "")
    assert [site.state(message) for message in messages] == ["completed"] * 2


@pytest.mark.parametrize("handler", ["deletes", "deletes_alone"])
def test_a_launch_whose_handler_deletes_the_streams_ends_as_any(site: Site, handler: str) -> None:
    (site.directory / "handlers.py").write_text(CLOSING)
    message = site.enqueue(handler)
    done = site.drain()
    assert (done.returncode, done.stderr, site.state(message)) == (0, "", "completed")
