"""A producer's process refuses at once the mistakes that it can see, and suggests the right word."""

from __future__ import annotations

import asyncio
import copy
import json
import sys
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from pydantic_core import core_schema

from pollconsumer import Backoff, PollConsumer
from pollconsumer.core.errors import BadData
from pollconsumer.interface.api.registry import registry
from pollconsumer.testing import Sandbox
from tests.inner import registered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.site import Site

HANDLERS = """
from datetime import datetime
from pollconsumer import Backoff, PollConsumer
app = PollConsumer()
app.retry_policy("gentle", Backoff())

@app.handler("mail.send")
def send(to: str, subject: str = "", at: datetime | None = None, n: int = 0) -> None: ...
"""
CONFIGURATION = """
handlers = ["early_handlers"]
[commands.backup]
command = ["true"]
"""
MISTAKES: dict[str, tuple[str, dict[str, Any], str]] = {
    "misspelt handler": ("mail.sned", {"to": "a"}, "unknown handler: mail.sned; did you mean mail.send?"),
    "misspelt program": ("bakup", {}, "unknown handler: bakup; did you mean backup?"),
    "unknown handler": ("report", {}, "unknown handler: report; no module or command of this configuration has it"),
    "missing": ("mail.send", {}, "arguments of mail.send: missing to"),
    "extra": ("mail.send", {"to": "a", "sbject": "b"}, "unexpected sbject; did you mean subject?"),
    "extra and strange": ("mail.send", {"to": "a", "zzz": 1}, "unexpected zzz; it takes to, subject, at, n"),
    "of another type": ("mail.send", {"to": 7}, "arguments of mail.send: to is int, not str"),
    "of another type, converted": ("mail.send", {"to": "a", "at": "7"}, "at: Input should be a valid datetime"),
}
"""Handler, payload, what is said."""


@pytest.fixture
def prepared(site: Site) -> Site:
    (site.directory / "early_handlers.py").write_text(HANDLERS)
    (site.directory / "config.toml").write_text(CONFIGURATION)
    return site


def command_line(site: Site, command: str, handler: str, payload: dict[str, Any], *options: str) -> list[str]:
    if command == "enqueue":
        return [command, handler, json.dumps(payload), *options]
    if command == "recurrences add":
        return [*command.split(), "x", handler, json.dumps(payload), "--every", "1h", *options]
    named = {option.removeprefix("--"): value for option, value in zip(options[::2], options[1::2], strict=True)}
    (site.directory / "lines").write_text(json.dumps({"handler": handler, "payload": payload, **named}))
    return ["enqueue", "--ndjson", "lines"]


