"""Options of the messages of recurrences: given in code, configuration and at run time, and what becomes of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Backoff, Context, PollConsumer
from pollconsumer.core.errors import BadData, ConfigurationError
from pollconsumer.core.recurrence import OF_MESSAGES
from pollconsumer.interface.assembly.handlers import load_recurrences
from pollconsumer.interface.settings.model import RecurrenceSettings, Settings
from pollconsumer.runtime.new_messages import OccurrenceOptions
from pollconsumer.store.recurrences import readable
from pollconsumer.testing import Sandbox

if TYPE_CHECKING:
    from tests.site import Site

NOON = datetime(2026, 3, 27, 12, 0, tzinfo=UTC)
GIVEN: dict[str, Any] = {
    "expires": "90s",
    "concurrency_key": "k",
    "concurrency_limit": 2,
    "order_key": "o",
    "headers": {"a": "b"},
}
OF_HANDLERS: dict[str, Any] = {"timeout": "30s", "max_attempts": 2, "retry": "slow", "rate_key": "r", "rate": "5/1h"}


def test_each_option_of_a_message_is_one_of_the_definition() -> None:
    assert {*OF_MESSAGES, "headers", "rate_key", "rate"} == OccurrenceOptions.__annotations__.keys()
    assert RecurrenceSettings().__dict__.keys() >= OccurrenceOptions.__annotations__.keys()


def test_code_configuration_and_put_define_the_same() -> None:
    app = PollConsumer()
    app.every("1h", name="x", **GIVEN)(lambda: None)
    with Sandbox(app, start=NOON) as sandbox:
        sandbox.run()
        decorated = readable(app.recurrences.get("x"))
        all_given = GIVEN | OF_HANDLERS
        app.recurrences.put("y", handler="other", queue="q", every="1h", **all_given)
        put = readable(app.recurrences.get("y"))
        before = app.recurrences.get("y")
        app.recurrences.put("y", handler="other", queue="q", every="1h", **all_given | {"timeout": 30})
        assert app.recurrences.get("y") == before
    assert decorated.options == {"expires": 90.0, "concurrency_key": "k", "concurrency_limit": 2, "order_key": "o"}
    assert put.options == decorated.options | {"timeout": 30.0, "max_attempts": 2, "retry": "slow"}
    assert (decorated.headers, put.headers) == ({"a": "b"}, {"a": "b"})
    seconds = {"expires": 90.0, "timeout": 30.0}
    of_file = {"x": RecurrenceSettings(handler="other", every="1h", **all_given | seconds)}
    (configured,) = load_recurrences(Settings(recurrences=of_file), {})
    assert (configured.options, configured.headers) == (put.options, put.headers)
    assert (configured.rate_key, configured.rate) == (put.rate_key, put.rate) == ("r", "5/1h")


class Seen:
    def __init__(self, app: PollConsumer) -> None:
        self.attempts = list[int]()
        self.headers = list[dict[str, str]]()
        app.retry_policy("slow", Backoff(first="10m", jitter=0))

        @app.handler("check", max_attempts=5)
        def check(context: Context) -> None:
            self.attempts.append(context.attempt)
            self.headers.append(dict(context.headers))
            raise OSError


def test_an_occurrence_is_tried_as_often_and_as_late_as_its_own_options_say() -> None:
    app = PollConsumer()
    seen = Seen(app)
    with Sandbox(app, start=NOON) as sandbox:
        options: dict[str, Any] = {"max_attempts": 2, "retry": "slow", "headers": {"a": "b"}}
        app.recurrences.put("x", handler="check", every="1d", **options)
        sandbox.run_for("9m", every="1m", raising=False)
        assert seen.attempts == [1]
        sandbox.run_for("9m", every="1m", raising=False)
        assert seen.attempts == [1, 2]
        assert seen.headers == [{"a": "b"}] * 2
        (occurred,) = app.recurrences.history("x")
        assert occurred.message.state == "dead"
        app.recurrences.trigger("x")
        sandbox.run()
        assert seen.headers == [{"a": "b"}] * 3


def test_one_that_could_not_be_begun_by_its_latest_start_expires_and_the_next_one_is_begun() -> None:
    app = PollConsumer()
    seen = Seen(app)
    with Sandbox(app, start=NOON) as sandbox:
        app.recurrences.put("x", handler="check", every="1h", first="next", expires="10m", max_attempts=1)
        sandbox.advance("75m")
        sandbox.run()
        assert seen.attempts == []
        sandbox.advance("46m")
        sandbox.run()
        assert seen.attempts == [1]
        assert [each.message.state for each in app.recurrences.history("x")] == ["dead", "expired"]
        app.recurrences.trigger("x")
        sandbox.advance("9m")
        sandbox.run()
        assert seen.attempts == [1, 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"expires": 0}, "expires: 0; must be more than 0"),
        ({"expires": "soon"}, "expires: "),
        ({"timeout": -1}, "timeout: -1"),
        ({"max_attempts": 0}, "max_attempts: 0; a whole number from 1"),
        ({"retry": ""}, "retry: ''; the name of a policy"),
        ({"retry": "nope"}, "retry: 'nope'; "),
        ({"concurrency_key": ""}, "concurrency key: ''"),
        ({"concurrency_limit": 2}, "concurrency_limit: 2; give the concurrency_key, too"),
        ({"order_key": ""}, "order key: ''"),
        ({"order_key": "o", "priority": 1}, "priority: 1; messages with an order_key"),
        ({"rate": "5/1h"}, "rate: 5/1h; give the rate_key, too"),
        ({"rate": "5", "rate_key": "r"}, "rate: '5'; write messages / period"),
        ({"headers": {"a b": "c"}}, "header name: 'a b'"),
        ({"headers": {"a": 1}}, "header a: 1; printable text"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(change: dict[str, Any], said: str) -> None:
    app = PollConsumer()
    Seen(app)
    with Sandbox(app), pytest.raises(BadData) as raised:
        app.recurrences.put("x", handler="check", every="1m", **change)
    assert said in str(raised.value)
    if change.keys() <= GIVEN.keys():
        with pytest.raises(ConfigurationError) as refused:
            app.every("1m", name="y", **change)(lambda: None)
        assert said in str(refused.value)


CONFIGURATION = """
handlers = ["work"]
[recurrences.nightly]
handler = "work"
cron = "30 2 * * *"
expires = "2h"
timeout = "10m"
max_attempts = 2
concurrency_key = "disk"
headers = { team = "ops" }
"""
WORK = """
from pathlib import Path
from pollconsumer import Context, PollConsumer
app = PollConsumer()
@app.handler("work")
def work(context: Context) -> None:
    with Path(__file__).with_name("notes").open("a") as notes:
        notes.write(f"{dict(context.headers)}\\n")
