"""Whoever enqueues without naming a queue: the message goes to its handler's own, and a launch serves that."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.api.app import PollConsumer
from pollconsumer.interface.assembly.handlers import OwnDefaults, load_recurrences
from pollconsumer.interface.assembly.launch_roles import consumer_options, served_queues
from pollconsumer.interface.settings.model import (
    CommandSettings,
    ConsumerSettings,
    QueueSettings,
    RecurrenceSettings,
    Settings,
)
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.testing import Sandbox

if TYPE_CHECKING:
    from pathlib import Path

    from tests.site import Site

HANDLERS = """
import pathlib
from pollconsumer import Context, PollConsumer
app, other = PollConsumer(), PollConsumer()

def note(what):
    with (pathlib.Path(__file__).parent / "notes").open("a") as notes:
        notes.write(what + "\\n")

@app.handler("mail.send", queue="mail")
def send(name: str = "send") -> None:
    note(name)

@app.handler
def plain() -> None:
    note("plain")

@other.handler
def by_name() -> None:
    other.enqueue("mail.send", {"name": "by name"})

@app.handler
def follow(context: Context) -> None:
    context.enqueue("mail.send", {"name": "follow-up"})
"""


@pytest.fixture
def mailing(site: Site) -> Site:
    """A site with a handler that has a queue of its own."""
    (site.directory / "handlers.py").write_text(HANDLERS)
    return site


def queue_of(site: Site, message: str) -> str:
    queue: str = site.json("status", message)["queue"]
    return queue


def test_what_the_command_line_enqueues_goes_to_the_handlers_own_queue_and_is_handled(mailing: Site) -> None:
    message = mailing.enqueue("mail.send", name="a")
    assert queue_of(mailing, message) == "mail"
    assert queue_of(mailing, mailing.enqueue("plain")) == "default"
    assert queue_of(mailing, mailing.enqueue("mail.send", "--queue", "default", name="named")) == "default"
    assert queue_of(mailing, mailing.enqueue("nobody", "--queue", "default")) == "default"
    done = mailing.drain()
    assert done.returncode == 0
    assert sorted(mailing.notes()) == ["a", "named", "plain"]
    assert mailing.json("launches")[0]["queues"] == ["default", "mail"]


def test_lines_in_bulk_go_to_the_handlers_own_queues(mailing: Site) -> None:
    lines = [{"handler": "mail.send"}, {"handler": "plain"}, {"handler": "mail.send", "queue": "other"}]
    (mailing.directory / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = mailing.command("enqueue", "--ndjson", "lines")
    assert [queue_of(mailing, message) for message in done.stdout.split()] == ["mail", "default", "other"]


def test_what_handlers_and_recurrences_enqueue_goes_to_the_handlers_own_queue(mailing: Site) -> None:
    with (mailing.directory / "config.toml").open("a") as config:
        config.write(
            '[recurrences.newsletter]\nhandler = "mail.send"\nevery = "1h"\npayload = { name = "recurring" }\n'
        )
    mailing.enqueue("by_name")
    mailing.enqueue("follow")
    assert mailing.drain().returncode == 0
    assert mailing.json("recurrences", "list")[0]["queue"] == "mail"
    assert mailing.command("recurrences", "trigger", "newsletter").returncode == 0
    assert mailing.drain().returncode == 0
    assert sorted(mailing.notes()) == ["by name", "follow-up", "recurring"]
    counts = {queue["name"]: queue["completed"] for queue in mailing.json("status")["queues"]}
    assert counts == {"default": 2, "mail": 3}


def test_queues_that_are_set_are_all_that_is_served(mailing: Site) -> None:
    mailing.enqueue("mail.send")
    mailing.drain("--queue", "default")
    assert mailing.notes() == []
    mailing.drain("--queue", "mail")
    assert mailing.notes() == ["send"]
    assert [entry["queues"] for entry in mailing.json("launches")] == [["mail"], ["default"]]


def test_check_shows_the_queues_that_a_launch_would_serve(mailing: Site) -> None:
    assert mailing.json("check")["queues"] == ["default", "mail"]


@pytest.mark.parametrize(
    "command",
    [
        ("init", "cron"),
        ("init", "keda", "--image", "shop"),
        ("init", "cron", "--queue", "mail"),
        ("check", "--json"),
        ("recurrences", "list", "--json"),
        ("enqueue", "mail.send", "--id", "1", "--json"),
    ],
    ids=" ".join,
)
def test_what_a_module_prints_is_no_output_of_a_command(mailing: Site, command: tuple[str, ...]) -> None:
    if command[1] == "keda":
        (mailing.directory / "config.toml").write_text('store = "redis://redis.example"\nhandlers = ["handlers"]\n')
    quiet = mailing.command(*command)
    (mailing.directory / "handlers.py").write_text(f"print('loading')\n{HANDLERS}")
    done = mailing.command(*command)
    assert (done.returncode, quiet.returncode) == (0, 0), (done, quiet)
    assert "loading" not in done.stdout
    assert done.stdout[:20] == quiet.stdout[:20] != ""
    assert done.stderr == f"loading\n{quiet.stderr}"


def test_what_codec_hook_and_client_print_is_no_output_of_a_command(mailing: Site) -> None:
    (mailing.directory / "handlers.py").write_text(
        """
