"""What launches take their launcher for, and what follows from it."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from tests.terminal import Terminal

if TYPE_CHECKING:
    from tests.site import Site

SOON_STILL_RUNNING = """
import sys
from pollconsumer.__main__ import main
from pollconsumer.runtime.launch import heartbeat
heartbeat.STILL_RUNNING_EVERY = 0.25
sys.argv = ["pollconsumer", "run", "--timeout", "10m"]
main()
"""
LAUNCH = [sys.executable, "-m", "pollconsumer", "run", "--until-empty"]


@pytest.mark.skipif(which("flock") is None, reason="no flock")
def test_a_launch_sees_the_lock_that_started_it_and_check_shows_it_to_a_person(site: Site) -> None:
    assert site.start_program(["flock", "-n", str(site.directory / "lock"), *LAUNCH]).wait(90) == 0
    entry = site.json("launches")[0]
    assert (entry["platform"], entry["launcher"]) == ("flock", "drop")
    consumer = site.json("check")["consumer"]
    assert (consumer["platform"], consumer["launcher"]) == ("flock", "drop")
    assert consumer["exit_seconds"] == entry["exit_seconds"]
    assert re.search(r"^consumer launcher +flock; ", site.command("check").stdout, re.MULTILINE)


def test_a_launch_has_the_rule_of_its_flag_and_the_name_that_its_platform_gave_the_run(site: Site) -> None:
    done = site.command("-v", "run", "--until-empty", "--launcher", "drop", WEBJOBS_RUN_ID="20261122")
    assert "; run 20261122\n" in done.stderr
    entry = site.json("launches")[0]
    assert (entry["platform"], entry["launcher"], entry["run_id"]) == ("kudu", "drop", "20261122")


@pytest.mark.parametrize(
    ("launcher", "window", "margin"), [("drop", 58.25, 0.5), ("queue", 60, 2), ("parallel", 120, 2)]
)
def test_check_shows_a_window_that_lasts_beyond_the_next_tick_only_if_a_successor_can_wait(
    site: Site, launcher: str, window: float, margin: float
) -> None:
    (site.directory / "config.toml").write_text(
        'handlers = ["handlers"]\n'
        f'[consumer]\nschedule = "* * * * *"\ntimeout = "120s"\nhandoff = "baton"\nlauncher = "{launcher}"\n'
    )
    consumer = site.json("check")["consumer"]
    assert consumer["window_seconds"] == window
    assert consumer["margin_seconds"] == margin
    unused = "^consumer handoff +baton is set and not used: (.*); where that is wrong, set launcher to parallel$"
    said = re.findall(unused, site.command("check").stdout, re.MULTILINE)
    assert said == {
        "drop": ["no launch is started while one is running"],
        "queue": ["a new launch starts when the running one has ended"],
        "parallel": [],
    }[launcher]  # fmt: skip


@pytest.mark.parametrize(("variables", "platform"), [({}, None), ({"FLY_MACHINE_ID": "m1"}, "fly")])
def test_a_launcher_whose_rule_nothing_names_is_known_by_what_earlier_launches_saw_and_check_says_so(
    site: Site, variables: dict[str, str], platform: str | None
) -> None:
    """Three launches that were alive at a tick, each with none at that tick after it. No tick comes while the test
    runs: the next one is half an hour away."""
    every_hour = ["--schedule", f"{(time.localtime().tm_min + 30) % 60} * * * *", "--handoff", "baton"]
    assert site.command("run", "--until-empty", *every_hour, **variables).returncode == 0
    with Redis(unix_socket_path=str(site.socket)) as client:
        control = "{pollconsumer}:"
        entry = json.loads(client.hvals(f"{control}ledger")[0])
        # A launch of the hour before the last: it was alive at the tick an hour before the last one.
        hour = 3_600_000
        tick = int(entry["started_ms"] - entry["launch_offset_seconds"] * 1000)
        changed = {
            "started_ms": tick - 2 * hour + 100,
            "ended_ms": tick - hour + 20_000,
            "launch_offset_seconds": 0.1,
            "next_tick_seconds": 3599.9,
            "observed": ["drop", 2],
        }
        client.hset(f"{control}ledger", entry["launch_id"], json.dumps(entry | changed))
    assert site.command("run", "--until-empty", *every_hour, **variables).returncode == 0
    assert [each["launcher"] for each in site.json("launches")] == ["drop", "parallel"]
    consumer = site.json("check")["consumer"]
    assert (consumer["launcher"], consumer["platform"]) == ("drop", platform)
    assert consumer["observed"] == {"rule": "drop", "times": 3}
    assert re.search(r"^consumer launcher +seen 3 times; ", site.command("check").stdout, re.MULTILINE)
    assert site.drain(*every_hour, "--launcher", "parallel").returncode == 0
    assert site.json("launches")[0]["launcher"] == "parallel"


def test_check_warns_of_a_launcher_that_drops_ticks_while_no_schedule_is_known(site: Site) -> None:
    warning = "pollconsumer: warning: {0}: no launch is started while one is running, and no schedule "
    warning += "is set: each would run past the next tick, which is lost; set {0}.schedule\n"
    environment = {"POLLCONSUMER_CONSUMER__LAUNCHER": "drop", "POLLCONSUMER_MOVER__LAUNCHER": "drop"}
    assert site.command("check", **environment).stderr == warning.format("consumer")
    schedule = {"POLLCONSUMER_CONSUMER__SCHEDULE": "* * * * *"}
    assert site.command("check", **environment, **schedule).stderr == ""
    assert site.command("move", "--timeout", "3s", "--min-margin", "0s").returncode == 0
    assert site.command("check", **environment, **schedule).stderr == warning.format("mover")
    assert site.command("check", POLLCONSUMER_CONSUMER__LAUNCHER="queue").stderr == ""


def test_check_knows_the_schedule_that_only_the_line_of_the_crontab_gives(site: Site) -> None:
    line = ("--launcher", "drop", "--schedule", "* * * * *")
    assert site.drain(*line).returncode == 0
    assert site.command("check", POLLCONSUMER_CONSUMER__LAUNCHER="drop").stderr == ""


@pytest.mark.parametrize("role", ["run", "move"])
def test_a_launch_ends_when_the_shutdown_file_of_azure_appears(site: Site, role: str) -> None:
    file = site.directory / "shutdown"
    launch = site.start(role, "--timeout", "10m", WEBJOBS_SHUTDOWN_FILE=str(file))
    site.await_holder(launch.pid)
    file.touch()
    assert launch.wait(90) == 0
    assert site.json("launches")[0]["stop_reason"] == "interrupted"


@pytest.mark.parametrize(
    ("variables", "lines"),
    [
        ({"WEBJOBS_RUN_ID": "202611220959"}, ["pollconsumer: info: still running after 0.25s"]),
        ({"WEBJOBS_IDLE_TIMEOUT": "300"}, []),
    ],
)
def test_a_webjob_prints_now_and_then_as_azure_kills_a_silent_one_and_nothing_else_does(
    site: Site, variables: dict[str, str], lines: list[str]
) -> None:
    site.constants = {"STILL_RUNNING_EVERY": 0.25}
    site.enqueue("hold", name="a")
    launch = site.start("run", "--until-empty", **variables)
    site.await_note("begin a")
    site.json("status")  # takes a while
    time.sleep(1)
    site.open_gate()
    output, errors = launch.communicate(timeout=90)
    assert (output.splitlines()[:1], errors) == (lines, "")


def test_a_webjob_prints_while_a_handler_holds_the_gil(site: Site) -> None:
    site.enqueue("hang_with_the_lock")
    launch = site.start_program([sys.executable, "-c", SOON_STILL_RUNNING], WEBJOBS_RUN_ID="202611220959")
    site.await_note("hang_with_the_lock")
    assert launch.stdout is not None
    os.read(launch.stdout.fileno(), 65536)  # what was printed during imports
    for _ in range(3):
        assert launch.stdout.readline().startswith("pollconsumer: info: still running after ")
    launch.kill()


@pytest.mark.parametrize(("more", "offset"), [([], False), (["--schedule", "0 0 1 1 *"], True)])
def test_a_person_at_a_terminal_is_not_bounded_by_the_configured_schedule(
    site: Site, more: list[str], offset: bool
) -> None:
    (site.directory / "config.toml").write_text('handlers = ["handlers"]\n[consumer]\nschedule = "* * * * *"\n')
    with Terminal(site, command=("run", "--until-empty", *more), columns=80) as terminal:
        terminal.read_to_the_end()
    assert (site.json("launches")[0]["launch_offset_seconds"] is not None) is offset


def test_the_ancestors_of_a_process_are_its_parent_first() -> None:
    from pollconsumer.runtime.system.process import ancestors

    parent = next(ancestors())
    assert parent.executable == Path(f"/proc/{os.getppid()}/exe").readlink().name
    assert parent.command
