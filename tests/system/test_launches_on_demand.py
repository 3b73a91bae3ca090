"""Launches that producers start, where nobody serves their queue."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from tests.site import Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.store.servers import Server


TOKEN = "the-token-of-launches"
ENDPOINT = """
import os, sys
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from pollconsumer import PollConsumer
from pollconsumer.web import LaunchEndpoint

class Server(ThreadingMixIn, WSGIServer):
    pass

class Silent(WSGIRequestHandler):
    def log_message(self, *_):
        pass

def site(environ, start_response):
    descriptor = os.open("asked", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, b"asked\\n")
    os.close(descriptor)
    return endpoint(environ, start_response)

server = make_server("127.0.0.1", 0, site, Server, Silent)
url = f"http://127.0.0.1:{server.server_port}/launch"
os.environ["POLLCONSUMER_CONSUMER__ON_DEMAND"] = url
endpoint = LaunchEndpoint(PollConsumer(config="config.toml"))
Path("url.new").write_text(url)
Path("url.new").rename("url")
server.serve_forever()
"""
"""A site with an endpoint: it notes each request."""
OF_THE_EXIT = """
from pollconsumer.store.leases import Leases
from pollconsumer.store.queues.demand import ServingMarker

if "run" in sys.argv:
    with (HERE / "started").open("a") as started:
        started.write(f"{os.getpid()}\\n")

def held(name):
    \"\"\"Hold a launch there until the test opens the gate, once.\"\"\"
    if (HERE / name).exists():
        (HERE / name).unlink()
        note(f"at {name}")
        while not (HERE / "gate").exists():
            time.sleep(0.005)

def end(presence, ended=ServingMarker.end):
    ended(presence)
    held("presence is gone")

def left(presence, looked=ServingMarker.left):
    found = looked(presence)
    held("it has looked")
    return found

ServingMarker.end, ServingMarker.left = end, left

@app.handler
def brief(name: str) -> None:
    time.sleep(0.3)
    note(name)

for queue in range(30):
    app.handler(f"of-{queue}", queue=f"q{queue}")(record)
"""
"""In the handlers' module: where an exit can be held."""
WINDOW, LONG_WINDOW = 4.0, 40.0
"""Seconds."""
IN_LONG_WINDOWS = pytest.mark.parametrize(
    "demanding", [("process", LONG_WINDOW), ("url", LONG_WINDOW)], indirect=True, ids=["process", "url"]
)
"""For tests that count launches: on a busy machine a short one leaves messages, and is followed."""


