"""The same value gets the same answer at every entrance of a message: Python, the command line, lines of --ndjson, a
posted message, an entry of a spool or an outbox, recurrences, a handler's context. An option of a message that is new
is tried without a line here."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.errors import BadData, ConfigurationError, UsageError
from pollconsumer.core.messages.continuation import packed
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.interface import cli
from pollconsumer.interface.api.recurrences import new_put
from pollconsumer.interface.assembly.handlers import OwnDefaults
from pollconsumer.interface.cli.messages import enqueue as command
from pollconsumer.interface.cli.messages.enqueue import line_message
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.delivery import Delivery, Situation
from pollconsumer.runtime.new_messages import Defaults, SendOptions
from pollconsumer.store.queues.outbox import read_entry
from pollconsumer.store.queues.producer import Enqueued
from pollconsumer.web.launch_endpoint import enqueue_received
from tests.inner import calls_of
from tests.interface.odd_values import ODD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REFUSED = "refused"
CALLBACKS = {"then", "failed"}
BESIDE: dict[str, dict[str, Any]] = {
    "key_lifetime": {"key": "k"},
    "key_scope": {"key": "k"},
    "key_until": {"key": "k"},
    "replace": {"key": "k"},
    "at_most": {"key": "k", "replace": True},
    "concurrency_limit": {"concurrency_key": "c"},
    "rate": {"rate_key": "r"},
    "rate_key": {"rate": "1/1m"},
}
"""Options without which another says nothing."""
OF_MESSAGES = ("handler", "payload", *(name for name in SendOptions.__annotations__ if name not in CALLBACKS))
TEXTS = {
    "handler", "queue", "key", "key_scope", "key_until", "concurrency_key", "order_key", "rate_key", "rate", "id",
    "retry", "in_", "at", "key_lifetime", "at_most", "expires", "timeout",
}  # fmt: skip
"""Options whose value is text on a command line as elsewhere; numbers are written in digits there."""
NUMBERS = {"priority", "concurrency_limit", "max_attempts"}
STORED = {
    "queue": "queue", "handler": "handler", "id": "id", "priority": "priority", "concurrency_key": "concurrency_key",
    "concurrency_limit": "concurrency_limit", "rate_key": "rate_key", "rate": "rate", "max_attempts": "max_attempts",
    "order_key": "order_key", "retry": "retry", "headers": "headers",
}  # fmt: skip
"""Options that are stored as they are given → the field of an entry of a spool or an outbox."""


DIFFERING = {
    ("handler", "post"): "a request may name handlers of this process alone",
    ("handler", "line"): "without a queue of its own, a line names a handler of this configuration",
    ("retry", "entry"): "policies have names where the handler is registered: the launch looks there",
    ("retry", "context"): "a launch looks at the handler's policies once it has the message",
    ("retry", "command"): "with --queue no module is imported, and no handler known",
    ("concurrency_key", "entry"): "the empty text of an entry stands for no key",
    ("order_key", "entry"): "the empty text of an entry stands for no key",
}
"""Option and entrance of a contract of its own, and why: there a value that is taken elsewhere may be refused, or taken
where others look further. It is never a bug."""


class Entrances:
    """Each takes an option and its value, and returns the message that would be sent."""

    def __init__(self, app: PollConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = app
        self.handler = app.handler("f", queue="default")(lambda **_: None)
        self.sent: list[NewMessage] = []
        self.own = OwnDefaults(calls_of(app).settings())
        monkeypatch.setattr(calls_of(app), "enqueue_one", self._take)
        monkeypatch.setattr(command, "producer", lambda: self)

    def enqueue(self, messages: list[NewMessage]) -> list[Enqueued]:
        """As of a producer."""
        self.sent += messages
        return [Enqueued(each.id, duplicate=False) for each in messages]

    def _take(self, message: NewMessage) -> Any:
        self.sent.append(message)

    def by_name(self, name: str, value: Any) -> NewMessage:
        given = {"handler": "f", "payload": {}} | BESIDE.get(name, {}) | {name: value}
        self.app.enqueue(given.pop("handler"), given.pop("payload"), **given)
        return self.sent.pop()

    def by_using(self, name: str, value: Any) -> NewMessage:
        self.handler.using(**BESIDE.get(name, {}), **{name: value}).enqueue()
        return self.sent.pop()

    def by_args(self, name: str, value: Any) -> NewMessage:
        args = self.handler.args().using(**BESIDE.get(name, {}), **{name: value})
        return args.__message__()

    def by_context(self, name: str, value: Any) -> NewMessage:
        situation = Situation(lambda now: now, lambda: False, lambda *_: None, lambda _: Defaults("default"), time.time)
        context = LaunchContext(Delivery("tests", "default", "i", "f", 1, 0, 1), situation)
        given = {"handler": "f", "payload": {}} | BESIDE.get(name, {}) | {name: value}
        context.enqueue(given.pop("handler"), given.pop("payload"), **given)
        [message] = context.enqueued
        return message

    def by_line(self, name: str, value: Any) -> NewMessage:
        return line_message(self._json(name, value), self.own)

    def by_post(self, name: str, value: Any) -> NewMessage:
        enqueue_received(calls_of(self.app), self._json(name, value))
        return self.sent.pop()

    def by_command(self, name: str, value: Any) -> NewMessage:
        given: dict[str, Any] = {"handler": "f"} | BESIDE.get(name, {}) | {name: value}
        words = ["enqueue", f"--queue={given.pop('queue', 'default')}"]
        handler = given.pop("handler")
        for option, each in given.items():
            flag = f"--{option.removesuffix('_').replace('_', '-')}"
            words.append(flag if each is True else f"{flag}={each}")
        code = cli.main([*words, "--", str(handler)])
        if code in (2, 65):
            raise BadData(name)
        assert code == 0, code
        return self.sent.pop()

    def by_entry(self, name: str, value: Any) -> NewMessage:
        plain = NewMessage("i", "default", "f", b"{}", **_fields(BESIDE.get(name, {})))
        entry = read_entry("default", json.dumps([packed(plain) | {STORED[name]: value}]).encode())
        assert entry is not None
        if not entry.messages:
            raise BadData(name)
        return entry.messages[0]

    def by_recurrence(self, name: str, value: Any) -> Any:
        given: Any = {"handler": "f", "every": "1h", name: value}
        return new_put("n", None, Defaults(), "pollconsumer", **given)[0]

    def _json(self, name: str, value: Any) -> bytes:
        given = {"handler": "f"} | BESIDE.get(name, {}) | {name: value}
        return json.dumps({each.removesuffix("_"): of for each, of in given.items()}).encode()


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in NewMessage._fields}


def answer(entrance: Callable[[str, Any], Any], name: str, value: Any, field: str | None) -> object:
    """What is stored of the value; or that it is refused as its sender's mistake."""
    try:
        message = entrance(name, value)
    except (BadData, UsageError, ConfigurationError, TypeError):
        return REFUSED
    stored: Any = getattr(message, field) if field else "taken"
    return dict(stored) if field == "headers" and stored else stored


