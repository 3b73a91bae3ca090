"""Recurrences that are spread: by H in a field, and by jitter; in code, configuration and at run time alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.errors import BadData, ConfigurationError
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.core.recurrence import offset_of
from pollconsumer.core.spans import format_duration
from pollconsumer.interface.assembly.handlers import load_recurrences
from pollconsumer.interface.settings.model import RecurrenceSettings, Settings
from pollconsumer.store.recurrences import readable
from pollconsumer.testing import Sandbox

if TYPE_CHECKING:
    from tests.site import Site

NOON = datetime(2026, 3, 27, 12, 0, tzinfo=UTC)


def test_put_decorated_and_configured_ones_of_a_name_are_due_at_one_instant() -> None:
    app = PollConsumer()
    app.every("H H(0-5) * * *", jitter="5m", name="x")(lambda: None)
    with Sandbox(app, start=NOON) as sandbox:
        sandbox.run()
        decorated = app.recurrences.get("x")
    configured = {"x": RecurrenceSettings(handler="x", cron="H H(0-5) * * *", jitter="5m")}
    (of_file,) = load_recurrences(Settings(recurrences=configured), {})
    other = PollConsumer()
    with Sandbox(other, start=NOON):
        other.recurrences.put(
            "x", handler="x", queue="q", cron="H H(0-5) * * *", jitter=timedelta(minutes=5), first="next"
        )
        put = other.recurrences.get("x")
    rules = [readable(each) for each in (decorated, put)]
    assert {(each.cron, each.offset) for each in (*rules, of_file)} == {(of_file.cron, of_file.offset)}
    assert of_file.offset == offset_of(300.0, "pollconsumer", "x")
    assert decorated.next == put.next
    (elsewhere,) = load_recurrences(Settings(namespace="other", recurrences=configured), {})
    assert (elsewhere.cron, elsewhere.offset) != (of_file.cron, of_file.offset)


def test_one_that_is_put_with_jitter_begins_by_its_offset_later_and_goes_on_when_it_is_put_again() -> None:
    app, ran = PollConsumer(), list[datetime]()

    @app.handler("check")
    def check(occurrence: datetime) -> None:
        ran.append(occurrence)

    with Sandbox(app, start=NOON) as sandbox:
        offset = timedelta(milliseconds=offset_of(60.0, "pollconsumer", "a"))
        for _ in range(2):
            app.recurrences.put("a", handler="check", every="5m", jitter="1m")
            sandbox.advance("1s")
        assert app.recurrences.get("a").next == NOON + offset
        sandbox.run_for("12m", every="1m")
        assert ran == [NOON + offset + timedelta(minutes=5) * n for n in range(3)]
        app.recurrences.put("a", handler="check", every="5m", jitter="4m")
        following = app.recurrences.get("a").next
        assert following is not None
        offset = timedelta(milliseconds=offset_of(240.0, "pollconsumer", "a"))
        assert following == sandbox.now + offset


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"jitter": "0s"}, "jitter: 0s; must be 1s or more"),
        ({"jitter": "25h"}, "jitter: 25h; must be 1d or less"),
        ({"jitter": "soon"}, "jitter: soon; "),
        ({"jitter": -5}, "jitter: -5; "),
        ({"jitter": True}, "jitter: "),
        ({"jitter": "1m", "after": "end"}, "jitter: with after = end; leave it out"),
        ({"every": None, "cron": "H(3-99) * * * *"}, "H(3-99) stands for no value of 0-59, field 1"),
        ({"every": None, "cron": "H * * *"}, "four fields, need five"),
        ({"every": None, "cron": "H 24 * * *"}, "hour must be 0-23"),
    ],
)
def test_what_cannot_be_spread_is_refused(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"handler": "x", "every": "1m", "queue": "q"} | change
    app = PollConsumer()
    with Sandbox(app), pytest.raises(BadData) as raised:
        app.recurrences.put("x", **given)
    assert said in str(raised.value)
    del given["handler"], given["queue"]
    when = given.pop("every") or given.pop("cron")
    if len(when.split()) != 4:
        with pytest.raises(ConfigurationError) as refused:
            app.every(when, name="x", **given)(lambda: None)
        assert said in str(refused.value)


CONFIGURATION = """
namespace = "shop"
handlers = ["work"]
[recurrences.hashed]
handler = "work"
cron = "H H * * *"
[recurrences.jittered]
handler = "work"
cron = "30 2 * * *"
timezone = "Europe/Paris"
jitter = "5m"
"""
WORK = """
from pollconsumer import PollConsumer
app = PollConsumer()
@app.handler("work")
def work() -> None: ...
"""


def test_a_preview_shows_the_instants_that_a_launch_brings_and_a_second_host_the_same(site: Site) -> None:
    (site.directory / "config.toml").write_text(CONFIGURATION)
    (site.directory / "work.py").write_text(WORK)
    before = {name: site.json("recurrences", "next", name) for name in ("hashed", "jittered")}
    assert site.command("run", "--until-empty").returncode == 0
    listed = {each["name"]: each for each in site.json("recurrences", "list")}
    for name, instants in before.items():
        assert listed[name]["next"] == instants[0]
        assert site.json("recurrences", "next", name) == instants
    offset = offset_of(300.0, "shop", "jittered")
    assert listed["jittered"]["rule"] == f"30 2 * * *, {format_duration(offset / 1000)} later"
    assert epoch_ms(datetime.fromisoformat(before["jittered"][0])) % 3_600_000 == 1_800_000 + offset
    added = ("recurrences", "add", "put", "work", "--cron", "H/20 3 * * *", "--jitter", "90s", "--first", "next")
    assert [site.command(*added).returncode for _ in range(2)] == [0, 0]
    times = [datetime.fromisoformat(each) for each in site.json("recurrences", "next", "put", "-n", "4")]
    assert [(b - a).total_seconds() for a, b in pairwise(times)].count(1200) >= 2
    refused = site.command(*added[:4], "--cron", "H/0 * * * *")
    assert (refused.returncode, refused.stderr) == (
        2,
        "pollconsumer: error: --cron: H/0 * * * *; H/0 stands for no value of 0-59, field 1\n",
    )
