"""The process that keeps a launch's lease: when it ends, and what it does before that."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from tests.site import Site, wait_until

if TYPE_CHECKING:
    from tests.site import Launch

LONG = ["run", "--timeout", "10m"]
SHORT = ["--timeout", "4s", "--min-margin", "500ms", "--estimated-duration", "1ms", "--grace", "500ms"]
LIMITED = [*SHORT, "--handler-limit", "1s"]

DIES_BEFORE_IT_ANNOUNCES_ITSELF = """
from pollconsumer.store.queues.maintenance import Maintenance
Maintenance.announce = lambda *arguments, **options: os.kill(os.getpid(), 9)
"""

LEAVES_A_DAEMON_AND_DIES = """
daemon = os.fork()
if daemon == 0:
    nowhere, outputs = os.open(os.devnull, os.O_RDWR), [os.fstat(1), os.fstat(2)]
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            if any(os.path.samestat(os.fstat(descriptor), output) for output in outputs):
                os.dup2(nowhere, descriptor)
        except OSError:
            pass
    time.sleep(60)
    os._exit(0)
note(daemon)
os.kill(os.getpid(), 9)
"""

BECOMES_ANOTHER_PROGRAM = """
@app.handler
def become() -> None:
    note("become")
    os.execlp("sleep", "sleep", "600")
"""


def add(site: Site, code: str) -> None:
    with (site.directory / "handlers.py").open("a") as module:
        module.write(code)


def end_of(launch: Launch) -> str:
    """What a launch printed, when nobody holds its output any more."""
    return launch.communicate(timeout=90)[1]


def test_a_launch_killed_before_it_announced_itself_leaves_no_heartbeat(site: Site) -> None:
    add(site, DIES_BEFORE_IT_ANNOUNCES_ITSELF)
    launch = site.start(*LONG)
    line = "pollconsumer: error: launch died: with no message in flight; the next launch goes on\n"
    assert end_of(launch) == line
    assert launch.returncode == -signal.SIGKILL
    assert site.json("lease", "show") == []
    assert site.json("launches")[0]["stop_reason"] == "died"


def test_a_launch_killed_beside_a_queue_that_it_left_out_gives_back_the_others_and_the_lease(site: Site) -> None:
    site.drain("--queue", "a")
    message = site.enqueue("hold", name="x")
    with Redis(unix_socket_path=site.json("store", "path")["socket"]) as redis:
        for name in redis.keys("{pollconsumer:a}:*"):
            redis.set(name, "somebody else's")
    launch = site.start(*LONG, "--queue", "a", "--queue", "default")
    site.await_note("begin x")
    launch.kill()
    assert f"launch died: while handling {message} (hold)" in end_of(launch)
    assert site.json("lease", "show") == []
    assert site.state(message) == "ready"


def test_a_daemon_of_a_module_whose_launch_dies_before_it_had_the_lease_keeps_no_heartbeat(site: Site) -> None:
    add(site, LEAVES_A_DAEMON_AND_DIES)
    launch = site.start(*LONG)
    errors = end_of(launch)
    os.kill(int(site.notes()[0]), signal.SIGKILL)
    assert errors == "pollconsumer: error: launch died: before it had the lease, while importing modules or waiting\n"


@pytest.mark.ends_with(9)
def test_a_module_that_closes_every_descriptor_costs_the_launch_nothing(site: Site) -> None:
    add(site, "os.closerange(3, 4096)\n")
    site.enqueue("record", name="a")
    site.enqueue("leave", how="die")
    assert site.drain().returncode == 9
    assert site.notes() == ["a", "leave die"]
    assert site.json("lease", "show") == []


@pytest.mark.ends_with(1)
def test_the_ledger_says_how_a_launch_ended_that_was_suspended_until_its_lease_was_taken(site: Site) -> None:
    site.enqueue("hold", name="a")
    first = site.start("run", *LIMITED)
    site.await_note("begin a")
    first.send_signal(signal.SIGSTOP)
    over = time.monotonic() + 5
    site.command("lease", "break", "--yes")
    second = site.start("run")
    site.await_note("begin a", 2)
    wait_until(lambda: time.monotonic() > over, "the end of the first")
    first.send_signal(signal.SIGCONT)
    first.communicate(timeout=90)
    assert [entry["stop_reason"] for entry in site.json("launches")] == [None, "watchdog"]
    assert [lease["pid"] for lease in site.json("lease", "show")] == [second.pid]


@pytest.mark.usefixtures("quick_leases")
def test_a_launch_of_which_a_handler_made_another_program_keeps_the_lease_for_no_longer_than_it_may_run(
    site: Site,
) -> None:
    add(site, BECOMES_ANOTHER_PROGRAM)
    message = site.enqueue("become")
    launch = site.start("run", *LIMITED)
    site.await_note("become")
    site.await_release()
    assert launch.poll() is None
    assert site.state(message) == "reserved"


def test_a_launch_of_which_the_store_lost_all_but_its_name_is_listed_as_dead(site: Site) -> None:
    site.drain()
    with Redis(unix_socket_path=site.json("store", "path")["socket"]) as client:
        client.lpush("{pollconsumer}:launches", "lost")
        client.hset("{pollconsumer}:ledger", "lost", '{"launch_id": "lost", "stop_reason": null, "role": "consumer"}')
    _, listed, _ = site.command("launches").stdout.splitlines()
    assert " ".join(listed.split()).startswith("- 0ms - consumer died 0 0 0 ")
