"""Messages that requests send: what is accepted, what is refused and how, and that no answer tells a payload."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pollconsumer import PollConsumer, Refused
from pollconsumer.core.messages.payloads import MAX_PAYLOAD_BYTES
from pollconsumer.runtime.new_messages import JSON_KEYS, SendOptions
from pollconsumer.web import LaunchEndpoint
from tests.inner import calls_of
from tests.web.conftest import ENQUEUE_TOKEN, posted, request_of

if TYPE_CHECKING:
    from pathlib import Path

    from pollconsumer.web.web_exchange import WebAnswer

MARK = "a-value-that-nobody-may-read"


@pytest.fixture
def app(app: PollConsumer) -> PollConsumer:
    @app.handler("mail.send", queue="mail")
    def send(to: str, copies: int = 1, kind: Literal["plain", "html"] = "plain") -> None: ...

    @app.handler("api.call", rate="60/1h", rate_key="customer")
    def call(customer: str) -> None: ...

    return app


def told(endpoint: LaunchEndpoint, message: Any, **headers: str) -> tuple[int, Any]:
    answered = endpoint.answer(posted(message, **headers))
    return answered.status, json.loads(answered.body)


def state_of(endpoint: LaunchEndpoint, message_id: str) -> WebAnswer:
    return endpoint.answer(request_of("GET", f"/messages/{message_id}", ENQUEUE_TOKEN))


def test_a_message_is_enqueued_where_its_handler_has_its_messages(app: PollConsumer, endpoint: LaunchEndpoint) -> None:
    status, said = told(endpoint, {"handler": "mail.send", "payload": {"to": MARK}, "priority": 3, "in": "5m"})
    assert (status, said["duplicate"]) == (202, False)
    message = app.message(said["id"]).status()
    assert (message.handler, message.queue, message.payload) == ("mail.send", "mail", {"to": MARK})
    assert (message.priority, message.state) == (3, "scheduled")


def test_the_state_of_a_message_is_told_without_what_it_holds(app: PollConsumer, endpoint: LaunchEndpoint) -> None:
    message = app.enqueue("mail.send", {"to": MARK}, headers={"x": MARK})
    answered = state_of(endpoint, message.id)
    assert answered.status == 200
    assert json.loads(answered.body) == {
        "id": message.id,
        "queue": "mail",
        "handler": "mail.send",
        "state": "ready",
        "attempts": 0,
    }


@pytest.mark.parametrize("message_id", ["nowhere", "", "a b", "ä", "%00", "x" * 10_000, "..", "\udc80"])
def test_an_unknown_id_is_not_found(endpoint: LaunchEndpoint, message_id: str) -> None:
    assert state_of(endpoint, message_id).status == 404


def test_a_request_that_is_repeated_makes_no_second_message(app: PollConsumer, endpoint: LaunchEndpoint) -> None:
    message = {"handler": "mail.send", "payload": {"to": "a"}, "id": "order:8"}
    assert [told(endpoint, message) for _ in range(3)] == [
        (202, {"id": "order:8", "duplicate": duplicate}) for duplicate in (False, True, True)
    ]
    assert [each.id for each in app.messages()] == ["order:8"]
    status, said = told(endpoint, message | {"payload": {"to": MARK}})
    assert status == 409
    assert MARK not in str(said)


def test_a_program_of_the_configuration_may_be_sent_messages(app: PollConsumer, endpoint: LaunchEndpoint) -> None:
    status, said = told(endpoint, {"handler": "backup", "payload": {"target": "db1"}})
    assert status == 202
    assert app.message(said["id"]).status().handler == "backup"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", "must be JSON"),
        (b"{", "must be JSON"),
        (b"\xff", "must be JSON"),
        (b"[" * 100_000, "must be JSON"),
        (b'{"handler": NaN}', "must be JSON"),
        ([], "must be a JSON object"),
        (None, "must be a JSON object"),
        ({}, "handler; give one, as text"),
        ({"handler": 5}, "handler; give one, as text"),
        ({"handler": "mail.sent"}, "did you mean mail.send?"),
        ({"handler": "os.system", "queue": "mail"}, "unknown handler"),
        ({"handler": "mail.send", "payload": [MARK]}, "must be a JSON object"),
        ({"handler": "mail.send", "payload": {}}, "to"),
        ({"handler": "mail.send", "payload": {"to": [MARK]}}, "to"),
        ({"handler": "mail.send", "payload": {"to": "a", "copies": MARK}}, "copies"),
        ({"handler": "mail.send", "payload": {"to": "a", "kind": MARK}}, "kind"),
        ({"handler": "mail.send", "payload": {"to": "a", "tone": MARK}}, "tone"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "priorty": 3}, "did you mean priority?"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "priority": "high"}, "priority"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "in": "soon"}, "soon"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "in": [5]}, "in_"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "at": "noon"}, "ISO 8601"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "at": "2030-01-31T09:00:00"}, "needs an offset or Z"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "at": 5}, "seconds since the epoch"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "at": 1893456000000}, "seconds since the epoch"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "at": True}, "ISO 8601"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "at": "9999-12-31T23:59:59-12:00"}, "beyond year 9999"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "id": "a b"}, "message id"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "retry": "often"}, "retry"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "retry": 5}, "retry: 5; the name of a policy"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "retry": []}, "retry: []; the name of a policy"),
        ({"handler": "mail.send", "payload": {"to": MARK}, "then": {"handler": "x"}}, "unknown key"),
        ({"handler": "api.call", "payload": {"customer": MARK * 20}}, "payload"),
        ({"handler": "api.call", "payload": {"customer": "\ud800"}}, "payload"),
    ],
    ids=repr,
)
def test_what_is_invalid_is_refused_by_its_name_without_a_value_of_the_payload(
    app: PollConsumer, endpoint: LaunchEndpoint, caplog: pytest.LogCaptureFixture, message: Any, said: str
) -> None:
    status, answered = told(endpoint, message)
    assert status == 400
    assert said in answered["error"]
    assert "name its queue" not in answered["error"]  # it may be named already
    assert MARK not in str(answered) + caplog.text
    assert [*app.messages()] == []


def test_due_times_are_those_of_the_command_line(app: PollConsumer, endpoint: LaunchEndpoint) -> None:
    _, said = told(endpoint, {"handler": "backup", "at": "2030-01-31T10:00:00+01:00"})
    due = app.message(said["id"]).status().timestamps.due_at
    assert due == datetime(2030, 1, 31, 9, tzinfo=UTC)


@pytest.mark.parametrize(("at", "microsecond"), [(1893456000, 0), (1893456000.25, 250_000)])
def test_a_due_time_may_be_seconds_since_the_epoch(
    app: PollConsumer, endpoint: LaunchEndpoint, at: float, microsecond: int
) -> None:
    _, said = told(endpoint, {"handler": "backup", "at": at})
    due = app.message(said["id"]).status().timestamps.due_at
    assert due == datetime(2030, 1, 1, microsecond=microsecond, tzinfo=UTC)


def test_every_option_with_a_form_in_json_is_a_key() -> None:
    options = {name.removesuffix("_") for name in SendOptions.__annotations__}
    assert {*JSON_KEYS} == {"handler", "payload"} | options - {"then", "failed"}


def test_what_a_hook_refuses_is_refused(app: PollConsumer, endpoint: LaunchEndpoint) -> None:
    @app.before_enqueue
    def refuse(_: Any) -> None:
        raise Refused("not today")

    assert told(endpoint, {"handler": "mail.send", "payload": {"to": "a"}}) == (400, {"error": "not today"})


class Broken:
    """A codec, and a hook, that fail."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def encode(self, _: object) -> bytes:
        raise self.error

    decode = encode


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), BaseException(), TypeError(), ValueError()])
@pytest.mark.parametrize("given", ["codec", "hook"])
def test_what_code_of_the_site_raises_is_the_sites_fault(
    app: PollConsumer, endpoint: LaunchEndpoint, given: str, error: BaseException
) -> None:
    if given == "hook":
        app.before_enqueue(Broken(error).encode)
    else:
        calls_of(app).codec = Broken(error)
    fault = {"error": "refused by the configuration; see the log"}
    assert told(endpoint, {"handler": "mail.send", "payload": {"to": "a"}}) == (500, fault)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.just(MARK) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["to", "copies", "x"]), inner),
    max_leaves=5,
)
OPTIONS = st.dictionaries(
    st.sampled_from([key for key in JSON_KEYS if key not in ("handler", "payload")]), VALUES, max_size=3
)


