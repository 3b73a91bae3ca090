"""``launches`` can be asked about a time, and shows at which ticks no launch came."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.notation.instants import iso
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.server import now_ms
from tests.site import PATIENCE

if TYPE_CHECKING:
    from tests.site import Site

MINUTE = 60_000
ZONE = {"TZ": "UTC"}
GROUP = Group("consumer", ("default",), 1)


@pytest.fixture
def noon(site: Site) -> int:
    """The tick of the last launch of ten, of which those five to two minutes before it did not come; a day ago. Another
    launch found the lease of the last one held."""
    assert site.command("store", "start").returncode == 0
    wire = Wire(f"unix://{site.json('store', 'path')['socket']}", lambda: Budget(PATIENCE))
    leases, now = Leases(wire, "pollconsumer"), now_ms(wire)
    noon = (now - 1440 * MINUTE) // MINUTE * MINUTE
    for ago in (12, 11, 10, 9, 8, 7, 6, 1, 0):
        started = noon - ago * MINUTE + 500
        entry = {
            "launch_id": f"ago-{ago}", "role": "consumer", "queues": ["default"], "lineage": "consumer:default:0",
            "stop_reason": "no_time_to_idle", "started_ms": started, "ended_ms": started + 59_000, "handled": 3,
            "running_seconds": 59.0, "launch_offset_seconds": 0.5, "next_tick_seconds": 59.5, "platform": "cron",
        }  # fmt: skip
        acquired = leases.acquire(GROUP, f"ago-{ago}", "{}", json.dumps(entry))
        assert isinstance(acquired, Claim)
        if ago == 0:
            leases.acquire(GROUP, "late", "{}", "{}", waits=False)
        leases.release(acquired, json.dumps(entry))
    wire.close()
    return noon


def shown(site: Site, *options: str) -> str:
    done = site.command("launches", *options, **ZONE)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def instant(epoch_ms: int) -> str:
    return iso(epoch_ms)[:16].replace("T", " ")


def test_ticks_without_a_launch_are_a_line_of_the_table(site: Site, noon: int) -> None:
    lines = shown(site, "--utc", "--limit", "4").splitlines()
    hole = f"4 ticks without a launch, {instant(noon - 5 * MINUTE)} to {instant(noon - 2 * MINUTE)} (consumer default)"
    now, *around = [number for number, line in enumerate(lines) if "without a launch" in line]
    assert (now, [lines[each] for each in around]) == (1, [hole])
    assert instant(noon - MINUTE) in lines[around[0] - 1]
    assert instant(noon - 6 * MINUTE) in lines[around[0] + 1]


def test_a_hole_before_the_launches_that_are_shown_is_not(site: Site, noon: int) -> None:
    assert shown(site, "--limit", "2").count("without a launch") == 1  # the one until now
    since = ("--since", iso(noon - 60 * MINUTE))
    assert shown(site, *since, "--limit", "2").count("without a launch") == 1
    assert shown(site, *since, "--limit", "9").count("without a launch") == 2


def test_a_launch_counts_those_that_found_its_lease_taken(site: Site, noon: int) -> None:
    assert {each["launch_id"]: each["skipped"] for each in json.loads(shown(site, "--json"))} == {
        f"ago-{ago}": int(ago == 0) for ago in (12, 11, 10, 9, 8, 7, 6, 1, 0)
    }
    head, _, newest, *_ = shown(site).splitlines()
    assert head.split()[-1] == "skipped"
    assert newest.split()[-1] == "1"
    assert noon


def test_queues_are_shown_where_launches_serve_different_ones(site: Site, noon: int) -> None:
    assert "queues" not in shown(site)
    assert site.drain("--queue", "slow").returncode == 0
    head, *lines = shown(site).splitlines()
    assert head.split()[-1] == "queues"
    assert {line.split()[-1] for line in lines if "ticks" not in line} == {"slow", "default"}
    assert noon


@pytest.mark.parametrize("form", ["instant", "local", "ago"])
def test_a_time_is_an_instant_or_one_of_this_machine_or_how_long_ago(site: Site, noon: int, form: str) -> None:
    def told(minute: float) -> str:
        at = noon + round(minute * MINUTE)
        ago = f"{(time.time_ns() // 1_000_000 - at) // 1000}s"
        return {"instant": iso(at), "local": iso(at)[:19], "ago": ago}[form]

    found = json.loads(shown(site, "--json", "--since", told(-10.5), "--until", told(-6.5)))
    assert [each["launch_id"] for each in found] == ["ago-7", "ago-8", "ago-9", "ago-10"]
    assert "4 ticks" not in shown(site, "--until", told(-6.5))
    assert "4 ticks" in shown(site, "--since", told(-4.5), "--until", told(-2.5))


def test_gaps_alone_are_shown_and_read_by_programs(site: Site, noon: int) -> None:
    since_noon, hole = shown(site, "--gaps", "--utc").splitlines()
    assert re.match(r"14\d\d ticks without a launch, ", since_noon)
    assert hole.startswith("4 ticks without a launch, ")
    assert json.loads(shown(site, "--gaps", "--json"))[1] == {
        "role": "consumer",
        "queues": ["default"],
        "ticks": 4,
        "first_at": iso(noon - 5 * MINUTE),
        "last_at": iso(noon - 2 * MINUTE),
    }
    missed = {each["launch_id"]: each["missed_ticks"] for each in json.loads(shown(site, "--json"))}
    assert {name: ticks for name, ticks in missed.items() if ticks} == {"ago-1": 4}
    assert (
        shown(site, "--gaps", "--until", iso(noon - 6 * MINUTE))
        == "no gaps: no tick of a schedule was without a launch\n"
    )


def test_a_time_without_launches_is_said_and_what_is_no_time_is_refused(site: Site, noon: int) -> None:
    assert shown(site, "--until", iso(noon - 60 * MINUTE)) == "no launches in that time\n"
    done = site.command("launches", "--since", "yesterday")
    assert done.returncode == 2
    assert "yesterday; write a time, as in 2026-11-28T03:00, or how long ago, as in 26h" in done.stderr
