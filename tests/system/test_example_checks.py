"""The example of a monitoring service, run as cron would run it, against servers that are made to fail."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.loopback import Mailbox, Website, postgresql
from tests.site import Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EXAMPLE = Path(__file__).parents[2] / "examples" / "checks"
SHORT = ["--timeout", "4s", "--idle-time", "500ms"]
TROUBLE, WELL = "{}: trouble", "{}: well again"


class Monitor:
    """The example, installed by a user, with checks of servers on loopback."""

    def __init__(self, site: Site, website: Website, mailbox: Mailbox) -> None:
        self.site, self.website, self.mailbox = site, website, mailbox
        shutil.copytree(EXAMPLE, site.directory, dirs_exist_ok=True)
        # Launches of a few seconds, whatever second of a minute the test runs in.
        config = (EXAMPLE / "config.toml").read_text().replace('schedule = "* * * * *"\n', "")
        quick = 'min_margin = "300ms"\nestimated_duration = "100ms"\n'
        (site.directory / "config.toml").write_text(config.replace("[consumer]\n", f"[consumer]\n{quick}"))

    def declare(self, **checks: dict[str, Any]) -> None:
        lines = ['log = "results.sqlite3"', f'smtp = "{self.mailbox.address}"', 'sender = "checks@localhost"']
        for name, check in checks.items():
            lines.append(f"[checks.{name}]")
            lines += [
                f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
                for key, value in check.items()
            ]
        (self.site.directory / "checks.toml").write_text("\n".join(lines))

    def results(self, name: str) -> dict[datetime, tuple[bool, str]]:
        """By occurrence, in order."""
        with closing(sqlite3.connect(self.site.directory / "results.sqlite3")) as connection:
            rows = connection.execute(
                "SELECT occurrence, ok, detail FROM results WHERE name = ? ORDER BY occurrence", (name,)
            ).fetchall()
        return {datetime.fromisoformat(at).replace(tzinfo=UTC): (bool(ok), detail) for at, ok, detail in rows}

    def count(self, name: str, *, ok: bool) -> int:
        try:
            return sum(result[0] is ok for result in self.results(name).values())
        except sqlite3.OperationalError:  # no table yet
            return 0

    def await_results(self, names: Iterable[str], more: int, *, ok: bool) -> None:
        """So many more of each."""
        wanted = {name: self.count(name, ok=ok) + more for name in names}
        wait_until(lambda: all(self.count(name, ok=ok) >= wanted[name] for name in wanted), f"{more} more of {wanted}")

    def listed(self) -> dict[str, dict[str, Any]]:
        return {entry["name"]: entry for entry in self.site.json("recurrences", "list")}


class Cron:
    """A launch of the consumer and one of the mover, again and again, each pair when the one before is gone."""

    def __init__(self, site: Site) -> None:
        self.said: list[tuple[int | None, str, str]] = []
        self._site, self._over = site, threading.Event()
        self._thread = threading.Thread(target=self._launch)

    def __enter__(self) -> Cron:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _launch(self) -> None:
        while not self._over.is_set():
            launches = [self._site.start("run", *SHORT), self._site.start("move", *SHORT)]
            for launch in launches:
                output, errors = launch.communicate()
                self.said.append((launch.returncode, output, errors))


@pytest.fixture
def website() -> Iterator[Website]:
    website = Website()
    yield website
    website.close()


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    mailbox = Mailbox()
    yield mailbox
    mailbox.close()


@pytest.fixture
def monitor(site: Site, website: Website, mailbox: Mailbox) -> Monitor:
    return Monitor(site, website, mailbox)


def test_the_example_as_it_stands_can_be_meant(monitor: Monitor) -> None:
    done = monitor.site.command("check")
    assert done.returncode == 0, done.stderr
    assert "homepage" in done.stdout


def test_trouble_and_its_end_are_logged_and_told_once_while_other_checks_go_on(monitor: Monitor) -> None:
    website, mailbox, shop = monitor.website, monitor.mailbox, monitor.site.directory / "shop.sqlite3"
    website.held["/silent"] = threading.Event()
    with closing(sqlite3.connect(shop)) as orders, postgresql() as url, psycopg.connect(url, autocommit=True) as stock:
        orders.execute("CREATE TABLE orders (state TEXT)")
        orders.commit()
        stock.execute("CREATE TABLE imports (state TEXT)")
        stock.execute("INSERT INTO imports VALUES ('fresh')")
        ops = ["ops@localhost", "boss@localhost"]
        asked = {"query": "SELECT count(*) FROM orders WHERE state = 'stuck'", "expect": 0}
        monitor.declare(
            homepage={"kind": "url", "target": website.url("/home"), "expect": "well", "every": "1s", "notify": ops},
            orders={"kind": "sqlite", "target": str(shop), "every": "1s", "notify": ops[:1], **asked},
            stock={
                "kind": "postgresql",
                "target": url,
                "query": "SELECT state FROM imports",
                "every": "2s",
                "notify": ops,
            },
            silent={"kind": "url", "target": website.url("/silent"), "every": "2s", "timeout": 0.5, "notify": ops},
            untold={"kind": "url", "target": website.url("/nowhere"), "expect": "never", "every": "2s"},
            off={"kind": "url", "target": website.url("/off"), "every": "1s", "enabled": False, "notify": ops},
        )
        checked = ("homepage", "orders", "stock")
        with Cron(monitor.site) as cron:
            monitor.await_results(checked, 1, ok=True)
            wait_until(lambda: mailbox.subjects() == [TROUBLE.format("silent")], "the one thing to tell")
            website.broken.add("/home")
            orders.execute("INSERT INTO orders VALUES ('stuck')")
            orders.commit()
            stock.execute("DELETE FROM imports")
            monitor.await_results(checked, 2, ok=False)
            website.broken.clear()
            orders.execute("DELETE FROM orders")
            orders.commit()
            stock.execute("INSERT INTO imports VALUES ('fresh')")
            monitor.await_results(checked, 1, ok=True)
            wait_until(lambda: len(mailbox.messages) == 2 * len(checked) + 1, "what is told")
    assert cron.said == [(0, "", "")] * len(cron.said)
    for name in checked:
        assert mailbox.subjects(name) == [TROUBLE.format(name), WELL.format(name)]
    assert mailbox.subjects("silent") == [TROUBLE.format("silent")]
    assert len(mailbox.messages) == 2 * len(checked) + 1
    about = next(m for m in mailbox.messages if m["Subject"] == TROUBLE.format("homepage"))
    assert about["To"] == "ops@localhost, boss@localhost"
    assert "500 Internal Server Error" in str(about.get_payload())
    assert {detail for ok, detail in monitor.results("orders").values() if not ok} == {"1, not 0"}
    assert {detail for ok, detail in monitor.results("stock").values() if not ok} == {"the query gives no row"}
    assert set(monitor.results("silent").values()) == {(False, "no answer within 0.5 s")}
    assert set(monitor.results("untold").values()) == {(False, "'never' is not in the page")}
    # Each at its own frequency: what was due is a row, or counted as skipped.
    listed = monitor.listed()
    completed = {entry["id"] for entry in monitor.site.json("list", "--state", "completed", "--limit", "1000")}
    for name, seconds in {"homepage": 1, "orders": 1, "stock": 2, "silent": 2, "untold": 2}.items():
        entry, rows = listed[name], list(monitor.results(name))
        assert {f"{name}@{at:%Y-%m-%dT%H:%M:%SZ}" for at in rows} <= completed | {entry["last"]}
        assert all(at.timestamp() % seconds == 0 for at in rows)
        due = (datetime.fromisoformat(entry["next"]) - rows[0]).total_seconds() / seconds
        assert due <= entry["enqueued"] + entry["skipped"]
        assert len(rows) <= entry["enqueued"] <= len(rows) + 1  # the last may have come when nobody was left
    assert website.asked.count("/home") == len(monitor.results("homepage"))
    assert (listed["off"]["next"], listed["off"]["enqueued"]) == ("disabled", 0)
    assert monitor.results("off") == {}
    assert "/off" not in website.asked


AGAIN = """
from datetime import UTC, datetime
from monitor.service import DECLARED, perform
perform(DECLARED.checks[0], datetime(2026, 1, 1, tzinfo=UTC))
"""


def test_a_second_run_for_the_same_instant_finds_what_the_first_one_logged_and_told(monitor: Monitor) -> None:
    website, site = monitor.website, monitor.site
    monitor.declare(page={"kind": "url", "target": website.url("/page"), "every": "1h", "notify": ["ops@localhost"]})
    website.broken.add("/page")
    for _ in range(2):
        subprocess.run([sys.executable, "-c", AGAIN], cwd=site.directory, env=site.environment, check=True)
        website.broken.clear()
    assert monitor.results("page") == {datetime(2026, 1, 1, tzinfo=UTC): (False, "500 Internal Server Error")}
    assert site.drain().returncode == 0
    assert monitor.mailbox.subjects() == [TROUBLE.format("page")]


def test_a_check_whose_process_is_killed_is_run_again_and_logged_once(monitor: Monitor) -> None:
    website, site = monitor.website, monitor.site
    website.held["/slow"] = threading.Event()
    monitor.declare(
        slow={"kind": "url", "target": website.url("/slow"), "every": "1s", "timeout": 60},
        quick={"kind": "url", "target": website.url("/quick"), "every": "1s"},
    )
    mover, killed = site.start("move"), site.start("run")
    wait_until(lambda: website.asked.count("/slow") == 1, "the check that hangs")
    monitor.await_results(["quick"], 2, ok=True)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    assert monitor.count("slow", ok=False) == monitor.count("slow", ok=True) == 0
    website.held["/slow"].set()
    launch = site.start("run")
    monitor.await_results(["slow"], 2, ok=True)
    for process in (launch, mover):
        process.terminate()
        assert process.wait(30) == 0
    rows = list(monitor.results("slow"))
    again = site.json("status", f"slow@{rows[0]:%Y-%m-%dT%H:%M:%SZ}")
    assert (again["state"], again["attempts"]) == ("completed", 2)
    assert website.asked.count("/slow") == len(rows) + 1
    assert monitor.listed()["slow"]["skipped"] > 0
