"""Recurrences: from the configuration and from modules, enqueued once each, whatever happens."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.choices import Missed, Overlap
from pollconsumer.core.errors import ConfigurationError
from tests.site import Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from enum import StrEnum

CONFIG = """
[recurrences.tick]
handler = "record"
every = "1s"
payload = { name = "tick" }

[recurrences.nightly]
handler = "record"
cron = "30 2 * * *"
timezone = "Europe/Paris"
payload = { name = "night" }
missed = "skip"
overlap = "skip"
"""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site(CONFIG)
    yield site
    site.close()


def listed(site: Site) -> dict[str, dict[str, object]]:
    return {entry["name"]: entry for entry in site.json("recurrences", "list")}


@pytest.mark.crossing
def test_a_launch_defines_them_and_enqueues_their_occurrences(site: Site) -> None:
    launch = site.start("run", "--max-messages", "2")
    assert launch.wait(90) == 0
    assert site.notes() == ["tick", "tick"]
    ids = [entry["id"] for entry in site.json("list", "--state", "completed")]
    assert all(name.startswith("tick@") and name.endswith("Z") for name in ids)
    assert listed(site)["tick"]["enqueued"] in (2, 3)
    assert listed(site)["nightly"]["enqueued"] == 0


def test_a_definition_that_is_gone_is_removed_and_one_that_changed_begins_anew(site: Site) -> None:
    site.drain()
    before = listed(site)["nightly"]["next"]
    site.drain()
    assert listed(site)["nightly"]["next"] == before
    changed = CONFIG.replace("30 2", "31 2").replace("[recurrences.tick]", "[recurrences.tock]")
    (site.directory / "config.toml").write_text(f'handlers = ["handlers"]\n{changed}')
    done = site.command("-v", "run", "--until-empty")
    assert "recurrence tick is no longer defined: removed" in done.stderr
    assert set(listed(site)) == {"nightly", "tock"}
    assert listed(site)["nightly"]["next"] != before
    assert listed(site)["nightly"]["rule"] == "31 2 * * *"


def test_what_another_consumer_defines_is_left_alone(site: Site) -> None:
    site.drain()
    (site.directory / "config.toml").write_text('handlers = ["handlers"]\n')
    site.drain("--queue", "mail")
    assert set(listed(site)) == {"nightly", "tick"}


def test_a_paused_recurrence_enqueues_nothing(site: Site) -> None:
    site.drain()
    assert site.command("recurrences", "pause", "tick").returncode == 0
    paused = listed(site)["tick"]
    assert paused["next"] == "paused"
    site.command("move", "--timeout", "3s")
    assert listed(site)["tick"] == paused
    assert site.command("recurrences", "resume", "tick").returncode == 0
    mover = site.start("move")
    wait_until(lambda: listed(site)["tick"]["enqueued"] != paused["enqueued"], "an occurrence")
    mover.terminate()


def test_a_disabled_recurrence_is_listed_and_yields_nothing_until_its_definition_says_otherwise(site: Site) -> None:
    config = site.directory / "config.toml"
    enabled = config.read_text()
    config.write_text(enabled.replace('"1s"', '"1s"\nenabled = false'))
    site.enqueue("record", "--in", "3s", name="later")
    assert site.start("run", "--max-messages", "1").wait(90) == 0
    assert site.notes() == ["later"]
    tick = listed(site)["tick"]
    assert (tick["next"], tick["enabled"], tick["enqueued"], tick["skipped"]) == ("disabled", False, 0, 0)
    refused = site.command("recurrences", "resume", "tick")
    assert refused.returncode == 65
    assert refused.stderr.endswith("cannot resume: tick; it is disabled: enable it where it is defined\n")
    config.write_text(enabled)
    assert site.start("run", "--max-messages", "1").wait(90) == 0
    assert site.notes() == ["later", "tick"]


def test_a_disabled_recurrence_that_was_paused_stays_paused_when_it_is_enabled(site: Site) -> None:
    config = site.directory / "config.toml"
    enabled = config.read_text()
    site.drain()
    site.command("recurrences", "pause", "tick")
    config.write_text(enabled.replace('"1s"', '"1s"\nenabled = false'))
    site.drain()
    assert listed(site)["tick"]["next"] == "disabled"
    config.write_text(enabled)
    site.drain()
    assert listed(site)["tick"]["next"] == "paused"


def test_triggering_enqueues_one_more(site: Site) -> None:
    site.drain()
    message = site.command("recurrences", "trigger", "nightly").stdout.strip()
    site.drain()
    assert site.state(message) == "completed"
    assert site.notes().count("night") == 1


def test_a_trigger_says_as_json_what_enqueue_says(site: Site) -> None:
    site.drain()
    enqueued = site.json("recurrences", "trigger", "nightly")
    assert enqueued.keys() == {"id", "duplicate"}
    assert site.state(enqueued["id"]) == "ready"


def test_one_that_is_removed_by_hand_comes_back_with_the_next_launch_that_defines_it(site: Site) -> None:
    site.drain()
    assert site.command("recurrences", "remove", "tick").returncode == 0
    assert site.command("recurrences", "remove", "tick").returncode == 66
    assert site.command("recurrences", "pause", "tick").returncode == 66
    site.drain()
    assert set(listed(site)) == {"nightly", "tick"}


def test_two_groups_that_share_a_configuration_do_not_take_each_others_occurrences(site: Site) -> None:
    site.drain()
    before = listed(site)["nightly"]["next"]
    site.drain("--queue", "other")
    assert listed(site)["nightly"]["next"] == before
    assert listed(site)["nightly"]["owners"] == ["consumer:default", "consumer:other"]


def test_what_the_configuration_defines_is_known_before_a_launch_brings_it(site: Site) -> None:
    (site.directory / "config.toml").write_text(
        'handlers = ["handlers"]\n[recurrences.nightly]\nhandler = "record"\ncron = "30 2 * * *"\nqueue = "new"\n'
        'payload = { name = "a" }\n'
    )
    (listed,) = site.json("recurrences", "list")
    assert (listed["name"], listed["queue"], listed["enqueued"]) == ("nightly", "new", 0)
    assert site.json("recurrences", "next", "nightly", "-n", "1") == [listed["next"]]
    assert site.json("recurrences", "history", "nightly") == []
    triggered = site.command("recurrences", "trigger", "nightly").stdout.strip()
    assert site.json("status", triggered)["state"] == "ready"
    site.drain("--queue", "new")
    assert site.notes() == ["a"]
    assert [each["id"] for each in site.json("recurrences", "history", "nightly")] == [triggered]
    assert [each["name"] for each in site.json("recurrences", "list")] == ["nightly"]
    assert site.command("recurrences", "next", "nightli").returncode == 66


def test_modules_that_cannot_be_imported_hide_no_recurrence_of_the_store(site: Site) -> None:
    site.command("recurrences", "add", "tick", "record", '{"name": "a"}', "--every", "1h", "--queue", "default")
    (site.directory / "handlers.py").write_text("import nowhere\n")
    done = site.command("recurrences", "list", "--json")
    assert [each["name"] for each in json.loads(done.stdout)] == ["tick"]
    assert "recurrences of the configuration are left out: " in done.stderr


def test_next_previews_in_the_zone_of_the_recurrence(site: Site) -> None:
    site.drain()
    moments = site.json("recurrences", "next", "nightly", "-n", "3")
    assert len(moments) == 3
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT0[01]:[03]0:00\.000Z", moment) for moment in moments)
    assert "02:30:00 CE" in site.command("recurrences", "next", "nightly").stdout
    odd = site.json("recurrences", "next", "nightly", "--dst")
    assert len(odd) == 2
    assert site.command("recurrences", "next", "nobody").returncode == 66


@pytest.mark.parametrize("times", [(), ("--times", "3"), ("--times", "300")], ids=" ".join)
def test_a_preview_of_days_or_of_later_times_shows_what_the_whole_preview_has(
    site: Site, times: tuple[str, ...]
) -> None:
    zone, now = ZoneInfo("Europe/Paris"), datetime.now(UTC).replace(microsecond=0)
    first = now + timedelta(days=1)
    rule = ("--every", "13h", "--first", first.isoformat(), "--timezone", zone.key, *times)
    assert site.command("recurrences", "add", "put", "fatal", *rule).returncode == 0
    whole = site.json("recurrences", "next", "put", "-n", "1000")
    assert len(whole) == int(("1000", *times)[-1])
    changing = [
        text
        for text, at in ((text, datetime.fromisoformat(text).astimezone(zone)) for text in whole)
        if at.date() < now.astimezone(zone).date() + timedelta(days=366)
        and at.replace(hour=0).utcoffset() != at.replace(hour=23).utcoffset()
    ]
    assert site.json("recurrences", "next", "put", "--dst") == changing
    assert site.json("recurrences", "next", "put", "--dst", "-n", "1") == changing[:1]
    assert site.json("recurrences", "next", "put", "-n", "9", "--from", whole[1]) == whole[1:10]
    if times:
        later = (first + timedelta(days=365)).date().isoformat()
        assert site.json("recurrences", "next", "put", "--from", later) == []


def test_a_preview_counts_a_bounded_number_of_occurrences(site: Site) -> None:
    for name, times in (("few", "1000"), ("many", "1000000")):
        site.command("recurrences", "add", name, "fatal", "--every", "1s", "--times", times)
    assert site.json("recurrences", "next", "few", "--from", "9999-01-01") == []
    done = site.command("recurrences", "next", "many", "--from", "9999-01-01")
    assert done.returncode == 2
    assert done.stderr.startswith("pollconsumer: error: too many occurrences: 100000 until 9998-12-31T23:59:59.999Z; ")
    done = site.command("recurrences", "next", "many", "--dst", "--from", "2030-01-01")
    assert (done.returncode, done.stderr) == (
        2, "pollconsumer: error: --dst and --from; give one of the two\n"
    )  # fmt: skip


def test_a_function_recurs_and_is_given_its_instant(site: Site) -> None:
    (site.directory / "config.toml").write_text('handlers = ["recurring"]\n')
    (site.directory / "recurring.py").write_text(
        "from datetime import datetime\nfrom pathlib import Path\nfrom pollconsumer import PollConsumer\n"
        "app = PollConsumer()\n"
        "@app.every('1s', enabled=False)\ndef never() -> None:\n    raise AssertionError\n"
        "@app.every('1s', missed='once')\ndef beat(occurrence: datetime) -> None:\n"
        "    assert occurrence.tzinfo is not None\n"
        "    Path('instants').open('a').write(occurrence.isoformat() + '\\n')\n"
    )
    assert site.start("run", "--max-messages", "2").wait(90) == 0
    instants = (site.directory / "instants").read_text().split()
    assert len(set(instants)) == 2
    assert [entry["id"] for entry in site.json("list", "--state", "dead")] == []
    assert (listed(site)["never"]["next"], listed(site)["never"]["enqueued"]) == ("disabled", 0)


@pytest.mark.parametrize(("name", "words"), [("missed", Missed), ("overlap", Overlap)])
def test_type_checkers_know_the_words_that_may_be_given(name: str, words: type[StrEnum]) -> None:
    assert PollConsumer.every.__annotations__[name] == f"Literal{[word.value for word in words]}"


@pytest.mark.parametrize(
    ("when", "options", "said"),
    [
        ("1m", {"missed": "never"}, "missed: 'never'; one of skip, once, all"),
        ("1m", {"overlap": "skp"}, "overlap: 'skp'; did you mean skip?"),
        ("1m", {"enabled": 1}, "enabled: 1; true or false"),
        ("1m", {"priority": 1.5}, "priority: 1.5"),
        ("1m", {"priority": "high"}, "priority: 'high'"),
        ("1m", {"timezone": "Europe/Lodon"}, "did you mean Europe/London?"),
        ("1m", {"timezone": None}, "timezone: None"),
        ("0.5s", {}, "every: 0.5s; must be 1s or more"),
        ("99999999h", {}, "every: 99999999h; must be 1825d or less"),
        ("61 * * * *", {}, "cron: 61 * * * *; minute must be 0-59"),
        ("61\t*\t*\t*\t*", {}, "minute must be 0-59"),
        ("@reboot", {}, "cron: @reboot; @reboot names no time, write five fields"),
        ("@dialy", {}, "cron: @dialy; no such nickname, write five fields or one of @hourly, @daily"),
        (b"60", {}, "every: b'60'; must be text"),
        (None, {}, "give cron or every"),
    ],
)
def test_a_function_that_is_to_recur_is_checked_when_it_is_registered(
    when: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        PollConsumer().every(when, name="beat", **options)(lambda: None)
    assert str(raised.value).startswith("recurrences.beat: ")
    assert said in str(raised.value)


def test_check_refuses_a_recurrence_whose_handler_nobody_has(site: Site) -> None:
    config = site.directory / "config.toml"
    config.write_text(config.read_text() + "[recurrences.lost]\nhandler = 'recrod'\nevery = '1h'\n")
    refused = site.command("check")
    assert (refused.returncode, refused.stderr.count("\n")) == (78, 1)
    assert "recurrences.lost: handler: recrod; did you mean record?" in refused.stderr


def test_check_warns_of_a_recurrence_whose_queue_nobody_serves(site: Site) -> None:
    config = site.directory / "config.toml"
    served = "[consumer]\nqueues = ['default']\nschedule = '* * * * *'\n"
    config.write_text(
        config.read_text()
        + served
        + "[recurrences.lost]\nhandler = 'record'\nevery = '1h'\nqueue = 'attic'\npayload = { name = 'a' }\n"
    )
    done = site.command("check", "--json")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "recurrence lost: no launch serves its queue attic" in done.stderr
    report = json.loads(done.stdout)
    assert report["queues_not_served"] == ["attic"]
    moments = [*report["consumer"]["next_launches"], report["consumer"]["stop_before"], report["mover"]["hard_end"]]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", moment) for moment in moments)
    assert site.command("run", "--queue", "attic", "--until-empty").returncode == 0
    assert site.command("check").stderr == ""


def test_a_recurring_function_that_cannot_be_meant_is_refused_by_check_as_by_run(site: Site) -> None:
    (site.directory / "config.toml").write_text('handlers = ["recurring"]\n')
    (site.directory / "recurring.py").write_text(
        "from pollconsumer import PollConsumer\napp = PollConsumer()\n@app.every('5x')\ndef beat() -> None:\n    pass\n"
    )
    for command in ("check", "run"):
        refused = site.command(command)
        assert refused.returncode == 78
        assert "recurrences.beat: every: 5x; units are" in refused.stderr
        assert ("Traceback" in refused.stderr) == (command == "check")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("[recurrences.x]\nevery = '1s'", "handler"),
        ("[recurrences.x]\nhandler = 'a'", "give cron or every"),
        ("[recurrences.x]\nhandler = 'a'\ncron = '* * * * *'\nevery = '1s'", "give cron or every"),
        ("[recurrences.x]\nhandler = 'a'\ncron = '61 * * * *'", "61 * * * *"),
        ("[recurrences.x]\nhandler = 'a'\nevery = '0'", "1s or more"),
        ("[recurrences.x]\nhandler = 'a'\nevery = '1s'\ntimezone = 'Mars/Olympus'", "Mars/Olympus"),
        ("[recurrences.x]\nhandler = 'a'\nevery = '1s'\ntimezone = 'Europe/Pariss'", "did you mean Europe/Paris?"),
        ("[recurrences.x]\nhandler = 'a'\nevery = '1s'\ntimezone = 'europe/BERLN'", "did you mean Europe/Berlin?"),
        ("[recurrences.x]\nhandler = 'a b'\nevery = '1s'", "handler"),
        (
            "[recurrences.x]\nhandler = 'a'\nevery = '1s'\npayload = { a = [{ b = 2030-01-01T00:00:00Z }] }",
            "payload.a[0].b",
        ),
        ("[recurrences.x]\nhandler = 'a'\nevery = '1s'\npayload = { a = { b = nan } }", "payload.a.b"),
        ("[recurrences.x]\nhandler = 'a'\nevery = '1s'\npriority = 5000", "priority"),
        ("[recurrences.x]\nhandler = 'a'\nevery = '1s'\nmissed = 'never'", "missed"),
        ("[recurrences.x]\nhandler = 'a'\nevery = '1s'\nenabled = 'no'", "expected true or false"),
        ("[recurrences.x]\nhandler = 'a'\nevery = '1s'\nmised = 'skip'", "did you mean missed?"),
    ],
)
def test_a_recurrence_that_cannot_be_meant_is_refused(site: Site, section: str, said: str) -> None:
    (site.directory / "config.toml").write_text(section)
    done = site.command("run")
    assert (done.returncode, done.stderr.count("\n")) == (78, 1)
    assert said in done.stderr


REMEMBERING = """
from pathlib import Path
from pollconsumer import Context, PollConsumer
app = PollConsumer()

