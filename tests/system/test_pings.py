"""A monitor hears of each launch that holds the lease, and of nothing else; what it does changes no exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.site import wait_until
from tests.system.monitor import SECRET, Monitor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.site import Site


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    monitor = Monitor()
    yield monitor
    monitor.close()


def test_a_monitor_is_told_of_start_and_end_with_the_line_of_the_launch(site: Site, monitor: Monitor) -> None:
    site.enqueue("record", name="a")
    done = site.command("run", "--until-empty", **monitor.variables)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert monitor.paths == ["/start", "/0"]
    (_, begun, _), (_, ended, line) = monitor.told
    assert begun == ended
    assert begun.startswith("rid=")
    assert line.endswith("(empty): 1 completed; exit code 0")


def test_a_launch_that_fails_is_told_with_its_exit_code(site: Site, monitor: Monitor) -> None:
    site.enqueue("hold", name="a")
    launch = site.start("run", **monitor.variables)
    site.await_note("begin a")
    assert site.command("lease", "break", "--yes").returncode == 0
    site.open_gate()
    launch.communicate(timeout=90)
    assert launch.returncode == 75
    assert monitor.paths == ["/start", "/75"]


def test_launches_without_the_lease_and_movers_are_not_told_of(site: Site, monitor: Monitor) -> None:
    site.enqueue("hold", name="a")
    holder = site.start("run", "--until-empty")
    site.await_note("begin a")
    assert site.command("run", "--timeout", "1s", **monitor.variables).returncode == 0
    assert site.command("move", "--timeout", "1s", **monitor.variables).returncode == 0
    assert site.command("status", **monitor.variables).returncode == 0
    site.open_gate()
    holder.communicate(timeout=90)
    assert monitor.told == []


def test_a_launch_that_waits_in_vain_for_one_beyond_its_window_is_told_as_ended_well(
    site: Site, monitor: Monitor
) -> None:
    site.enqueue("hold", name="a")
    holder = site.start("run", "--timeout", "2s", "--min-margin", "200ms", "--estimated-duration", "1ms")
    site.await_note("begin a")
    wait_until(lambda: site.json("lease", "show")[0]["working_on"], "a launch beyond its window")
    for number in (1, 2):  # each tick of a schedule
        done = site.command("run", "--timeout", "1s", **monitor.variables)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert monitor.paths == ["/start", "/0"] * number
    assert monitor.told[-1][2].endswith("(lease held): no messages; exit code 0")
    waiting = site.start("run", "--timeout", "60s", **monitor.variables)
    wait_until(lambda: "next:consumer:default" in site.control_keys(), "a successor")
    assert site.command("run", "--if-free", **monitor.variables).returncode == 0
    waiting.terminate()
    assert waiting.wait(90) == 0
    assert len(monitor.told) == 4
    assert (site.json("launches")[0]["skipped"], site.json("launches", "--gaps")) == (4, [])
    site.open_gate()
    holder.communicate(timeout=90)


def test_a_monitor_that_fails_changes_no_exit_code_and_is_warned_of_damped_without_its_url(
    site: Site, monitor: Monitor
) -> None:
    monitor.status = 500
    warnings = []
    for _ in range(3):
        done = site.command("run", "--until-empty", **monitor.variables)
        assert done.returncode == 0
        warnings.append(done.stderr)
    assert monitor.paths == ["/start", "/start", "/0", "/0"] * 3
    assert warnings[0] == "pollconsumer: warning: ping to 127.0.0.1 was not delivered: it answers 500\n"
    assert "(2 launches in " in warnings[1]
    assert warnings[2] == ""
    monitor.status = 200
    over = site.command("run", "--until-empty", **monitor.variables)
    assert over.stderr.startswith("pollconsumer: info: resolved: ")


SLOW_END = """
@app.on_launch_end
def close():
    while not (HERE / "told").exists():
        time.sleep(0.005)
    note("closed")
"""


def test_hooks_run_while_the_monitor_is_told_and_a_monitor_without_an_answer_takes_nothing_from_them(
    site: Site, monitor: Monitor
) -> None:
    with (site.directory / "handlers.py").open("a") as module:
        module.write(SLOW_END)

    def hold() -> None:
        (site.directory / "told").touch()
        site.await_note("closed")

    monitor.holds["/0"] = hold
    done = site.command("run", "--until-empty", **monitor.variables)
    assert (done.returncode, done.stderr, site.notes()) == (0, "", ["closed"])
    assert monitor.paths == ["/start", "/0"]


def test_the_url_is_nowhere_but_where_it_was_given(site: Site, monitor: Monitor) -> None:
    config = site.directory / "config.toml"
    config.write_text(f'{config.read_text()}\n[pings]\nurl = "{monitor.variables["POLLCONSUMER_PINGS__URL"]}"\n')
    said = []
    for command in (["-vv", "run", "--until-empty"], ["check"], ["check", "--json"], ["status", "--json"], ["doctor"]):
        done = site.command(*command)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout + done.stderr)
    assert monitor.paths == ["", ""]  # of no monitor that is known
    assert not any(SECRET in text for text in said)
    assert "http://127.0.0.1:" in said[1]
    files = [path for path in site.directory.rglob("*") if path.is_file() and path != config]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    "url", [f"ftp://h/{SECRET}", SECRET, f"https://h/{SECRET} x", f"https:///{SECRET}", "https://é/"]
)
def test_an_address_that_is_none_is_refused_without_being_shown(site: Site, url: str) -> None:
    done = site.command("run", POLLCONSUMER_PINGS__URL=url)
    assert done.returncode == 78
    assert done.stderr.startswith("pollconsumer: error: POLLCONSUMER_PINGS__URL: ")
    assert done.stderr.endswith("; write https://HOST/…, without spaces\n")
    assert SECRET not in done.stderr
