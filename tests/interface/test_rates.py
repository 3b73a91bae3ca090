"""Rates of keys as users have them: of a message, a handler, a program, a queue."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Context, PollConsumer
from pollconsumer.core.errors import BadData, ConfigurationError
from pollconsumer.testing import Sandbox

if TYPE_CHECKING:
    from pathlib import Path

    from tests.site import Site


class Sent:
    """A handler's calls: what for, and after how many minutes."""

    def __init__(self, app: PollConsumer, **options: Any) -> None:
        self.app, self.calls = app, list[tuple[str, int]]()
        self.handler = app.handler("send", **options)(self.send)
        self.sandbox: Sandbox | None = None

    def send(self, to: str) -> None:
        assert self.sandbox is not None
        began = self.sandbox.now.timestamp() - self.began
        self.calls.append((to, round(began / 60)))

    def run(self, sandbox: Sandbox, span: str) -> list[tuple[str, int]]:
        self.sandbox, self.began = sandbox, sandbox.now.timestamp()
        sandbox.run_for(span)
        return self.calls


def test_each_value_of_an_argument_has_the_rate_of_its_handler(app: PollConsumer, sandbox: Sandbox) -> None:
    sent = Sent(app, rate="2/1h", rate_key="to")
    for _ in range(5):
        sent.handler.enqueue("ada")
    sent.handler.enqueue("ben")
    assert sent.run(sandbox, "3h") == [("ada", 0), ("ada", 0), ("ben", 0), ("ada", 60), ("ada", 60), ("ada", 120)]


def test_a_handler_with_a_rate_alone_has_it_for_all_its_messages(app: PollConsumer, sandbox: Sandbox) -> None:
    sent = Sent(app, rate="1/1h")
    sent.handler.enqueue_many([{"to": "ada"}, {"to": "ben"}])
    app.enqueue("other")
    assert sent.run(sandbox, "2h") == [("ada", 0), ("ben", 60)]


@pytest.mark.parametrize("way", ["enqueue", "many", "async", "name", "name async", "follow-up"])
def test_every_way_to_enqueue_knows_the_rate_of_the_handler(app: PollConsumer, sandbox: Sandbox, way: str) -> None:
    sent = Sent(app, rate="1/1h", rate_key="to")

    @app.handler
    def first(context: Context) -> None:
        for _ in range(2):
            context.enqueue("send", {"to": "ada"})

    for _ in range(1 if way in ("many", "follow-up") else 2):
        if way == "enqueue":
            sent.handler.enqueue("ada")
        elif way == "many":
            sent.handler.enqueue_many([{"to": "ada"}, {"to": "ada"}])
        elif way == "async":
            asyncio.run(sent.handler.enqueue_async("ada"))
        elif way == "name":
            app.enqueue("send", {"to": "ada"})
        elif way == "name async":
            asyncio.run(app.enqueue_async("send", {"to": "ada"}))
        else:
            first.enqueue()
    assert sent.run(sandbox, "2h") == [("ada", 0), ("ada", 60)]


def test_occurrences_have_the_rate_of_their_handler(app: PollConsumer, sandbox: Sandbox) -> None:
    sent = Sent(app, rate="1/1h", rate_key="to")
    for name in ("one", "two"):
        app.recurrences.put(name, handler="send", every="1d", payload={"to": "ada"})
    assert sent.run(sandbox, "2h") == [("ada", 0), ("ada", 60)]


def test_a_message_has_a_key_and_a_rate_of_its_own(app: PollConsumer, sandbox: Sandbox) -> None:
    sent = Sent(app, rate="1/1h", rate_key="to")
    for to in ("ada", "ben", "eve"):
        sent.handler.using(rate_key="all", rate="2/30m").enqueue(to)
    sent.handler.using(rate_key="hourly").enqueue("ada")
    sent.handler.using(rate_key="hourly").enqueue("ben")
    assert sent.run(sandbox, "2h") == [("ada", 0), ("ben", 0), ("ada", 0), ("eve", 30), ("ben", 60)]


def test_without_a_rate_a_key_has_that_of_its_queue(app: PollConsumer, tmp_path: Path) -> None:
    sent = Sent(app)
    (tmp_path / "config.toml").write_text('[queues.default]\nrate = "1/1h"\n')
    with Sandbox(app, config=tmp_path / "config.toml") as sandbox:
        for key in ("a", "a", None, None):
            app.enqueue("send", {"to": str(key)}, rate_key=key)
        assert sent.run(sandbox, "2h") == [("a", 0), ("None", 0), ("None", 0), ("a", 60)]


def test_status_says_that_a_message_waits_for_the_rate_of_its_key(app: PollConsumer, sandbox: Sandbox) -> None:
    sent = Sent(app, rate="1/1h")
    handles = [sent.handler.enqueue("ada") for _ in range(2)]
    sent.run(sandbox, "1m")
    assert [(each.state, each.status().row.booked) for each in handles] == [("completed", False), ("scheduled", True)]
    sandbox.run_for("1h")
    assert [each.status().row.booked for each in handles] == [False, False]


