"""Launches and producers over a user's redis-py client, or with credentials that change under them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import redis

from pollconsumer import PollConsumer
from pollconsumer.core.errors import StoreRefused
from tests.site import PATIENCE, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.site import Site
    from tests.store.servers import Server

CLIENT = """
import redis

def client():
    return redis.Redis.from_url({url!r}, decode_responses=True, max_connections=1, socket_timeout=0.5)
"""
PROVIDER = """
from pathlib import Path

HERE = Path(__file__).parent

class Provider:
    def get_credentials(self):
        with (HERE / "asked").open("a") as asked:
            asked.write("x")
        return ("launch", (HERE / "password").read_text())
"""
PASSWORDS = "canary-1", "canary-2"
REDIS_IMPORTED = """
import sys
from pollconsumer.interface.cli import main

main(["run", "--until-empty"])
print([name for name in sys.modules if name.partition(".")[0] == "redis"])
"""


@pytest.fixture
def client(site: Site, valkey: Server) -> redis.Redis:
    """The client of the site's configuration."""
    (site.directory / "bring.py").write_text(CLIENT.format(url=valkey.url))
    with (site.directory / "config.toml").open("a") as config:
        config.write('client = "bring:client"\n')
    return redis.Redis.from_url(valkey.url)


@pytest.fixture
def app(site: Site, client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[PollConsumer]:
    monkeypatch.chdir(site.directory)
    yield PollConsumer(store=client)
    client.close()


@pytest.mark.ends_with(-signal.SIGKILL)
def test_a_launch_over_a_client_that_is_killed_is_recovered_by_the_next_one(site: Site, app: PollConsumer) -> None:
    held = app.enqueue("hold", {"name": "a"})
    launch = site.start("run", "--timeout", "60s")
    site.await_note("begin a")
    launch.kill()
    launch.wait()
    site.open_gate()
    done = site.drain("--linger", "1s")
    assert (done.returncode, site.notes()) == (0, ["begin a", "begin a", "end a"])
    assert held.wait(timeout=PATIENCE) is None
    assert held.status().state == "completed"


@pytest.mark.parametrize("slots", [1, 2])
def test_a_launch_that_waits_over_a_client_is_woken_and_stops_at_a_signal(
    site: Site, app: PollConsumer, slots: int
) -> None:
    launch = site.start("run", "--timeout", "300s", "--concurrency", str(slots), "--idle-time", "200s")
    app.enqueue("hold", {"name": "a"})
    site.await_note("begin a")
    if slots > 1:
        app.enqueue("record", {"name": "b"})
        site.await_note("b")
    site.open_gate()
    site.await_note("end a")
    app.enqueue("record", {"name": "c"})
    site.await_note("c")
    launch.send_signal(signal.SIGTERM)
    _, errors = launch.communicate(timeout=PATIENCE)
    assert (launch.returncode, errors) == (0, "")


def test_commands_and_applications_over_a_client_see_the_same_store(site: Site, app: PollConsumer) -> None:
    app.recurrences.put("nightly", every="1h", handler="record", payload={"name": "r"}, first="now")
    message = app.enqueue("record", {"name": "a"})
    assert site.drain().returncode == 0
    assert message.wait(timeout=PATIENCE) is None
    assert sorted(site.notes()) == ["a", "r"]
    assert site.state(message.id) == "completed"
    checked = site.json("check")
    assert (checked["store"], checked["data"]) == ("client bring:client", None)
    assert [each["name"] for each in site.json("recurrences", "list")] == ["nightly"]


def test_a_request_to_stop_reaches_a_handler_over_a_client(site: Site, app: PollConsumer) -> None:
    message = app.enqueue("hold", {"name": "a"})
    launch = site.start("run", "--timeout", "60s", "--until-empty")
    site.await_note("begin a")
    assert site.command("cancel", message.id, "--running", "--yes").returncode == 0
    launch.communicate(timeout=PATIENCE)
    assert message.status().state == "cancelled"


def test_a_store_that_was_emptied_is_refused_over_a_client_until_it_is_adopted(
    site: Site, app: PollConsumer, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", site.environment["XDG_STATE_HOME"])
    app.enqueue("record", {"name": "a"})
    client.flushall()
    with pytest.raises(StoreRefused, match=r"store replaced: unix://.* is empty"):
        PollConsumer(store=client).enqueue("record", {"name": "b"})
    assert site.command("store", "adopt").returncode == 0
    PollConsumer(store=client).enqueue("record", {"name": "c"})
    assert (site.drain().returncode, site.notes()) == (0, ["c"])


def test_a_client_that_cannot_be_had_ends_a_launch_with_one_line(site: Site, app: PollConsumer) -> None:
    del app
    (site.directory / "bring.py").write_text("client = 5\n")
    done = site.drain()
    assert done.returncode == 78
    assert done.stderr == (
        "pollconsumer: error: config.toml: client: bring:client: a int; "
        "name a function that returns a redis-py client\n"
    )


def test_credentials_that_change_while_a_launch_runs_are_asked_for_at_its_next_connection(
    site: Site, valkey: Server
) -> None:
    first, second = PASSWORDS
    wire = valkey.wire()
    wire.command("ACL", "SETUSER", "launch", "on", f">{first}", "~*", "+@all")
    (site.directory / "bring.py").write_text(PROVIDER)
    (site.directory / "password").write_text(first)
    with (site.directory / "config.toml").open("a") as config:
        config.write(f'store = "{valkey.url}"\ncredentials = "bring:Provider"\n')
    launch = site.start("run", "--timeout", "300s", "-v")
    site.enqueue("record", name="a")
    site.await_note("a")
    asked = len((site.directory / "asked").read_text())
    (site.directory / "password").write_text(second)
    wire.command("ACL", "SETUSER", "launch", "resetpass", f">{second}")
    wire.command("CLIENT", "KILL", "USER", "launch")
    site.enqueue("record", name="b")
    site.await_note("b")
    wait_until(lambda: len((site.directory / "asked").read_text()) > asked + 1, "another look at the credentials")
    launch.send_signal(signal.SIGTERM)
    output, errors = launch.communicate(timeout=PATIENCE)
    assert launch.returncode == 0, errors
    assert not any(password in output + errors for password in PASSWORDS)
    (site.directory / "password").write_text(first)
    refused = site.drain()
    assert (refused.returncode, first in refused.stderr) == (77, False)
    wire.command("ACL", "DELUSER", "launch")


def test_a_launch_imports_redis_py_only_where_a_client_is_configured(site: Site, valkey: Server) -> None:
    def imported(**environment: str) -> Any:
        program = [sys.executable, "-c", REDIS_IMPORTED]
        done = subprocess.run(
            program, cwd=site.directory, env=site.environment | environment, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout.splitlines()[-1].replace("'", '"'))

    assert imported(POLLCONSUMER_STORE=valkey.url) == []
    (site.directory / "bring.py").write_text(CLIENT.format(url=valkey.url))
    assert "redis" in imported(POLLCONSUMER_CLIENT="bring:client")