@given(payload=VALUES, options=OPTIONS, handler=st.sampled_from(["mail.send", "api.call", "backup"]))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_sent_is_accepted_or_refused(
    endpoint: LaunchEndpoint, payload: Any, options: dict[str, Any], handler: str
) -> None:
    status, said = told(endpoint, {**options, "handler": handler, "payload": payload})
    assert status in (202, 400, 409)
    if MARK not in json.dumps(options):
        assert MARK not in json.dumps(said)


# Sizes


@pytest.mark.parametrize("announced", [str(MAX_PAYLOAD_BYTES + 1), "9" * 5000])
def test_a_body_that_is_announced_too_long_is_not_read(endpoint: LaunchEndpoint, announced: str) -> None:
    request = request_of("POST", "/messages", ENQUEUE_TOKEN, content_length=announced)
    assert endpoint.answer(request).status == 413


@pytest.mark.parametrize("announced", ["-1", "1e3", "٣", "x"])
def test_an_invalid_length_is_refused(endpoint: LaunchEndpoint, announced: str) -> None:
    request = request_of("POST", "/messages", ENQUEUE_TOKEN, content_length=announced)
    assert endpoint.answer(request).status == 400


def test_no_more_is_read_of_a_body_than_a_payload_may_have(endpoint: LaunchEndpoint) -> None:
    asked: list[int] = []

    def read(most: int) -> bytes:
        asked.append(most)
        return b" " * most

    assert endpoint.answer(request_of("POST", "/messages", ENQUEUE_TOKEN, read)).status == 413
    assert asked == [MAX_PAYLOAD_BYTES + 1]


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionError(), OSError("cut")], ids=repr)
def test_a_body_that_does_not_come_is_given_up(endpoint: LaunchEndpoint, error: OSError) -> None:
    def read(_: int) -> bytes:
        raise error

    assert endpoint.answer(request_of("POST", "/messages", ENQUEUE_TOKEN, read)).status == 408


def test_a_store_that_is_away_is_no_fault_of_the_client_and_is_not_named(
    config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = PollConsumer(config=config, store="redis://user:hush@127.0.0.1:1/0", patience=0.01)
    away.handler("x")(lambda: None)
    endpoint = LaunchEndpoint(away)
    for answered in (endpoint.answer(posted({"handler": "x"})), state_of(endpoint, "a")):
        assert answered.status == 503
        assert "Retry-After" in dict(answered.headers())
        assert b"127.0.0.1" not in answered.body
    assert "hush" not in caplog.text
    assert "127.0.0.1" in caplog.text


def test_an_invalid_configuration_is_told_to_the_log_alone(config: Path, caplog: pytest.LogCaptureFixture) -> None:
    config.write_text('[web]\ntoken = "short"\n')
    endpoint = LaunchEndpoint(PollConsumer(config=config))
    answered = endpoint.answer(request_of("POST", "/launch", "short"))
    assert answered.status == 500
    assert b"token" not in answered.body
    assert "web.token" in caplog.text
    assert "short" not in caplog.text
