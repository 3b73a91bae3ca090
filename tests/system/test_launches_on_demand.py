"""Launches that producers start, where nobody serves their queue."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from tests.site import Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.store.servers import Server


@pytest.fixture
def demanding() -> Iterator[Site]:
    site = Site('\n[consumer]\non_demand = "process"\n')
    yield site
    wait_until(lambda: not processes_in(site.directory), "the end of launches on demand")
    site.close()


def processes_in(directory: Path) -> list[str]:
    """The processes whose current directory it is."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == directory:
                found.append(process.name)
    return found


def launches(site: Site) -> list[str]:
    return [each["stop_reason"] for each in site.json("launches")]


def test_a_message_that_nobody_awaits_is_handled_by_a_launch_that_its_producer_starts(demanding: Site) -> None:
    site = demanding
    site.enqueue("record", name="a")
    site.await_note("a")
    site.enqueue("record", name="b")  # found by the launch that lingers
    site.await_note("b")
    assert len(launches(site)) == 1


def test_producers_start_one_launch_at_a_time_and_none_for_what_is_paused_or_due_later(demanding: Site) -> None:
    site = demanding
    assert site.command("queue", "pause", "default").returncode == 0
    site.enqueue("record", name="a")
    site.enqueue("record", "--in", "1h", name="later")
    assert launches(site) == []
    assert site.command("queue", "resume", "default").returncode == 0
    lines = "".join(json.dumps({"handler": "record", "payload": {"name": str(n)}}) + "\n" for n in range(20))
    (site.directory / "lines").write_text(lines)
    assert site.command("enqueue", "--ndjson", "lines").returncode == 0
    for name in ("a", "0", "19"):
        site.await_note(name)
    assert len(launches(site)) == 1


def test_a_launch_whose_window_ends_before_its_messages_is_followed_by_another(demanding: Site) -> None:
    site = demanding
    assert site.command("queue", "pause", "default").returncode == 0
    site.enqueue("hold", name="a")
    assert site.command("queue", "resume", "default").returncode == 0
    began = time.monotonic()
    launch = site.start("run", "--timeout", "1s")
    site.await_note("begin a")
    site.enqueue("record", name="b")  # somebody serves the queue
    wait_until(lambda: time.monotonic() > began + 1, "the end of the window")
    site.open_gate()
    launch.communicate()
    site.await_note("b")
    assert launches(site)[-1] == "no_time_to_handle"
    assert len(launches(site)) == 2


def test_a_launch_that_cannot_be_started_is_warned_of_and_the_message_is_there(site: Site) -> None:
    with (site.directory / "config.toml").open("a") as config:
        config.write('[consumer]\non_demand = "http://127.0.0.1:9/launch"\n')
    done = site.command("enqueue", "record", '{"name": "a"}')
    assert done.returncode == 0
    assert "no launch on demand: its URL: Connection refused" in done.stderr
    assert site.state(done.stdout.strip()) == "ready"


@pytest.mark.parametrize("way", ["thread", "ftp://site/launch", ""])
def test_a_way_that_is_none_is_refused(site: Site, way: str) -> None:
    with (site.directory / "config.toml").open("a") as config:
        config.write(f'[consumer]\non_demand = "{way}"\n')
    refused = site.command("enqueue", "record", '{"name": "a"}')
    assert refused.returncode == 78
    assert "consumer.on_demand" in refused.stderr
    assert "process, or the URL of an endpoint" in refused.stderr


def test_a_launch_that_takes_in_what_is_spooled_starts_no_other(site: Site, valkey: Server) -> None:
    asked: list[str] = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        settings = {
            "POLLCONSUMER_CONSUMER__ON_DEMAND": f"http://127.0.0.1:{server.server_port}/launch",
            "POLLCONSUMER_SPOOL": "spool",
        }
        site.command("enqueue", "record", '{"name": "a"}', POLLCONSUMER_STORE="redis://127.0.0.1:1", **settings)
        done = site.command("run", "--until-empty", POLLCONSUMER_STORE=valkey.url, **settings)
        assert (done.returncode, site.notes(), asked) == (0, ["a"], [])
        site.command("enqueue", "record", '{"name": "b"}', POLLCONSUMER_STORE=valkey.url, **settings)
        server.shutdown()
    assert asked == ["/launch"]
