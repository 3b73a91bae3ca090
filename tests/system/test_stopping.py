"""Messages in flight that a person asks to stop, through real launches."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import PollConsumer
from tests.leaving_out import long
from tests.site import Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.site import Launch

HANDLERS = """
import asyncio, subprocess
from pollconsumer import Context, Yield

app.on_failure(lambda context, error, delay: note("on_failure"))
app.on_dead(lambda context, error: note("on_dead"))

@app.handler(timeout="1h")
def sleeps(context: Context) -> None:
    context.progress(1, 2, "half")
    context.checkpoint({"half": True})
    note("begun")
    while True:
        time.sleep(0.01)

@app.handler
async def awaits() -> None:
    note("begun")
    await asyncio.sleep(3600)

@app.handler(isolation="process")
def isolated() -> None:
    note("begun")
    while True:
        time.sleep(3600)

@app.handler(delivery="at_most_once", timeout="1h")
def once() -> None:
    note("begun")
    while True:
        time.sleep(0.01)

@app.handler
def heeds(context: Context, how: str) -> str:
    note("begun")
    while not context.cancelled:
        time.sleep(0.01)
    note(f"asked {context.stop_asked} {context.time_left() > 1}")
    if how == "yields":
        raise Yield
    if how == "raises":
        raise ValueError("half done")
    return "done"

@app.handler
def untimed() -> None:
    note("begun")
    while True:
        time.sleep(0.01)

@app.handler
def deaf() -> None:
    note("begun")
    while True:
        try:
            while not (HERE / "gate").exists():
                time.sleep(0.005)
            return
        except BaseException:
            note("swallowed")

@app.handler
def quick(n: int) -> None:
    note(f"quick {n}")