from pollconsumer import PollConsumer


class Codec:
    def encode(self, payload):
        print("encoding")
        return payload

    def decode(self, payload):
        return payload


app = PollConsumer(codec=Codec())
app.before_enqueue(lambda draft: print("hooked"))


@app.handler("mail.send")
def send(): ...
"""
    )
    done = mailing.command("enqueue", "mail.send", "--id", "1")
    assert (done.stdout, done.stderr) == ("1\n", "hooked\nencoding\n")
    (mailing.directory / "client.py").write_text(
        """
import os
import redis
print("loading")


def make():
    print("making")
    return redis.Redis(unix_socket_path=os.environ["SOCKET"])
"""
    )
    (mailing.directory / "config.toml").write_text('client = "client:make"\n')
    socket = mailing.command("store", "path", "--json").stdout
    done = mailing.command("list", "--json", SOCKET=json.loads(socket)["socket"], POLLCONSUMER_STORE="")
    assert ([each["id"] for each in json.loads(done.stdout)], done.stderr) == (["1"], "loading\nmaking\n")


def test_a_module_that_cannot_be_imported_stops_only_those_who_name_no_queue(mailing: Site) -> None:
    (mailing.directory / "handlers.py").write_text("import nowhere\n")
    done = mailing.command("enqueue", "mail.send")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (78, "", 1)
    assert "No module named 'nowhere'" in done.stderr
    assert "or name the queue" in done.stderr
    assert mailing.command("enqueue", "mail.send", "--queue", "mail").returncode == 0
    (mailing.directory / "lines").write_text('{"handler": "a", "queue": "mail"}\n{"handler": "a"}\n')
    done = mailing.command("enqueue", "--ndjson", "lines")
    assert (done.returncode, len(done.stdout.split())) == (65, 1)
    assert "line 2: handlers: handlers; No module named 'nowhere'" in done.stderr


def test_a_command_and_an_installation_without_modules_import_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Settings) -> Any:
        raise ConfigurationError("imported")

    monkeypatch.setattr("pollconsumer.interface.assembly.handlers.import_handlers", fail)
    commands = {"backup": CommandSettings(command=("true",), queue="long")}
    settings = Settings(handlers=("nowhere",), commands=commands)
    assert OwnDefaults(settings).of("backup").queue == "long"
    assert OwnDefaults(Settings()).of("mail.send").queue == "default"
    with pytest.raises(ConfigurationError, match="imported"):
        OwnDefaults(settings).of("mail.send")


def test_a_recurrence_goes_to_the_queue_of_its_handler_unless_it_names_another() -> None:
    handlers = {"backup": Handler("backup", lambda _payload, _context: None, queue="long")}
    recurrences = {
        "own": RecurrenceSettings(handler="backup", every="1h"),
        "named": RecurrenceSettings(handler="backup", every="1h", queue="default"),
        "elsewhere": RecurrenceSettings(handler="elsewhere", every="1h"),
    }
    found = load_recurrences(Settings(recurrences=recurrences), handlers)
    assert {each.name: each.queue for each in found} == {"own": "long", "named": "default", "elsewhere": "default"}


def test_an_application_enqueues_by_name_to_the_queue_of_a_handler_of_another_application() -> None:
    here, there, elsewhere = PollConsumer(), PollConsumer(), PollConsumer(namespace="elsewhere")
    there.handler("mail.send", queue="mail")(lambda: None)
    elsewhere.handler("report", queue="reports")(lambda: None)
    with Sandbox(here, there, elsewhere):
        assert here.enqueue("mail.send").queue == "mail"
        assert here.enqueue("report").queue == "default"  # of another store: its queues say nothing here
        assert here.enqueue("mail.send", queue="default").queue == "default"


def test_a_configured_sandbox_serves_the_queues_of_its_handlers(tmp_path: Path) -> None:
    app = PollConsumer()
    ran = []
    app.handler("mail.send", queue="mail")(lambda: ran.append(1))
    (tmp_path / "config.toml").write_text('[queues.mail]\nquota = "1/1h"\n')
    with Sandbox(app, config=tmp_path / "config.toml") as sandbox:
        for _ in range(2):
            app.enqueue("mail.send")
        sandbox.run()
    assert ran == [1]  # within the queue's quota


@pytest.mark.parametrize(
    ("configured", "own", "served"),
    [
        ((), [], ("default",)),
        ((), ["mail", "default", "b"], ("default", "b", "mail")),
        (("b", "a", "b"), ["mail"], ("b", "a")),
    ],
)
def test_the_queues_served_are_those_set_else_default_and_the_handlers_own(
    configured: tuple[str, ...], own: list[str], served: tuple[str, ...]
) -> None:
    handlers = {queue: Handler(queue, lambda _payload, _context: None, queue=queue) for queue in own}
    settings = Settings(consumer=ConsumerSettings(queues=configured))
    assert served_queues(settings, handlers) == served


def test_limits_and_weights_are_those_of_the_queues_served() -> None:
    settings = Settings(queues={"mail": QueueSettings(quota="5/1m", weight=3), "other": QueueSettings(weight=2)})
    options = consumer_options(
        settings, ("default", "mail"), LauncherRule.PARALLEL, until_empty=False, max_messages=None
    )
    assert options.limits.keys() == {"mail"}
    assert options.weights == {"mail": 3}


def test_the_share_of_launches_that_may_outlast_their_window_follows_from_the_launcher_unless_it_is_set() -> None:
    def target(settings: Settings, rule: LauncherRule, *, budget: bool = False) -> float:
        options = consumer_options(
            settings, ("default",), rule, until_empty=False, max_messages=None, window_is_budget=budget
        )
        return options.margin.overrun_target

    unset, chosen = Settings(), Settings(consumer=ConsumerSettings(overrun_target=0.3))
    assert target(unset, LauncherRule.DROP) < target(unset, LauncherRule.QUEUE) == target(unset, LauncherRule.PARALLEL)
    assert target(unset, LauncherRule.PARALLEL, budget=True) == target(unset, LauncherRule.DROP)
    assert [target(chosen, rule) for rule in (LauncherRule.DROP, LauncherRule.PARALLEL)] == [0.3, 0.3]


def test_a_person_reads_since_when_a_message_is_ready_and_which_result_a_recurrence_has(site: Site) -> None:
    message = site.enqueue("record", name="a")
    rows = dict(re.findall(r"^(.*?)  +(.*)$", site.command("status", message).stdout, re.MULTILINE))
    assert rows["ready since"] == site.json("status", message)["timestamps"]["enqueued_at"]
    assert "enqueued_at" not in rows
    assert site.command("recurrences", "list").stdout.splitlines()[0].endswith("state  result of last completed")