@pytest.fixture(params=[("process", WINDOW), ("url", WINDOW)], ids=["process", "url"])
def demanding(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A site whose producers start launches by each way."""
    way, window = request.param
    site = Site(f'\n[consumer]\non_demand = "process"\ntimeout = "{window}s"\n[web]\nbudget = "{window + 4}s"\n')
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(OF_THE_EXIT)
    if way == "url":
        server = site.start_program([sys.executable, "-c", ENDPOINT], POLLCONSUMER_WEB__TOKEN=TOKEN)
        wait_until((site.directory / "url").exists, "an endpoint")
        site.environment["POLLCONSUMER_CONSUMER__ON_DEMAND"] = (site.directory / "url").read_text()
        site.environment["POLLCONSUMER_WEB__TOKEN"] = TOKEN
    yield site
    site.open_gate()
    if way == "url":
        wait_until(lambda: not site.holders(), "the end of launches")
        server.kill()
    for each in set(lines_of(site, "started")) & {*processes_in(site.directory)}:
        with suppress(ProcessLookupError):
            os.kill(int(each), signal.SIGTERM)
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


def lines_of(site: Site, file: str) -> list[str]:
    path = site.directory / file
    return path.read_text().splitlines() if path.exists() else []


def await_second_start(site: Site) -> None:
    """Wait until a second launch was started and has left, or an endpoint was asked for it."""

    def has_left() -> bool:
        started = lines_of(site, "started")
        return len(started) > 1 and started[1] not in processes_in(site.directory)

    wait_until(lambda: len(lines_of(site, "asked")) > 1 or has_left(), "a second start")


def enqueue_all(site: Site, messages: list[dict[str, Any]]) -> None:
    """By one program, one after the other."""
    program = f"""
from pollconsumer import PollConsumer
app = PollConsumer(config="config.toml")
for message in {messages!r}:
    app.enqueue(message["handler"], message["payload"], queue=message.get("queue"))
"""
    output, errors = site.start_program([sys.executable, "-c", program]).communicate()
    assert (output, errors) == ("", "")


def launches(site: Site) -> list[str]:
    return [each["stop_reason"] for each in site.json("launches")]


@pytest.mark.crossing
@IN_LONG_WINDOWS
def test_a_message_that_nobody_awaits_is_handled_by_a_launch_that_its_producer_starts(demanding: Site) -> None:
    site = demanding
    site.enqueue("record", name="a")
    site.await_note("a")
    site.enqueue("record", name="b")  # found by the launch that lingers
    site.await_note("b")
    assert len(launches(site)) <= (1 if site.environment.get("POLLCONSUMER_CONSUMER__ON_DEMAND") is None else 2)


@IN_LONG_WINDOWS
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


@pytest.mark.parametrize("instant", ["presence is gone", "it has looked"])
def test_a_start_that_meets_the_exit_of_the_launch_before_is_not_lost(demanding: Site, instant: str) -> None:
    site = demanding
    (site.directory / instant).touch()
    site.enqueue("record", name="a")
    site.await_note(f"at {instant}")
    site.enqueue("record", name="b")
    if instant == "presence is gone":
        await_second_start(site)
    else:
        site.await_note("b")
    site.open_gate()
    site.await_note("b")


@pytest.mark.parametrize("sent", ["in the window", "beyond it"])
def test_a_launch_whose_window_ends_before_its_messages_is_followed_by_another(demanding: Site, sent: str) -> None:
    """In a process it goes on until the handler ends, and is there for producers; a request ends with its window."""
    site = demanding
    site.enqueue("hold", name="a")
    site.await_note("begin a")
    began = time.monotonic()
    if sent == "in the window":
        site.enqueue("record", name="b")  # somebody serves the queue
    wait_until(lambda: time.monotonic() > began + WINDOW, "the end of the window")
    goes_on = site.environment.get("POLLCONSUMER_CONSUMER__ON_DEMAND") is None
    if sent == "beyond it":
        site.enqueue("record", name="b")
        assert not goes_on or launches(site) == [None]
    site.open_gate()
    site.await_note("b")
    assert launches(site)[-1] == "no_time_to_handle"
    assert not goes_on or site.notes() == ["begin a", "end a", "b"]


def test_all_of_sixty_messages_are_handled_by_launches_that_follow_each_other(demanding: Site) -> None:
    site = demanding
    enqueue_all(site, [{"handler": "brief", "payload": {"name": str(n)}} for n in range(60)])
    wait_until(lambda: len(site.notes()) == 60, "the end of the last message")
    assert sorted(site.notes(), key=int) == [str(n) for n in range(60)]


@IN_LONG_WINDOWS
def test_one_launch_is_started_for_thirty_queues_of_a_producer(demanding: Site) -> None:
    site = demanding
    enqueue_all(site, [{"handler": f"of-{n}", "queue": f"q{n}", "payload": {"name": str(n)}} for n in range(30)])
    wait_until(lambda: len(site.notes()) == 30, "the end of the last message")
    # A second start finds the lease taken: its producer looked just before the first launch said that it is there.
    assert len(lines_of(site, "started")) <= 2
    assert len(lines_of(site, "asked")) <= 2
    assert len(launches(site)) == 1


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


def test_a_launch_on_demand_has_the_store_that_a_flag_gives_in_place_of_the_files_client(
    site: Site, valkey: Server
) -> None:
    with (site.directory / "config.toml").open("a") as config:
        config.write('client = "handlers:nowhere"\n[consumer]\non_demand = "process"\ntimeout = "4s"\n')
    done = site.command("--store", valkey.url, "enqueue", "record", '{"name": "a"}')
    assert (done.returncode, done.stderr) == (0, "")
    site.await_note("a")
    wait_until(lambda: not processes_in(site.directory), "the end of the launch")


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