COMMANDS = ["enqueue", "enqueue --ndjson", "recurrences add"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_refuses_what_launches_of_its_configuration_would_park_or_refuse(
    prepared: Site, command: str
) -> None:
    for handler, payload, said in MISTAKES.values():
        done = prepared.command(*command_line(prepared, command, handler, payload))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (65, "", 1), done.stderr
        assert said in done.stderr
    assert prepared.json("recurrences", "list") == []
    for handler, payload in (("mail.send", {"to": "a", "at": "2030-01-01T00:00:00Z"}), ("backup", {"any": 1})):
        assert prepared.command(*command_line(prepared, command, handler, payload)).returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_handler_may_have_been_renamed_to_one_that_is_near_or_to_one_of_few(
    prepared: Site, command: str
) -> None:
    renamed = 'if it was renamed, add aliases=["deliver"] to the handler that has another name now; if another program'
    typed = command_line(prepared, command, "deliver", {})
    assert f"of this configuration has it; known here: backup, mail.send; {renamed}" in prepared.command(*typed).stderr
    programs = "".join(f'[commands.{name}]\ncommand = ["true"]\n' for name in ("a1", "a2", "a3", "deliveries_of_mail"))
    (prepared.directory / "config.toml").write_text(f"{CONFIGURATION}{programs}")
    typed = command_line(prepared, command, "deliver", {})
    assert f"of this configuration has it; known here: deliveries_of_mail; {renamed}" in prepared.command(*typed).stderr


@pytest.mark.parametrize("command", COMMANDS[:2])
def test_a_retry_policy_that_nobody_has_registered_is_refused(prepared: Site, command: str) -> None:
    for handler, retry, said in (
        ("mail.send", "gentel", "retry: 'gentel'; did you mean gentle?"),
        ("backup", "gentle", "retry: 'gentle'; a program has no named policies"),
    ):
        done = prepared.command(*command_line(prepared, command, handler, {"to": "a"}, "--retry", retry))
        assert (done.returncode, done.stdout) == (65, "")
        assert said in done.stderr
    right = command_line(prepared, command, "mail.send", {"to": "a"}, "--retry", "gentle")
    assert prepared.command(*right).returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_producer_that_names_a_queue_or_has_no_handlers_is_believed(prepared: Site, command: str) -> None:
    known: list[tuple[str, dict[str, Any]]] = [("mail.sned", {"any": 1}), ("mail.send", {})]
    for handler, payload in known:
        done = prepared.command(*command_line(prepared, command, handler, payload, "--queue", "default"))
        assert done.returncode == 0, done.stderr
    (prepared.directory / "config.toml").write_text("")
    for handler, payload in known:
        assert prepared.command(*command_line(prepared, command, handler, payload)).returncode == 0


def test_lines_before_a_refused_one_are_enqueued(prepared: Site) -> None:
    lines = [{"handler": "mail.send", "payload": {"to": str(n)}} for n in range(3)]
    lines[2] = {"handler": "mail.sned"}
    (prepared.directory / "lines").write_text("\n".join(map(json.dumps, lines)))
    done = prepared.command("enqueue", "--ndjson", "lines")
    assert (done.returncode, len(done.stdout.splitlines())) == (65, 2)
    assert "line 3: unknown handler: mail.sned; did you mean mail.send?; 2 accepted before it" in done.stderr


@pytest.mark.parametrize("mistake", MISTAKES)
def test_check_refuses_a_recurrence_of_which_each_occurrence_would_die(prepared: Site, mistake: str) -> None:
    handler, payload, said = MISTAKES[mistake]
    table = f'[recurrences.x]\nhandler = "{handler}"\nevery = "1h"\n[recurrences.x.payload]\n'
    values = "".join(f"{name} = {json.dumps(value)}\n" for name, value in payload.items())
    (prepared.directory / "config.toml").write_text(f"{CONFIGURATION}{table}{values}")
    done = prepared.command("check")
    assert (done.returncode, done.stderr.count("\n")) == (78, 1)
    assert "recurrences.x: " in done.stderr
    assert said.partition(": ")[2].partition("; no module")[0] in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["recurrences", "add", "x", "mail.send", "--every", "1h", "--missed", "onec"],
            "--missed: 'onec'; did you mean once?",
        ),
        (["recurrences", "add", "x", "mail.send", "--every", "1h", "--first", "nwo"], "--first: nwo; write ISO 8601"),
        (["enqueue", "mail.send", "--countdown", "5"], "unknown option: --countdown; did you mean --in?"),
        (["enqueue", "mail.send", "--max-retries", "5"], "unknown option: --max-retries; did you mean --max-attempts?"),
        (["enqueue", "mail.send", "--prority", "5"], "unknown option: --prority; did you mean --priority?"),
        (["enqeue", "mail.send"], "unknown command: enqeue; did you mean enqueue?"),
    ],
)
def test_a_wrong_word_on_a_command_line_is_a_usage_error_that_says_which_is_right(
    prepared: Site, words: list[str], said: str
) -> None:
    done = prepared.command(*words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"countdown": 5}, "unknown key: countdown; did you mean in?"),
        ({"max_retries": 5}, "unknown key: max_retries; did you mean max_attempts?"),
        ({"then": "report"}, "unknown key: then; a line has no callbacks: a batch of lines has, as --then HANDLER"),
        ({"zzz": 5}, "unknown key: zzz; known here: at, "),
    ],
)
def test_a_wrong_key_of_a_line_is_refused_with_the_right_one(prepared: Site, line: dict[str, Any], said: str) -> None:
    (prepared.directory / "lines").write_text(json.dumps({"handler": "mail.send", "payload": {"to": "a"}, **line}))
    done = prepared.command("enqueue", "--ndjson", "lines")
    assert done.returncode == 65
    assert said in done.stderr


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An application in a process that has imported its configuration whole, as launches and commands do."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "early_handlers", raising=False)  # what an earlier test has imported
    (tmp_path / "early_handlers.py").write_text(HANDLERS)
    (tmp_path / "config.toml").write_text(CONFIGURATION)
    app = PollConsumer()
    with Sandbox(app, config=tmp_path / "config.toml") as sandbox:
        yield app, sandbox


def calls(app: PollConsumer) -> dict[str, Callable[[str, dict[str, Any]], object]]:
    """What a program calls, with a handler's name and a payload."""
    return {
        "enqueue": app.enqueue,
        "enqueue_async": lambda handler, payload: asyncio.run(app.enqueue_async(handler, payload)),
        "put": lambda handler, payload: app.recurrences.put("x", handler=handler, every="1h", payload=payload),
        "put_many": lambda handler, payload: app.recurrences.put_many(
            [{"name": "x", "handler": handler, "every": "1h", "payload": payload}]
        ),
    }


