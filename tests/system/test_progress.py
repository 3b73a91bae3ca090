"""How far a message has come, seen from outside while real launches handle it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Context, PollConsumer
from pollconsumer.testing import Sandbox
from tests.leaving_out import long
from tests.site import Site, wait_until
from tests.system.test_crashes import learn

if TYPE_CHECKING:
    from collections.abc import Iterator

HANDLERS = """
import asyncio
from pollconsumer import Context

def count(context):
    for n in range(1, 1001):
        context.progress(n, 2000, f"at {n}\\x1b[2J")
    note("halfway")

@app.handler
def plain(context: Context) -> None:
    count(context)
    context.checkpoint({"half": True})
    while not (HERE / "gate").exists():
        time.sleep(0.005)
    context.progress(2000, 2000)

@app.handler
async def awaiting(context: Context) -> None:
    count(context)
    while not (HERE / "gate").exists():
        await asyncio.sleep(0.005)
    context.progress(2000, 2000)

@app.handler(isolation="process")
def isolated(context: Context) -> None:
    plain(context)

@app.handler(max_attempts=1)
def failing(context: Context) -> None:
    context.progress(1, 3, "no further")
    raise ValueError("no")
"""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site('[consumer]\nmin_margin = "100ms"\nestimated_duration = "1ms"\n')
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(HANDLERS)
    yield site
    site.close()


def progress(site: Site, message_id: str) -> list[Any] | None:
    found = site.json("status", message_id)["progress"]
    return found and [found["done"], found["total"], found["note"]]


@pytest.mark.parametrize(
    ("handler", "concurrency"),
    [
        ("plain", "1"),
        long("plain", "2"),
        long("awaiting", "1"),
        ("awaiting", "2"),
        ("isolated", "1"),
        long("isolated", "2"),
    ],
)
def test_the_last_report_shows_while_the_handler_goes_on_and_after_it_has_ended(
    site: Site, handler: str, concurrency: str
) -> None:
    message = site.enqueue(handler)
    launch = site.start("run", "--until-empty", "--concurrency", concurrency)
    site.await_note("halfway")
    wait_until(lambda: progress(site, message) == [1000, 2000, "at 1000\x1b[2J"], "the last report")
    if handler != "awaiting":
        wait_until(lambda: site.json("status", message)["checkpoint"] == {"half": True}, "the checkpoint")
        assert '{"half": true}' in site.command("status", message).stdout
    listed = site.command("list", "--state", "reserved").stdout
    shown = "1000/2000 at 1000\\x1b[2J"
    assert "progress" in listed.splitlines()[0]
    assert shown in listed
    assert shown in site.command("status", message).stdout
    site.open_gate()
    assert launch.wait(90) == 0
    assert (site.state(message), progress(site, message)) == ("completed", [2000, 2000, ""])


def test_a_dead_letter_shows_how_far_it_came(site: Site) -> None:
    message = site.enqueue("failing")
    site.drain()
    assert (site.state(message), progress(site, message)) == ("dead", [1, 3, "no further"])
    assert "1/3 no further" in site.command("dead", "list").stdout
    assert site.json("dead", "show", message)["progress"]["at"].endswith("Z")


def test_what_has_no_progress_shows_none(site: Site) -> None:
    message = site.enqueue("record", name="x")
    assert progress(site, message) is None
    assert "progress" not in site.command("list").stdout + site.command("status", message).stdout


def test_a_message_that_is_started_can_be_told_from_those_reserved_ahead(site: Site) -> None:
    learn(site, "hold")
    first, ahead = [site.enqueue("hold", name=name) for name in ("first", "ahead")]
    launch = site.start("run", "--until-empty")
    site.await_note("begin first")

    def counts() -> tuple[int, int]:
        (queue,) = site.json("status")["queues"]
        return queue["reserved"], queue["started"]

    wait_until(lambda: counts() == (2, 1), "two reserved, of which one is started")
    assert site.command("status").stdout.split()[:5] == ["queue", "scheduled", "ready", "reserved", "started"]
    listing = site.command("list", "--state", "reserved").stdout
    head, *listed = [line.split() for line in listing.splitlines()]
    assert head[5:7] == ["at", "started"]
    assert {line[0]: line[6] == "-" for line in listed} == {first: False, ahead: True}
    assert site.command("dashboard", "--static", "pages").returncode == 0
    page = (site.directory / "pages" / "index.html").read_text()
    assert "(1 started)" in page
    site.open_gate()
    assert launch.wait(90) == 0
    assert "started" not in site.command("list").stdout.splitlines()[0]


def test_a_sandbox_shows_a_report_at_once() -> None:
    app, seen = PollConsumer(), []
    noon = datetime(2026, 3, 27, 12, tzinfo=UTC)

    @app.handler
    def count(context: Context) -> None:
        for n in range(3):
            context.progress(n, 3)
            seen.append(app.message(context.id).progress)

    with Sandbox(app, start=noon) as sandbox:
        handle = count.enqueue()
        assert handle.progress is None
        sandbox.run()
        assert [each and each.done for each in seen] == [0, 1, 2]
        assert handle.progress == seen[-1] == (2, 3, "", noon)