@pytest.fixture
def entrances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entrances:
    (tmp_path / "config.toml").write_text("[commands.f]\ncommand = ['true']\n")
    monkeypatch.chdir(tmp_path)
    return Entrances(PollConsumer(config=tmp_path / "config.toml"), monkeypatch)


def ways_of(entrances: Entrances, name: str, kind: str, value: Any) -> dict[str, Callable[[str, Any], Any]]:
    """The entrances that can be given the value."""
    ways: dict[str, Callable[[str, Any], Any]] = {"by name": entrances.by_name, "context": entrances.by_context}
    if name not in ("handler", "payload"):
        ways |= {"using": entrances.by_using, "args": entrances.by_args}
    written = kind != "thousand digits"  # no text of JSON has it
    if written:
        ways |= {"line": entrances.by_line, "post": entrances.by_post}
    if written and name in STORED:
        ways["entry"] = entrances.by_entry
    is_text = name in TEXTS and isinstance(value, str) and "\0" not in value
    if is_text or (written and name in NUMBERS and type(value) is int):
        ways["command"] = entrances.by_command
    if name in ("handler", "queue", "priority", "headers", "payload"):
        ways["recurrence"] = entrances.by_recurrence
    return ways


@pytest.mark.parametrize("name", OF_MESSAGES)
def test_a_value_of_an_option_has_one_answer(entrances: Entrances, name: str) -> None:
    differing = {}
    for kind, value in ODD.items():
        answers = {
            way: answer(entrance, name, value, STORED.get(name))
            for way, entrance in ways_of(entrances, name, kind, value).items()
        }
        alike = {json.dumps(each, sort_keys=True) for way, each in answers.items() if (name, way) not in DIFFERING}
        if len(alike) > 1:
            differing[kind] = answers
    assert differing == {}


def test_every_option_is_tried_and_every_difference_has_a_reason() -> None:
    fields = {*STORED.values()}
    assert {*OF_MESSAGES} == {*SendOptions.__annotations__, "handler", "payload"} - CALLBACKS
    assert fields <= {*NewMessage._fields}
    assert {name for name, _ in DIFFERING} <= {*OF_MESSAGES}


@pytest.mark.parametrize("field", NewMessage._fields)
def test_a_field_of_an_entry_is_taken_as_a_message_or_not_at_all(field: str) -> None:
    """Each message that is taken can be written again, and is read as the same message."""
    plain = packed(NewMessage("i", "default", "f", b"{}"))
    for kind, value in ODD.items():
        if kind == "thousand digits":
            continue  # no text of JSON has it
        entry = read_entry("default", json.dumps([plain | {field: value}]).encode())
        for message in entry.messages if entry is not None else ():
            again = read_entry("default", json.dumps([packed(message)]).encode())
            assert again is not None, kind
            assert [*again.messages] == [message], kind
