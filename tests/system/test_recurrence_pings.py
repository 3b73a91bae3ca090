"""A recurrence's own monitor hears that an occurrence begins, and how it ends."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.site import PATIENCE
from tests.system.monitor import SECRET, Monitor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.site import Site

DIALECT = {"POLLCONSUMER_PINGS__DIALECT": "healthchecks"}


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    monitor = Monitor()
    yield monitor
    monitor.close()


def add(site: Site, name: str, handler: str, monitor: Monitor, payload: str = "{}") -> None:
    rule = ["--every", "1h", "--times", "1", "--ping", monitor.url]
    done = site.command("recurrences", "add", name, handler, payload, *rule)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def drained(site: Site, **variables: str) -> str:
    """What a launch printed."""
    done = site.command("run", "--until-empty", **DIALECT, **variables)
    assert (done.returncode, done.stdout) == (0, "")
    return done.stderr


def test_a_monitor_is_told_that_an_occurrence_begins_and_that_it_completed(site: Site, monitor: Monitor) -> None:
    add(site, "nightly", "record", monitor, '{"name": "a"}')
    assert drained(site) == ""
    assert (site.notes(), monitor.paths) == (["a"], ["/start", "/0"])
    (_, begun, _), (_, ended, line) = monitor.told
    assert begun == ended
    assert begun.startswith("rid=")
    assert line.startswith("nightly@")
    assert line.endswith("Z: completed, attempt 1")


def test_failure_is_told_once_the_occurrence_is_a_dead_letter_and_the_start_of_the_first_attempt(
    site: Site, monitor: Monitor
) -> None:
    add(site, "nightly", "fail", monitor, '{"name": "a", "times": 9}')
    errors = drained(site)
    while len(site.notes()) < 3:
        errors += drained(site)
    assert monitor.paths == ["/start", "/1"]
    assert len({run for _, run, _ in monitor.told}) == 1
    assert monitor.told[-1][2].endswith("Z: dead letter, ValueError, attempt 3")
    assert errors.count("warning") == errors.count("dead letter") == 1


UNTIL_CANCELLED = """
from pollconsumer import Context

@app.handler
def until_cancelled(context: Context):
    note("begun")
    while not context.cancelled:
        time.sleep(0.01)
    raise RuntimeError
"""


def test_a_monitor_is_told_that_an_occurrence_was_stopped(site: Site, monitor: Monitor) -> None:
    with (site.directory / "handlers.py").open("a") as module:
        module.write(UNTIL_CANCELLED)
    add(site, "nightly", "until_cancelled", monitor)
    launch = site.start("run", "--until-empty", **DIALECT)
    site.await_note("begun")
    assert site.command("cancel", "--running", site.json("list")[0]["id"]).returncode == 0
    assert launch.wait(PATIENCE) == 0
    assert monitor.paths == ["/start", "/1"]
    assert monitor.told[-1][2].endswith("Z: stopped on request, attempt 1")


OTHERS = """
@app.handler
async def later(): note("later")

@app.handler(isolation="process")
def apart(): note("apart")

@app.handler(bulk=9)
def several(messages: list[dict]): note("several")