def count(context: Context) -> int:
    found = 1 if context.previous is None else context.previous.result + 1
    with Path(__file__).with_name("notes").open("a") as notes:
        notes.write(f"{found}\\n")
    return found

app.handler("here")(count)
app.handler("apart", isolation="process")(count)
"""


@pytest.mark.parametrize("handler", ["here", "apart"])
def test_one_that_is_added_while_a_launch_idles_runs_at_once_and_knows_what_the_last_one_found(
    site: Site, handler: str
) -> None:
    (site.directory / "config.toml").write_text('handlers = ["remembering"]\n')
    (site.directory / "remembering.py").write_text(REMEMBERING)
    launch = site.start("run", "--max-messages", "3")
    assert site.command("recurrences", "add", "check:42", handler, "--every", "1s").returncode == 0
    assert launch.wait(90) == 0
    assert site.notes() == ["1", "2", "3"]
    (entry,) = site.json("recurrences", "list")
    assert (entry["name"], entry["last_result"], entry["owners"]) == ("check:42", 3, [])
    history = site.json("recurrences", "history", "check:42")
    completed = [each for each in history if each["state"] == "completed"]
    assert [each["result"] for each in completed] == [3, 2, 1]
    assert all(each["late_seconds"] >= 0 and each["handled_seconds"] >= 0 for each in completed)
    assert history[0]["instant"] > history[-1]["instant"]


def test_what_is_added_wrongly_is_refused_in_one_line(site: Site) -> None:
    site.drain()
    for arguments, code, said in (
        (
            ["tick", "record", '{"name": "a"}', "--every", "1s"],
            65,
            "cannot put recurrence: tick; a configuration defines one",
        ),
        (["a b", "record", "--every", "1s"], 65, "recurrence name: 'a b'; 1 to 100"),
        (["a", "record"], 2, "give either --every or --cron"),
        (["a", "record", "--every", "1s", "--cron", "* * * * *"], 2, "give either --every or --cron"),
        (["a", "record", "--every", "1x"], 2, "1x"),
        (["a", "record", "--every", "1s", "--first", "soon"], 2, "soon"),
        (["a", "record", "[]", "--every", "1s"], 65, "must be a JSON object"),
        (["a", "record", "--every", "1s", "--timezone", "Mars"], 65, "Mars"),
    ):
        refused = site.command("recurrences", "add", *arguments)
        assert (refused.returncode, refused.stderr.count("\n")) == (code, 1), refused.stderr
        assert said in refused.stderr
    assert set(listed(site)) == {"nightly", "tick"}


def test_a_launch_leaves_a_name_that_was_added_to_who_added_it(site: Site) -> None:
    assert (
        site.command(
            "recurrences", "add", "tick", "record", "--queue", "default", "--every", "1h", "--first", "next"
        ).returncode
        == 0
    )
    done = site.command("run", "--until-empty")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "recurrence tick of the configuration is skipped" in done.stderr
    assert listed(site)["tick"]["rule"] == "every 1h"


def test_a_preview_begins_on_a_day_in_the_zone_of_the_recurrence(site: Site) -> None:
    site.drain()
    assert site.json("recurrences", "next", "nightly", "-n", "1", "--from", "2030-01-31") == [
        "2030-01-31T01:30:00.000Z"
    ]
    time = "2030-01-31T01:30:00Z"
    assert site.json("recurrences", "next", "nightly", "-n", "1", "--from", time) == ["2030-01-31T01:30:00.000Z"]
    assert site.command("recurrences", "next", "nightly", "--from", "someday").returncode == 2
    assert site.command("recurrences", "next", "nightly", "-n", "1", "--from", "2020-01-31").stdout.endswith(" ago\n")


def test_those_are_listed_whose_names_begin_so_or_whom_one_has_put(site: Site) -> None:
    config = site.directory / "config.toml"
    config.write_text(config.read_text() + "[recurrences.night]\nhandler = 'record'\ncron = '@daily'\n")
    for name, creator in (("nightly", "ada"), ("check:1", "ada"), ("check:2", "bob")):
        site.command("recurrences", "add", name, "record", '{"name": "a"}', "--every", "1h", "--created-by", creator)

    def listed(*options: str) -> list[str]:
        return sorted(each["name"] for each in site.json("recurrences", "list", *options))

    assert {"check:1", "check:2", "night", "nightly"} <= {*listed()}
    assert listed("--prefix", "night") == ["night", "nightly"]
    assert listed("--prefix", "check:", "--created-by", "ada") == ["check:1"]
    assert listed("--created-by", "ada") == ["check:1", "nightly"]
    assert {each["rule"] for each in site.json("recurrences", "list", "--prefix", "nig")} == {"every 1h", "0 0 * * *"}


OFF = """
[recurrences.off]
handler = "record"
payload = { name = "x" }
every = "1h"
enabled = false
"""


def test_a_check_shows_when_each_recurrence_is_due_next_and_in_which_zone(site: Site) -> None:
    config = site.directory / "config.toml"
    config.write_text(config.read_text() + OFF)
    table = site.command("check").stdout
    nightly = r"recurrence nightly +30 2 \* \* \*, next 2\d{3}-\d\d-\d\dT0[23]:[03]0:00\+0[12]:00 \(Europe/Paris\)$"
    assert re.search(nightly, table, re.MULTILINE)
    assert re.search(r"recurrence tick +every 1s, next 2\S+\+00:00 \(UTC\)$", table, re.MULTILINE)
    assert re.search(r"recurrence off +every 1h, switched off$", table, re.MULTILINE)
    found = site.json("check")["next_occurrences"]
    assert found["nightly"]["timezone"] == "Europe/Paris"
    assert found["off"]["next"] is None
