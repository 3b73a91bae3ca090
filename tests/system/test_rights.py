"""Commands whose users have the rights that docs/reference/rights.md grants, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.site import Site
from tests.system.monitor import Monitor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.store.servers import Server

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "rights.md"
RECURRENCE = (
    '[recurrences.often]\nhandler = "record"\nevery = "1s"\nqueue = "other"\npayload = { name = "occurrence" }\n'
)


class Users:
    def __init__(self, server: Server) -> None:
        self._url, self._wire = server.url, server.wire()
        rules = re.findall(r"^ACL SETUSER (\w+) ((?:.*\\\n)*.*)$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
        for name, words in rules:
            granted = words.replace("\\\n", " ").replace("PASSWORD", "secret").split()
            self._wire.command("ACL", "SETUSER", name, "reset", *granted)
        self.names = [name for name, _ in rules]

    def change(self, user: str, rule: str) -> None:
        self._wire.command("ACL", "SETUSER", user, rule)

    def store(self, user: str) -> str:
        return self._url.replace("unix://", f"unix://{user}:secret@")

    def close(self) -> None:
        self._wire.command("ACL", "DELUSER", *self.names)


@pytest.fixture
def users(valkey: Server) -> Iterator[Users]:
    users = Users(valkey)
    yield users
    users.close()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site(RECURRENCE)
    yield site
    site.close()


@pytest.mark.crossing
def test_every_command_does_its_work_with_the_rights_that_are_documented(site: Site, users: Users) -> None:
    def run(user: str, *arguments: str) -> str:
        done = site.command(*arguments, POLLCONSUMER_STORE=users.store(user))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    for user in ("producer", "launch", "operator"):
        run(user, "store", "adopt")
    run("producer", "enqueue", "record", '{"name": "now"}', "--key", "k", "--priority", "2")
    run("producer", "enqueue", "record", '{"name": "soon"}', "--in", "1ms")
    later = run("producer", "enqueue", "record", '{"name": "later"}', "--in", "1h")
    dead = run("producer", "enqueue", "fatal")
    run("launch", "run", "--until-empty", "--queue", "default", "--queue", "other")
    for window in ("1500ms", "8s", "30s"):  # of a busy machine the imports alone may take a second
        run("launch", "move", "--timeout", window, "--idle-time", "100ms")
        run("launch", "run", "--until-empty", "--queue", "default", "--queue", "other")
        if "soon" in site.notes():
            break
    assert set(site.notes()) >= {"now", "soon"}
    for looking in ("status", "list", "launches", "lease show", "dead list", "recurrences list"):
        run("operator", *looking.split())
    for user in ("producer", "launch", "operator"):
        run(user, "check")
    run("operator", "reschedule", later, "--in", "2h")
    run("operator", "cancel", later)
    run("operator", "dead", "redrive", dead)
    run("operator", "queue", "pause", "default")
    run("operator", "recurrences", "pause", "often")


@pytest.mark.parametrize(
    ("user", "right", "command"),
    [
        ("producer", "rpush", "enqueue record --queue default"),
        ("producer", "info", "enqueue record --queue default"),
        ("launch", "zadd", "run"),
        ("launch", "zrangebyscore", "move"),
        ("operator", "zrem", "dead purge --all --yes"),
    ],
)
def test_a_right_that_is_missing_ends_a_command_with_77_and_is_named(
    site: Site, users: Users, user: str, right: str, command: str
) -> None:
    users.change(user, f"-{right}")
    if user == "operator":
        site.command("enqueue", "fatal", POLLCONSUMER_STORE=users.store("producer"))
        site.command("run", "--until-empty", POLLCONSUMER_STORE=users.store("launch"))
    done = site.command(*command.split(), POLLCONSUMER_STORE=users.store(user))
    assert done.returncode == 77, done.stderr
    assert done.stderr == (
        f"pollconsumer: error: rights missing: +{right}; the store's user needs them: see docs/reference/rights.md\n"
    )


def test_a_launch_that_is_to_tell_of_findings_needs_two_rights_more_and_ends_well_without_them(
    site: Site, users: Users
) -> None:
    monitor = Monitor()
    try:
        site.environment["POLLCONSUMER_DOCTOR__URL"] = monitor.url
        site.command("enqueue", "fatal", POLLCONSUMER_STORE=users.store("producer"))
        done = site.command("run", "--until-empty", POLLCONSUMER_STORE=users.store("launch"))
        assert done.returncode == 0
        assert "pollconsumer: warning: alarms: rights missing: +zcount; the store's user needs them" in done.stderr
        assert monitor.told == []
        for right in "+zcount", "+zmscore":
            users.change("launch", right)
        done = site.command("run", "--until-empty", POLLCONSUMER_STORE=users.store("launch"))
        assert done.returncode == 0
        assert any("dead letters" in body for _, _, body in monitor.told)
    finally:
        monitor.close()