def test_a_retry_counts_for_the_rate(app: PollConsumer, sandbox: Sandbox) -> None:
    began, calls = sandbox.now, list[float]()

    @app.handler(rate="2/1h", max_attempts=3)
    def fail() -> None:
        calls.append((sandbox.now - began).total_seconds() // 60)
        raise ValueError

    fail.enqueue()
    sandbox.run_for("3h")
    assert calls == [0, 0, 60]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"rate": "60/1h"}, "rate: 60/1h; give the rate_key, too"),
        ({"rate_key": "a", "rate": "60"}, "rate: '60'; write messages / period, as in 60/1h"),
        ({"rate_key": "a", "rate": 60}, "rate: 60; write messages / period, as in 60/1h"),
        ({"rate_key": "a", "rate": ["60/1h"]}, r"rate: \['60/1h'\]; write messages / period, as in 60/1h"),
        ({"rate_key": "a", "rate": "1001/1h"}, "rate: '1001/1h'; at most 1000 messages"),
        ({"rate_key": "a", "rate": "1/1ms"}, "rate: '1/1ms'; its period must be between 100ms and 31d"),
        ({"rate_key": ""}, "rate key: ''; text of 1 to 255 bytes"),
        ({"rate_key": 7}, "rate key: 7; text of 1 to 255 bytes"),
        ({"rate_key": "a\nb"}, "rate key: 'a\\\\nb'; text of 1 to 255 bytes"),
    ],
)
def test_a_rate_that_cannot_be_meant_is_refused(app: PollConsumer, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadData, match=problem):
        app.enqueue("send", **options)


def test_an_argument_that_is_too_long_for_a_key_is_refused(app: PollConsumer) -> None:
    sent = Sent(app, rate="1/1h", rate_key="to")
    with pytest.raises(BadData, match="rate key"):
        sent.handler.enqueue("a" * 256)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"rate": "sixty"}, "rate: 'sixty'; write messages / period, as in 60/1h"),
        ({"rate": 60}, "rate: 60; write messages / period, as in 60/1h"),
        ({"rate": "1/1h", "rate_key": "too"}, "rate_key: 'too'; the handler send has no parameter of that name"),
        ({"rate": "1/1h", "rate_key": ["to"]}, "rate_key: .* the handler send has no parameter of that name"),
    ],
)
def test_a_handlers_rate_that_cannot_be_meant_is_refused(
    app: PollConsumer, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        Sent(app, **options)


RATED = """
[commands.backup]
command = ["/bin/true"]
rate = "1/1h"
rate_key = "target"

[queues.default]
rate = "60/1h"
"""


def configure(site: Site, text: str) -> None:
    with (site.directory / "config.toml").open("a") as config:
        config.write(text)


def test_programs_have_rates_and_the_shell_shows_who_waits(site: Site) -> None:
    configure(site, RATED)
    ids = [site.enqueue("backup", target=target) for target in ("db1", "db1", "db2")]
    site.drain()
    found = [site.json("status", each) for each in ids]
    assert [each["state"] for each in found] == ["completed", "scheduled", "completed"]
    assert [each["waits_for_rate_key"] for each in found] == [False, True, False]
    shown = site.command("status", ids[1]).stdout.splitlines()
    assert "waits for the rate limit of its key, until its next attempt" in [" ".join(line.split()) for line in shown]
    rates = site.json("check")["rates"]
    assert rates["queues"] == {"default": "60/1h"}
    assert rates["handlers"] == {"backup": {"rate": "1/1h", "rate_key": "target"}}
    printed = site.command("check").stdout
    assert "rate of queue default" in printed
    assert "rate of backup" in printed


def test_the_shell_takes_a_key_and_a_rate_in_an_argument_or_a_line(site: Site) -> None:
    first = site.enqueue("record", "--rate-key", "k", "--rate", "1/1h", name="one")
    line = {"handler": "record", "payload": {"name": "two"}, "rate_key": "k", "rate": "1/1h"}
    (site.directory / "lines").write_text(json.dumps(line))
    second = site.command("enqueue", "--ndjson", "lines").stdout.strip()
    site.drain()
    assert [site.json("status", each)["state"] for each in (first, second)] == ["completed", "scheduled"]
    refused = site.command("enqueue", "record", "--rate", "1/1h")
    assert (refused.returncode, refused.stderr) == (65, "pollconsumer: error: rate: 1/1h; give the rate_key, too\n")


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ('[queues.mail]\nrate = "60"', "queues.mail.rate: 60; write messages / period, as in 60/1h"),
        ('[queues.mail]\nrate = "9999/1h"', "queues.mail.rate: 9999/1h; at most 1000 messages"),
        ('[commands.b]\ncommand = ["true"]\nrate = "60"', "commands.b.rate: 60; write messages / period, as in 60/1h"),
        ('[commands.b]\ncommand = ["true"]\nrate_key = ""', "commands.b.rate_key: ; name a member"),
    ],
)
def test_a_configured_rate_that_cannot_be_meant_is_refused(site: Site, section: str, problem: str) -> None:
    configure(site, section)
    refused = site.command("check")
    assert refused.returncode == 78
    assert refused.stderr.startswith(f"pollconsumer: error: config.toml: {problem}")