"""
PROGRAM = """
trap 'sleep 0.7; echo going; exit 0' TERM  # longer than a handler has
echo begun >> notes
while :; do sleep 0.05; done
"""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site(
        '[consumer]\nmin_margin = "100ms"\nestimated_duration = "1ms"\n'
        '[commands.program]\ncommand = ["/bin/sh", "program"]\nkill_after = "2s"\n'
    )
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(HANDLERS)
    (site.directory / "program").write_text(PROGRAM)
    site.constants["STOP_GRACE"] = 0.3
    yield site
    site.close()


def begin(site: Site, handler: str, *options: str, **payload: Any) -> tuple[str, Launch]:
    """A message in flight, and its launch."""
    message = site.enqueue(handler, **payload)
    launch = site.start("run", "--until-empty", "--timeout", "60s", *options)
    site.await_note("begun")
    return message, launch


@pytest.mark.crossing
@pytest.mark.parametrize("concurrency", ["1", long("2")])
@pytest.mark.parametrize("handler", ["sleeps", "untimed", "awaits", "isolated", "once", "program"])
def test_a_handler_that_does_not_end_by_itself_is_interrupted(site: Site, handler: str, concurrency: str) -> None:
    message, launch = begin(site, handler, "--concurrency", concurrency)
    assert site.command("cancel", "--running", message).returncode == 0
    assert site.command("cancel", "--running", message).returncode in (0, 65)  # again, or too late for that
    assert launch.wait(90) == 0
    status = site.json("status", message)
    assert status["state"] == "cancelled"
    assert status["last_error"].startswith("stopped on request")
    assert status["timestamps"]["cancelled_at"]
    assert status["timestamps"]["started_at"]
    assert status["attempts"] == 1
    assert site.notes().count("begun") == 1
    assert not {"on_failure", "on_dead"} & set(site.notes())
    if handler == "sleeps":
        assert (status["progress"]["note"], status["checkpoint"]) == ("half", {"half": True})
    if handler == "program":
        assert status["last_error"].endswith("going")  # the shell may speak before it
    again = site.command("cancel", "--running", message)
    assert (again.returncode, "cancelled already" in again.stderr) == (65, True)


@pytest.mark.parametrize(
    ("concurrency", "how", "state", "error"),
    [
        ("1", "returns", "completed", None),
        long("1", "raises", "cancelled", "stopped on request: ValueError: half done"),
        ("1", "yields", "cancelled", "stopped on request: Yield"),
        long("2", "returns", "completed", None),
        ("2", "raises", "cancelled", "stopped on request: ValueError: half done"),
        long("2", "yields", "cancelled", "stopped on request: Yield"),
    ],
)
def test_a_handler_that_asks_learns_of_it_and_decides(
    site: Site, how: str, state: str, error: str | None, concurrency: str
) -> None:
    message, launch = begin(site, "heeds", "--concurrency", concurrency, how=how)
    assert site.command("cancel", "--running", message).returncode == 0
    site.await_note("asked True True")
    assert launch.wait(90) == 0
    assert (site.state(message), site.json("status", message)["last_error"]) == (state, error)


def test_a_handler_that_swallows_the_interruption_goes_on_and_status_says_so(site: Site) -> None:
    message, launch = begin(site, "deaf")
    assert site.command("cancel", "--running", message).returncode == 0
    wait_until(lambda: "is interrupted 5s later" in site.command("status", message).stdout, "status says so")
    site.await_note("swallowed", 2)  # and again
    site.open_gate()
    assert launch.wait(90) == 0
    assert site.state(message) == "completed"
    assert "without effect" in site.command("status", message).stdout


def test_a_message_that_waits_behind_the_one_in_hand_is_cancelled_when_its_turn_comes(site: Site) -> None:
    first = site.enqueue("deaf")
    behind = [site.enqueue("quick", n=n) for n in range(3)]
    launch = site.start("run", "--until-empty")
    site.await_note("begun")
    for message in behind[:2]:
        assert site.command("cancel", "--running", message).returncode == 0
    site.open_gate()
    assert launch.wait(90) == 0
    assert [site.state(each) for each in (first, *behind)] == ["completed", "cancelled", "cancelled", "completed"]
    assert [note for note in site.notes() if note.startswith("quick")] == ["quick 2"]


@pytest.mark.parametrize("heartbeat", [True, False])
def test_a_launch_that_dies_before_it_could_stop_the_message_leaves_that_to_the_store(
    site: Site, heartbeat: bool
) -> None:
    """If its heartbeat dies with it, the next launch finds the request."""
    message, launch = begin(site, "deaf")
    assert site.command("cancel", "--running", message).returncode == 0
    if not heartbeat:
        os.kill(site.heartbeat_of(launch.pid), signal.SIGKILL)
    os.kill(launch.pid, signal.SIGKILL)
    launch.wait(90)
    site.drain()
    assert site.state(message) == "cancelled"
    assert site.notes().count("begun") == 1


def test_an_id_that_nobody_knows_is_66_and_one_that_has_ended_is_65(site: Site) -> None:
    ended = site.enqueue("quick", n=1)
    site.drain()
    unknown, late = site.command("cancel", "--running", "unknown"), site.command("cancel", "--running", ended)
    assert (unknown.returncode, late.returncode) == (66, 65)
    assert "it is completed already" in late.stderr
    assert site.command("cancel", "--running").returncode == 2
    assert site.command("cancel", "--running", "--handler", "quick", "--yes").returncode == 2


def test_a_message_that_is_not_reserved_yet_is_cancelled(site: Site) -> None:
    ready, later = site.enqueue("quick", n=1), site.enqueue("quick", "--in", "1h", n=2)
    assert site.command("cancel", "--running", ready, later).returncode == 0
    assert [site.state(each) for each in (ready, later)] == ["cancelled", "cancelled"]


def test_python_asks_for_the_end_of_a_message(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    message, launch = begin(site, "sleeps")
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(site.directory)
    handle = PollConsumer().message(message)
    handle.stop()
    assert launch.wait(90) == 0
    assert handle.state == "cancelled"
    assert (handle.status().stop_asked_at, handle.status().last_error) == (None, "stopped on request")