"""


def test_options_are_configured_added_listed_and_reach_the_handler(site: Site) -> None:
    (site.directory / "config.toml").write_text(CONFIGURATION)
    (site.directory / "work.py").write_text(WORK)
    added = "--every 1h --expires 10m --timeout 5s --max-attempts 1 --header x=y --concurrency-key c"
    for _ in range(2):
        assert site.command("recurrences", "add", "put", "work", *added.split()).returncode == 0
    assert site.command("run", "--until-empty").returncode == 0
    assert site.notes() == ["{'x': 'y'}"]
    keys = ("expires_seconds", "timeout_seconds", "max_attempts", "concurrency_key", "concurrency_limit", "headers")
    listed = {each["name"]: [each[key] for key in keys] for each in site.json("recurrences", "list")}
    assert listed == {
        "nightly": [7200.0, 600.0, 2, "disk", None, {"team": "ops"}],
        "put": [600.0, 5.0, 1, "c", None, {"x": "y"}],
    }
    assert site.command("recurrences", "trigger", "nightly").returncode == 0
    assert site.command("run", "--until-empty").returncode == 0
    assert site.notes() == ["{'x': 'y'}", "{'team': 'ops'}"]
    refused = site.command("recurrences", "add", "bad", "work", "--every", "1h", "--retry", "nope")
    assert (refused.returncode, refused.stderr.count("\n")) == (65, 1)
    (site.directory / "config.toml").write_text(CONFIGURATION.replace("max_attempts = 2", 'retry = "nope"'))
    program = "handlers = ['work']\n[commands.prog]\ncommand = ['true']\n"
    checked = site.command("check")
    assert (checked.returncode, checked.stderr) == (
        78,
        "pollconsumer: error: config.toml: recurrences.nightly: retry: 'nope'; register it: "
        "app.retry_policy(name, policy)\n",
    )
    recurrence = "[recurrences.r]\nhandler = 'prog'\nevery = '1h'\nretry = 'nope'\n"
    (site.directory / "config.toml").write_text(program + recurrence)
    for command in (("check",), ("recurrences", "add", "p", "prog", "--every", "1h", "--retry", "nope")):
        refused = site.command(*command)
        assert (refused.returncode, refused.stderr.count("\n")) == (78 if command == ("check",) else 65, 1)
        assert "retry: 'nope'; a program has no named policies: set retry in its table" in refused.stderr
