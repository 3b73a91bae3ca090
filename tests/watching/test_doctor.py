"""What `doctor` says about an installation, where, and its exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.interface import cli
from pollconsumer.store.client.patience import Budget

if TYPE_CHECKING:
    from pathlib import Path

    from tests.site import Site
    from tests.store.servers import Server


def test_where_all_is_well_it_says_so_and_quietly_nothing(site: Site) -> None:
    site.enqueue("record", name="a")
    site.drain()
    well = site.command("doctor")
    assert (well.returncode, well.stderr) == (0, "")
    assert well.stdout.startswith("all is well: Valkey ")
    quiet = site.command("doctor", "--quiet")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    told = site.json("doctor")
    assert (told["well"], told["findings"]) == (True, [])


@pytest.mark.ends_with(1)
def test_each_finding_is_a_line_on_standard_output_or_quietly_on_standard_error(site: Site) -> None:
    site.enqueue("record", "--queue", "forgotten", name="a")
    site.enqueue("unheard-of", "--queue", "default", name="a")
    site.drain()
    loud = site.command("doctor")
    assert (loud.returncode, loud.stderr) == (1, "")
    assert [line.partition(": ")[0] for line in loud.stdout.splitlines()] == [
        "no launch knows handler unheard-of",
        "no launch serves queue forgotten",
    ]
    for _ in range(3):  # each time: an hourly line of a crontab calls it
        quiet = site.command("doctor", "--quiet")
        assert (quiet.returncode, quiet.stdout) == (1, "")
        assert quiet.stderr == "".join(f"pollconsumer: warning: {line}\n" for line in loud.stdout.splitlines())
    told = site.command("doctor", "--json")
    assert told.returncode == 1
    assert [(each["name"], each["subject"]) for each in json.loads(told.stdout)["findings"]] == [
        ("handler_unknown", "unheard-of"),
        ("queue_unserved", "forgotten"),
    ]


@pytest.mark.ends_with(1)
def test_before_the_first_launch_it_says_how_launches_are_installed(site: Site) -> None:
    site.enqueue("record", name="a")
    done = site.command("doctor")
    assert (done.returncode, done.stdout) == (
        1,
        "no launch has run yet: 1 ready in queue default; 'pollconsumer init cron --install' has cron start one each "
        "minute\n",
    )
    site.drain()
    assert site.command("doctor").returncode == 0


@pytest.mark.ends_with(1)
def test_a_store_that_evicts_is_told_of_once(site: Site, valkey: Server) -> None:
    wire = valkey.wire()
    wire.command("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "volatile-lru")
    try:
        done = site.command("doctor", "--quiet", POLLCONSUMER_STORE=valkey.url)
    finally:
        wire.command("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
    assert done.returncode == 1
    assert done.stderr.count("store evicts: ") == 1


def test_time_that_the_margin_leaves_unserved_is_named_by_check_and_by_doctor_to_a_person(site: Site) -> None:
    consumer = {"TIMEOUT": "12s", "ESTIMATED_DURATION": "8s", "GRACE": "1s"}
    brief = {f"POLLCONSUMER_CONSUMER__{name}": value for name, value in consumer.items()}
    for _ in range(3):
        site.command("run", **brief)
    line = "of each 12s: launches take no new message in their last 6s, since handlers take long; consumer.handoff"

    def unserved(**settings: str) -> Any:
        return json.loads(site.command("check", "--json", **settings).stdout)["unserved"]

    assert unserved(**brief).startswith(f"50% {line}")
    loud, quiet = site.command("doctor", **brief), site.command("doctor", "--quiet", **brief)
    assert f"pollconsumer: warning: unserved by launches of default: 50% {line}" in loud.stderr
    assert (loud.returncode, quiet.returncode, quiet.stderr) == (0, 0, "")
    baton = brief | {"POLLCONSUMER_CONSUMER__HANDOFF": "baton"}
    assert unserved(**baton) is None
    assert "unserved" not in site.command("doctor", **baton).stderr


@pytest.mark.ends_with(1)
def test_a_schedule_is_compared_with_the_grace(site: Site) -> None:
    site.drain()
    hasty = {"POLLCONSUMER_CONSUMER__SCHEDULE": "* * * * *", "POLLCONSUMER_CONSUMER__GRACE": "2m"}
    done = site.command("doctor", **hasty)
    assert done.returncode == 1
    assert "(default): grace 2m, a launch every 1m; lower grace" in done.stdout


def test_a_store_that_is_down_is_told_as_everywhere(site: Site) -> None:
    done = site.command("doctor", "--quiet", POLLCONSUMER_STORE=f"unix://{site.directory}/nothing")
    assert done.returncode == 69
    assert done.stderr.startswith("pollconsumer: error: store unreachable: ")
    assert site.command("doctor", POLLCONSUMER_NAMESPACE="no name").returncode == 78


def test_it_waits_once_for_a_store_that_is_away_though_somebody_is_to_be_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[Budget]()

    def patience() -> Budget:
        waits.append(Budget(0.1))
        return waits[-1]

    monkeypatch.setattr("pollconsumer.interface.cli.opened.command_patience", patience)
    monkeypatch.setenv("POLLCONSUMER_STORE", "redis://127.0.0.1:1")
    monkeypatch.setenv("POLLCONSUMER_DOCTOR__URL", "http://127.0.0.1:1/")
    monkeypatch.chdir(tmp_path)
    assert (cli.main(["doctor"]), len(waits)) == (69, 1)
    assert "store unreachable: " in capsys.readouterr().err