@app.every("0 0 1 1 *", ping=URL)
def yearly(): note("yearly")
"""


@pytest.mark.parametrize("handler", ["later", "apart", "several"])
def test_handlers_of_every_kind_are_told_of(site: Site, monitor: Monitor, handler: str) -> None:
    with (site.directory / "handlers.py").open("a") as module:
        module.write(OTHERS.replace("URL", "None"))
    add(site, "nightly", handler, monitor)
    assert drained(site) == ""
    assert (site.notes(), monitor.paths) == ([handler], ["/start", "/0"])


def test_recurrences_of_modules_and_of_the_configuration_have_monitors_too(site: Site, monitor: Monitor) -> None:
    with (site.directory / "handlers.py").open("a") as module:
        module.write(OTHERS.replace("URL", repr(f"{monitor.url}/module")))
    (site.directory / "config.toml").write_text(
        f'handlers = ["handlers"]\n[recurrences.configured]\nhandler = "later"\ncron = "0 0 1 1 *"\n'
        f'ping = "{monitor.url}/configured"\n'
    )
    drained(site)
    for name in ("yearly", "configured"):
        assert site.command("recurrences", "trigger", name).returncode == 0
    drained(site)
    assert sorted(monitor.paths) == ["/configured/0", "/configured/start", "/module/0", "/module/start"]


def test_a_monitor_that_fails_changes_no_outcome_and_is_warned_of_without_its_url(site: Site, monitor: Monitor) -> None:
    monitor.status = 500
    add(site, "nightly", "record", monitor, '{"name": "a"}')
    assert drained(site) == "pollconsumer: warning: ping to 127.0.0.1 was not delivered: it answers 500\n"
    assert monitor.paths == ["/start", "/start", "/0", "/0"]
    assert [entry["state"] for entry in site.json("list")] == ["completed"]


def test_a_handler_does_not_wait_for_the_monitor(site: Site, monitor: Monitor) -> None:
    monitor.holds["/start"] = lambda: site.await_note("a")
    add(site, "nightly", "record", monitor, '{"name": "a"}')
    assert drained(site) == ""
    assert monitor.paths == ["/start", "/0"]


@pytest.mark.ends_with(1)  # doctor finds the dead letter
def test_the_url_is_shown_nowhere(site: Site, monitor: Monitor) -> None:
    add(site, "nightly", "fatal", monitor)
    said = [drained(site), site.command("-vv", "run", "--until-empty", **DIALECT).stderr]
    message = site.json("list")[0]["id"]
    for command in (
        ["recurrences", "list"],
        ["recurrences", "list", "--json"],
        ["recurrences", "history", "nightly", "--json"],
        ["status", message, "--json"],
        ["status", "--json"],
        ["dead", "show", message],
        ["doctor", "--json"],
        ["dashboard", "--static", "pages"],
    ):
        done = site.command(*command)
        said.append(done.stdout + done.stderr)
    said += [page.read_text() for page in (site.directory / "pages").rglob("*.html")]
    assert not [text for text in said if SECRET in text]
    listed = json.loads(said[3])[0]
    assert listed["ping"].startswith("http://127.0.0.1:")
    assert "nightly" in said[2]


@pytest.mark.parametrize("url", [f"ftp://h/{SECRET}", SECRET, f"https://h/{SECRET} x", f"https:///{SECRET}", ""])
def test_an_address_that_is_none_is_refused_without_being_shown(site: Site, url: str) -> None:
    added = site.command("recurrences", "add", "nightly", "record", "--every", "1h", "--ping", url)
    (site.directory / "config.toml").write_text(f'[recurrences.n]\nhandler = "h"\nevery = "1h"\nping = "{url}"\n')
    configured = site.command("run")
    assert (added.returncode, configured.returncode) == (65, 78)
    for done in (added, configured):
        assert (
            done.stderr.removeprefix("pollconsumer: error: config.toml: ")
            .removeprefix("pollconsumer: error: ")
            .startswith("recurrence")
        )
        assert done.stderr.endswith("; write https://HOST/…, without spaces\n")
        assert SECRET not in done.stderr


def test_nothing_of_it_is_imported_where_no_recurrence_has_one(site: Site) -> None:
    site.command("recurrences", "add", "nightly", "record", '{"name": "a"}', "--every", "1h")
    names = "[name for name in sys.modules if name == 'pollconsumer.runtime.launch.pings']"
    script = f"import atexit, sys; atexit.register(lambda: print({names})); sys.argv[1:] = ['run', '--until-empty']; "
    process = site.start_program([sys.executable, "-c", f"{script}from pollconsumer.__main__ import main; main()"])
    output, _ = process.communicate(timeout=90)
    assert (output, site.notes()) == ("[]\n", ["a"])
