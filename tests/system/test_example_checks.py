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
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import psycopg
import pytest

from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.store.records.occurrences import id_of
from tests.loopback import Mailbox, Website, postgresql
from tests.site import Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EXAMPLE = Path(__file__).parents[2] / "examples" / "checks"
SHORT = ["--timeout", "8s", "--idle-time", "500ms"]
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

        (site.directory / "monitor.toml").write_text(
            f'log = "results.sqlite3"\nsmtp = "{mailbox.address}"\nsender = "checks@localhost"\n'
        )

    def put(self, name: str, **options: str | float) -> subprocess.CompletedProcess[str]:
        """As a person does, while launches go on."""
        given = [word for option, value in options.items() for word in (f"--{option}", str(value))]
        return subprocess.run(
            [sys.executable, "-m", "monitor", "put", name, *given],
            cwd=self.site.directory,
            env=self.site.environment,
            capture_output=True,
            text=True,
            check=False,
        )

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
    assert "forget" in done.stdout


def test_trouble_and_its_end_are_logged_and_told_once_while_other_checks_go_on(monitor: Monitor) -> None:
    website, mailbox, shop = monitor.website, monitor.mailbox, monitor.site.directory / "shop.sqlite3"
    website.held["/silent"] = threading.Event()
    with closing(sqlite3.connect(shop)) as orders, postgresql() as url, psycopg.connect(url, autocommit=True) as stock:
        orders.execute("CREATE TABLE orders (state TEXT)")
        orders.commit()
        stock.execute("CREATE TABLE imports (state TEXT)")
        stock.execute("INSERT INTO imports VALUES ('fresh')")
        ops = "ops@localhost, boss@localhost"
        monitor.put("homepage", kind="url", target=website.url("/home"), expect="well", every="1s", notify=ops)
        query = "SELECT count(*) FROM orders WHERE state = 'stuck'"
        monitor.put(
            "orders", kind="sqlite", target=str(shop), query=query, expect=0, every="1s", notify="ops@localhost"
        )
        query = "SELECT state FROM imports"
        monitor.put("stock", kind="postgresql", target=url, query=query, every="2s", notify=ops)
        monitor.put("silent", kind="url", target=website.url("/silent"), every="2s", timeout=0.2, notify=ops)
        monitor.put("untold", kind="url", target=website.url("/nowhere"), expect="never", every="2s")
        monitor.put("off", kind="url", target=website.url("/off"), every="1h", notify=ops)
        monitor.site.command("recurrences", "pause", "off")
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
    assert set(monitor.results("silent").values()) == {(False, "no answer within 0.2 s")}
    assert set(monitor.results("untold").values()) == {(False, "'never' is not in the page")}
    # Each at its own frequency: what was due is a row, or counted as skipped.
    listed = monitor.listed()
    completed = {entry["id"] for entry in monitor.site.json("list", "--state", "completed", "--limit", "1000")}
    for name, seconds in {"homepage": 1, "orders": 1, "stock": 2, "silent": 2, "untold": 2}.items():
        entry, rows = listed[name], list(monitor.results(name))
        assert {id_of(name, epoch_ms(at)) for at in rows} <= completed | {entry["last"]}
        assert all((at - rows[0]).total_seconds() % seconds == 0 for at in rows)
        due = (datetime.fromisoformat(entry["next"]) - rows[0]).total_seconds() / seconds
        assert due <= entry["enqueued"] + entry["skipped"]
        assert len(rows) <= entry["enqueued"] <= len(rows) + 1  # the last may have come when nobody was left
    assert website.asked.count("/home") == len(monitor.results("homepage"))
    assert (listed["off"]["next"], listed["off"]["enqueued"]) == ("paused", 0)
    assert monitor.results("off") == {}
    assert "/off" not in website.asked


def test_checks_that_are_added_changed_and_removed_while_launches_go_on_are_obeyed_at_once(monitor: Monitor) -> None:
    website = monitor.website
    with Cron(monitor.site):
        monitor.put("page", kind="url", target=website.url("/one"), every="1h")
        wait_until(lambda: monitor.count("page", ok=True) == 1, "the one result")  # it may be there before put returns
        monitor.put("page", kind="url", target=website.url("/two"), every="1s")
        wait_until(lambda: website.asked.count("/two") >= 2, "the page as it was changed")
        monitor.site.command("recurrences", "remove", "page")
        refused = monitor.put("page", kind="url", target="", every="1s")
    assert website.asked.count("/one") == 1
    assert (refused.returncode, refused.stderr) == (65, "python -m monitor: target is empty\n")
    assert set(monitor.listed()) == {"forget"}


def test_people_add_and_pause_checks_on_a_page_which_refuses_forms_of_other_sites(monitor: Monitor) -> None:
    site = monitor.site
    program = [sys.executable, "-m", "monitor.page", "0"]
    with subprocess.Popen(program, cwd=site.directory, env=site.environment, stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        url = page.stdout.readline().strip()

        def send(headers: dict[str, str] | None = None, **form: str) -> tuple[int, str]:
            try:
                answer = urlopen(Request(url, urlencode(form).encode(), headers or {}))
            except HTTPError as refused:
                answer = refused
            with answer:
                return answer.status, answer.read().decode()

        given: Any = {"act": "put", "kind": "url", "target": "http://127.0.0.1/<i>", "every": "1h", "owner": "<ada>"}
        status, shown = send(name="ada:<b>", **given)
        assert (status, "1 to 100 letters" in shown) == (400, True)
        status, shown = send(name="ada:home", **given)
        assert status == 200
        assert "http://127.0.0.1/&lt;i&gt;" in shown
        assert "&lt;ada&gt;" in shown
        assert "paused" in send(act="pause", name="ada:home")[1]
        for headers in ({"Origin": "http://elsewhere"}, {"Host": "elsewhere"}):
            assert send(headers, act="remove", name="ada:home")[0] == 403
        assert monitor.listed()["ada:home"]["next"] == "paused"
        page.terminate()


AGAIN = """
from datetime import UTC, datetime
from monitor.checks import Check
from monitor.service import recorded
print(recorded(Check("page", "url", {!r}), datetime(2026, 1, 1, tzinfo=UTC)).ok)
"""


def test_a_second_attempt_at_the_same_instant_finds_what_the_first_one_recorded(monitor: Monitor) -> None:
    website, site = monitor.website, monitor.site
    website.broken.add("/page")
    for _ in range(2):
        again = [sys.executable, "-c", AGAIN.format(website.url("/page"))]
        run = subprocess.run(again, cwd=site.directory, env=site.environment, check=True, stdout=subprocess.PIPE)
        assert run.stdout == b"False\n"
        website.broken.clear()
    assert monitor.results("page") == {datetime(2026, 1, 1, tzinfo=UTC): (False, "500 Internal Server Error")}


def test_a_check_whose_process_is_killed_is_run_again_and_logged_once(monitor: Monitor) -> None:
    website, site = monitor.website, monitor.site
    website.held["/slow"] = threading.Event()
    monitor.put("slow", kind="url", target=website.url("/slow"), every="1s", timeout=60)
    monitor.put("quick", kind="url", target=website.url("/quick"), every="1s")
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
        assert process.wait(90) == 0
    rows = list(monitor.results("slow"))
    again = site.json("status", id_of("slow", epoch_ms(rows[0])))
    assert (again["state"], again["attempts"]) == ("completed", 2)
    assert website.asked.count("/slow") == len(rows) + 1
    assert monitor.listed()["slow"]["skipped"] > 0