def test_a_call_raises_for_what_it_can_know(whole: tuple[PollConsumer, Sandbox]) -> None:
    app, sandbox = whole
    for (kind, call), (handler, payload, said) in product(calls(app).items(), MISTAKES.values()):
        if payload.get("at") and kind.startswith("enqueue"):
            continue  # it imports no pydantic to look at an argument
        with pytest.raises((BadData, TypeError)) as caught:
            call(handler, payload)
        if "handler" in said or kind.startswith("put"):
            assert said in str(caught.value)
        elif "; " in said:  # a TypeError as of a call of the function
            assert said.rpartition("; ")[2] in str(caught.value)
    assert sandbox.messages() == []
    assert list(app.recurrences) == []


def test_a_call_believes_whoever_names_a_queue_or_has_not_imported_the_configuration(app: PollConsumer) -> None:
    app.handler("mail.send")(lambda to: to)
    with Sandbox(app) as sandbox:
        assert registry.imported is None
        app.enqueue("mail.sned")
        app.recurrences.put("x", handler="mail.sned", every="1h")
        assert len(sandbox.messages()) == 1


def test_a_call_with_a_queue_goes_on_where_the_configuration_is_imported(whole: tuple[PollConsumer, Sandbox]) -> None:
    app, sandbox = whole
    app.enqueue("report", queue="elsewhere")
    app.recurrences.put("x", handler="report", every="1h", queue="elsewhere")
    assert [message.queue for message in sandbox.messages()] == ["elsewhere"]


def test_a_policy_of_a_handler_may_be_registered_after_its_options_are_chosen(app: PollConsumer) -> None:
    with Sandbox(app):
        send = app.handler("mail.send")(lambda to: to)
        gentle = send.using(retry="gentle")
        for call in (
            lambda: gentle.enqueue(to="a"),
            lambda: gentle.enqueue_many([{"to": "a"}]),
            lambda: app.enqueue("mail.send", {"to": "a"}, retry="gentle"),
        ):
            with pytest.raises(BadData, match=r"^retry: 'gentle'; register it: app.retry_policy\(name, policy\)$"):
                call()
        app.retry_policy("gentle", Backoff())
        gentle.enqueue(to="a")
        with pytest.raises(BadData, match=r"^retry: 'gentel'; did you mean gentle\?$"):
            send.using(retry="gentel").enqueue(to="a")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("delay", r"a handler has no delay; did you mean enqueue\(\.\.\.\)\?"),
        ("apply_async", r"did you mean using\(in_=\.\.\.\)\.enqueue\(\.\.\.\)\?"),
        ("s", r"did you mean args"),
        ("anything", r"a handler has no anything$"),
    ],
)
def test_what_others_call_on_a_handler_is_told_by_its_name_here(app: PollConsumer, word: str, said: str) -> None:
    send = app.handler("mail.send")(lambda to: to)
    assert not hasattr(send, word)
    with pytest.raises(AttributeError, match=said):
        getattr(send, word)
    assert registered(copy.copy(send)).definition is registered(send).definition


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"countdown": 5}, "unknown option: countdown; did you mean in_?"),
        ({"delay": 5}, "unknown option: delay; did you mean in_?"),
        ({"eta": 5}, "unknown option: eta; did you mean at?"),
        ({"max_retries": 5}, "unknown option: max_retries; did you mean max_attempts?"),
        (
            {"address": "a"},
            "unknown option: address; arguments of the handler go into the payload, a dict; known here: at, ",
        ),
        ({"address": "a"}, "; arguments of the handler go into the payload, a dict"),
    ],
)
def test_options_of_others_are_told_by_their_names_here(app: PollConsumer, options: dict[str, Any], said: str) -> None:
    send: Any = app.handler("mail.send")(lambda to: to)
    for call in (lambda: app.enqueue("mail.send", **options), lambda: send.using(**options)):
        with pytest.raises(TypeError) as caught:
            call()
        assert said in str(caught.value)
    with pytest.raises(TypeError, match=r"unknown option: max_retries; did you mean max_attempts\?"):
        app.handler("other", max_retries=3)  # type: ignore[call-overload]


class Thrown(Exception):
    pass


class Odd:
    """A type whose check raises ``errors``, one a call, and then no more."""

    errors: ClassVar[list[Exception]] = []

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> Any:
        return core_schema.no_info_plain_validator_function(cls.check)

    @classmethod
    def check(cls, value: object) -> object:
        if cls.errors:
            raise cls.errors.pop()
        return value


def take(odd: Odd) -> None: ...


@pytest.mark.usefixtures("sandbox")
def test_what_a_signal_handler_throws_into_a_check_is_raised_and_what_a_type_raises_is_not(app: PollConsumer) -> None:
    app.handler("early.odd")(take)
    Odd.errors = [Thrown()]
    with pytest.raises(Thrown):
        app.recurrences.put("a", every="1h", handler="early.odd", payload={"odd": 1})
    Odd.errors = [RuntimeError(), RuntimeError()]
    app.recurrences.put("a", every="1h", handler="early.odd", payload={"odd": 1})
    assert Odd.errors == []
