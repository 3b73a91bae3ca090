"""One queue, served from several hosts: their names, their clocks, and what those cost that have nothing to do.

A host is a name and a clock that a process has from its start.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.leases import Group, HeldLeases, Leases
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.server import info_fields

if TYPE_CHECKING:
    import subprocess

    from tests.site import Site

NAMESPACE = "pollconsumer"
HOUR = 3600
ELSEWHERE = """
import datetime, os, socket, time

name, ahead = os.environ["ELSEWHERE"].split()
ahead = int(ahead)
real, real_ns = time.time, time.time_ns
time.time, time.time_ns = lambda: real() + ahead, lambda: real_ns() + ahead * 1_000_000_000
socket.gethostname = lambda: name


class Moment(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds=ahead)


datetime.datetime = Moment
"""


class Hosts:
    def __init__(self, site: Site) -> None:
        self._site = site
        (site.directory / "elsewhere").mkdir()
        (site.directory / "elsewhere" / "sitecustomize.py").write_text(ELSEWHERE)

    def command(self, host: str, ahead: int, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command on ``host``, whose clock is so many seconds ahead."""
        path = str(self._site.directory / "elsewhere")
        done = self._site.command(*arguments, PYTHONPATH=path, ELSEWHERE=f"{host} {ahead}")
        assert done.returncode in (0, 1), done
        return done


@pytest.fixture
def hosts(site: Site) -> Hosts:
    return Hosts(site)


@pytest.fixture
def wire(site: Site) -> Wire:
    site.command("store", "start")
    return Wire(f"unix://{site.socket}", lambda: Budget(10))


@pytest.mark.ends_with(1)
def test_hosts_whose_clocks_are_an_hour_apart_go_by_the_servers(site: Site, hosts: Hosts) -> None:
    clocks = {"ahead": HOUR + 17, "behind": -HOUR - 17}
    fences = []
    for host, ahead in clocks.items():
        hosts.command(host, ahead, "enqueue", "record", '{"name": "later"}', "--id", f"later-{host}", "--in", "30m")
        hosts.command(host, ahead, "enqueue", "record", json.dumps({"name": f"of {host}"}), "--in", "1ms")
        for each, its in clocks.items():
            hosts.command(each, its, "run", "--until-empty", "--linger", "10ms", "--schedule", "* * * * *")
            fences.append(site.json("launches")[0]["fence"])
    assert site.notes() == ["of ahead", "of behind"]
    assert [site.state(f"later-{host}") for host in clocks] == ["scheduled", "scheduled"]
    assert fences == sorted(set(fences))
    for host, ahead in clocks.items():
        shown = hosts.command(host, ahead, "launches", "--ago").stdout
        assert "hour" not in shown
        assert "clock_skew" in hosts.command(host, ahead, "doctor", "--json").stdout


def test_the_ledger_names_the_host_and_process_of_each_launch_and_shows_hosts_where_there_are_several(
    site: Site, hosts: Hosts
) -> None:
    hosts.command("web1", 0, "run", "--until-empty")
    assert "host" not in site.command("launches").stdout.splitlines()[0]
    hosts.command("web2", 0, "run", "--until-empty")
    ledger = site.json("launches")
    assert [launch["host"] for launch in ledger] == ["web2", "web1"]
    assert all(launch["pid"] > 1 for launch in ledger)
    for command in ("launches", "status"):
        shown = site.command(command).stdout
        assert re.search(r"^web2 .*\n^web1 ", shown, re.MULTILINE), shown


def test_one_crontab_on_ten_hosts_costs_those_that_have_nothing_to_do_a_few_round_trips_and_no_word(
    site: Site, wire: Wire
) -> None:
    """One works and one waits for its turn; eight leave."""
    group = Group("consumer", ("default",), 1)
    leases = Leases(wire, NAMESPACE)
    assert isinstance(leases.acquire(group, "works", "{}", "{}"), Claim)
    costs = []
    for _ in range(8):
        assert isinstance(leases.acquire(group, "waits", "{}", "{}"), HeldLeases)
        before = _reads(wire)
        done = site.command("run")
        costs.append(_reads(wire) - before - 1)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert set(costs[1:]) == {READS}, costs


READS = 4
"""The server reads what greets it, the questions for rights and for the lease, and the connection's end."""


def _reads(wire: Wire) -> int:
    return int(info_fields([wire.command("INFO", "stats")])["total_reads_processed"])
