"""Forms of the dashboard: a new message for a handler, asked for by its parameters, and checked as Python checks it."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pollconsumer import Item, PollConsumer
from pollconsumer.audit import interventions
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.dashboard.server import LONGEST_FORM
from pollconsumer.interface.api.registry import registry
from pollconsumer.store.recurrences import LaunchRecurrences
from tests.conftest import NAMESPACE
from tests.dashboard.pages import Document, admitted, browser, seen
from tests.dashboard.test_dashboard_command import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.testclient import TestClient

    from tests.site import Site
    from tests.store.servers import Server


@pytest.fixture
def app(valkey: Server) -> Iterator[PollConsumer]:
    """It alone is registered: other tests have modules with applications of their own."""
    with registry.afresh():
        yield of_mail(valkey.url)


def of_mail(store: str) -> PollConsumer:
    app = PollConsumer(store=store, namespace=NAMESPACE)

    @app.handler("mail.send", queue="mail")
    def send(to: str, copies: int = 1, urgent: bool | None = None, tags: list[str] = [], note=None) -> None: ...  # type: ignore[no-untyped-def]  # noqa: B006

    @app.handler("page.fetch")
    def fetch(url: str, **others: Any) -> None: ...

    @app.handler("index", bulk=5)
    def index(items: list[Item[dict[str, Any]]]) -> None: ...

    return app


@pytest.fixture
def client(app: PollConsumer, valkey: Server) -> TestClient:
    return admitted(valkey.wire(), app)


def sent(client: TestClient, handler: str = "mail.send", **values: str) -> tuple[int, Document]:
    """The status and the page of the answer to a form, filled in with these values."""
    form = next(each for each in seen(client, f"enqueue?handler={handler}").forms() if each.get("what") == "enqueue")
    named = {name.replace("arg_", "arg."): value for name, value in values.items()}
    answer = client.post("/act", data=form | named)
    if answer.status_code == 303:
        answer = client.get(answer.headers["location"])
        return 303, Document(answer.text)
    return answer.status_code, Document(answer.text)


class Reversed:
    """A codec."""

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    decode = encode


def test_the_form_asks_for_each_parameter_with_its_type_and_default(client: TestClient) -> None:
    page = seen(client, "enqueue?handler=mail.send")
    names = [each["name"] for tag in ("input", "select", "textarea") for each in page.all(tag) if each.get("name")]
    assert {f"arg.{each}" for each in ("to", "copies", "urgent", "tags", "note")} | {"payload", "queue"} <= {*names}
    text = " ".join(page.text.split())
    for words in ("to str, required", "copies int, default 1", "urgent bool | None", "tags list[str], default []"):
        assert words in text
    assert "Arguments as JSON" in text
    assert "Further arguments as JSON" in seen(client, "enqueue?handler=page.fetch").text
    assert seen(client, "enqueue?handler=index").all("textarea") == [
        {"name": "payload", "rows": "8", "spellcheck": "false", "placeholder": "{}"}
    ]


def test_the_handlers_are_listed_and_others_can_be_named(client: TestClient) -> None:
    page = seen(client, "enqueue")
    assert [link for link in page.links() if link.startswith("enqueue?")] == [
        f"enqueue?handler={name}" for name in ("index", "mail.send", "page.fetch")
    ]
    assert "enqueue" in seen(client, "./").links()
    assert "enqueue?handler=mail.send" in seen(client, "handler?name=mail.send").links()


def test_what_is_filled_in_is_enqueued_by_its_types_in_the_name_of_who_did_it(
    client: TestClient, app: PollConsumer
) -> None:
    status, page = sent(client, arg_to="5", arg_copies="2", arg_urgent="true", arg_tags='["a"]', arg_note="0x")
    assert status == 303
    [message] = app.messages()
    assert f"Enqueued: {message.id}" in page.text
    found = message.status()
    assert found.payload == {"to": "5", "copies": 2, "urgent": True, "tags": ["a"], "note": "0x"}
    assert (found.queue, found.created_by, found.state) == ("mail", "dashboard", "ready")
    [note] = interventions(app)
    assert (note.who, note.what, note.queue, note.names) == ("dashboard", "enqueue", "mail", (message.id,))


def test_what_is_left_empty_is_not_sent_and_json_adds_to_it(client: TestClient, app: PollConsumer) -> None:
    assert sent(client, arg_to="ada", arg_copies="")[0] == 303
    assert sent(client, payload='{"to": ""}')[0] == 303
    assert sent(client, "page.fetch", arg_url="/", payload='{"depth": 2}')[0] == 303
    assert sent(client, "index", payload='{"any": [1]}')[0] == 303
    found = [each.status().payload for each in app.messages()]
    expected: list[dict[str, Any]] = [{"to": "ada"}, {"to": ""}, {"depth": 2, "url": "/"}, {"any": [1]}]
    assert all(each in found for each in expected)


def test_options_are_those_of_a_message(client: TestClient, app: PollConsumer) -> None:
    options = {"queue": "other", "in_": "1h", "priority": "-3", "key": "k", "timeout": "1m", "max_attempts": "2"}
    assert sent(client, arg_to="ada", expires="1d", **options)[0] == 303
    [message] = app.messages()
    found = message.status()
    assert (found.queue, found.state, found.priority) == ("other", "scheduled", -3)
    assert found.expires_at is not None
    status, page = sent(client, arg_to="bob", queue="other", key="k")
    assert (status, "Nothing is enqueued: this message has the unique key" in page.text) == (303, True)
    assert message.id in page.text


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "arguments of mail.send: missing to"),
        ({"arg_to": "a", "arg_copies": "two"}, "arguments of mail.send: copies is str, not int"),
        ({"arg_to": "a", "payload": '{"too": 1}'}, "unexpected too; did you mean to?"),
        ({"arg_to": "a", "payload": "[1]"}, 'payload; is no JSON object: write {"name": "Ada"}'),
        ({"arg_to": "a", "payload": "{"}, "payload; is no JSON object"),
        ({"arg_to": "a", "priority": "high"}, "priority: high; must be a whole number"),
        ({"arg_to": "a", "priority": "5000"}, "priority: 5000"),
        ({"arg_to": "a", "in_": "soon"}, "in_: soon"),
        ({"arg_to": "a", "queue": "no name"}, "queue name"),
        ({"arg_to": "a", "retry": "patient"}, "retry: 'patient'"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_on_the_form_with_what_was_filled_in(
    client: TestClient, app: PollConsumer, values: dict[str, str], said: str
) -> None:
    status, page = sent(client, **values)
    assert status == 409
    assert said in page.text
    kept = {each.get("name"): each.get("value") for each in page.all("input")}
    for name, value in values.items():
        assert name == "payload" or kept[name.replace("arg_", "arg.")] == value
    assert values.get("payload", "") in page.text
    assert [*app.messages()] == []
    assert interventions(app) == []


def test_a_handler_of_another_program_needs_its_queue(client: TestClient, app: PollConsumer) -> None:
    assert "does not have the handler" in seen(client, "enqueue?handler=other").text
    status, page = sent(client, "other", payload='{"n": 1}')
    assert (status, "unknown handler: other" in page.text, "name its queue" in page.text) == (409, True, True)
    assert sent(client, "other", payload='{"n": 1}', queue="theirs")[0] == 303
    [message] = app.messages()
    assert (message.queue, message.status().payload) == ("theirs", {"n": 1})
    assert client.get("enqueue?handler=no name").status_code == 409
    assert client.post("/act", data={"what": "enqueue", "token": token(client)}).status_code == 409


def token(client: TestClient) -> str:
    return seen(client, "enqueue?handler=mail.send").forms()[0]["token"]


def test_who_may_only_look_has_no_form(valkey: Server, app: PollConsumer) -> None:
    client = browser(valkey.wire(), app)
    assert client.get("/enqueue").status_code == 403
    assert "enqueue" not in seen(client, "/").links()
    assert client.post("/act", data={"what": "enqueue", "handler": "mail.send"}).status_code == 403


def test_a_form_that_is_too_long_or_from_elsewhere_is_refused(client: TestClient, app: PollConsumer) -> None:
    form = {"what": "enqueue", "handler": "mail.send", "arg.to": "a", "token": token(client)}
    long = client.post("/act", data=form | {"payload": "x" * LONGEST_FORM})
    assert (long.status_code, "form: more than 64 KiB, URL-encoded; shorten its texts" in long.text) == (413, True)
    assert client.post("/act", data=form | {"token": "guessed"}).status_code == 403
    assert client.post("/act", data=form, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert [*app.messages()] == []


def test_an_encoded_payload_is_what_the_form_sends_where_the_application_has_a_codec(valkey: Server) -> None:
    app = PollConsumer(store=valkey.url, namespace=NAMESPACE, codec=Reversed())
    app.handler("work")(lambda n: n)
    client = admitted(valkey.wire(), app)
    assert sent(client, "work", arg_n="5", queue="other")[0] == 303
    [message] = app.messages()
    assert message.status().payload == {"n": 5}
    assert "encoded_bytes" in seen(client, f"message?queue=other&id={message.id}").text


# Recurrences


def put(client: TestClient, address: str = "put", **values: str) -> tuple[int, Document]:
    page = seen(client, address)
    form = next(each for each in page.forms() if each.get("what") == "put")
    answer = client.post("/act", data=form | values)
    if answer.status_code == 303:
        assert answer.headers["location"].startswith("recurrence?name=")
        return 303, seen(client, answer.headers["location"])
    return answer.status_code, Document(answer.text)


NEW = {"name": "check:1", "handler": "mail.send", "every": "1h", "payload": '{"to": "ada"}'}


def test_a_recurrence_is_added_in_the_name_of_who_did_it(client: TestClient, app: PollConsumer) -> None:
    assert "put" in seen(client, "./").links()
    assert "once, by default" in seen(client, "put").text
    options = {"missed": "skip", "overlap": "skip", "first": "2030-01-31T09:00:00Z", "times": "3", "priority": "-1"}
    status, page = put(client, **NEW, **options, until="2031-01-31T09:00:00Z")
    assert (status, "Put: check:1" in page.text) == (303, True)
    standing = app.recurrences.get("check:1")
    rule = standing.recurrence
    assert rule is not None
    assert (rule.every, rule.queue, rule.payload, rule.times, rule.priority) == (3600, "mail", {"to": "ada"}, 3, -1)
    assert (rule.missed, rule.overlap, rule.created_by, rule.enabled) == ("skip", "skip", "dashboard", True)
    assert standing.next is not None
    assert standing.next.isoformat() == "2030-01-31T09:00:00+00:00"
    assert [(each.who, each.what, each.names) for each in interventions(app)] == [("dashboard", "put", ("check:1",))]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"payload": ""}, "arguments of mail.send: missing to"),
        ({"handler": "mail.sent"}, "unknown handler: mail.sent; did you mean mail.send?"),
        ({"name": "a b"}, "recurrence name"),
        ({"every": "soon"}, "every"),
        ({"cron": "* * * * *"}, "give cron or every"),
        ({"first": "soon"}, "first: soon; write ISO 8601"),
        ({"until": "tomorrow"}, "until: tomorrow; write ISO 8601"),
        ({"times": "many"}, "times: many; must be a whole number"),
        ({"missed": "never"}, "missed"),
        ({"name": ""}, "name; give one"),
    ],
    ids=str,
)
def test_what_is_no_recurrence_is_refused_on_the_form(
    client: TestClient, app: PollConsumer, values: dict[str, str], said: str
) -> None:
    status, page = put(client, **NEW | values)
    assert (status, [*app.recurrences]) == (409, [])
    assert said in page.text
    assert {each.get("name"): each.get("value") for each in page.all("input")}["handler"] == (NEW | values)["handler"]


def test_a_new_one_does_not_replace_one_of_its_name(client: TestClient, app: PollConsumer) -> None:
    app.recurrences.put("check:1", handler="mail.send", every="2h", payload={"to": "eve"})
    status, page = put(client, **NEW)
    assert (status, "there is one of that name: edit it" in page.text) == (409, True)


@pytest.mark.parametrize("text", ["</textarea><script>", "é", "\u202e\x1b\\", "a\nb", '"'])
def test_an_input_has_what_is_sent_again_as_it_is(client: TestClient, app: PollConsumer, text: str) -> None:
    payload = {"to": text, "note": 1}
    app.recurrences.put("r", handler="mail.send", every="1h", payload=payload)
    shown = re.findall(r"<textarea[^>]*>([^<]*)</textarea>", client.get("/put?name=r").text)
    assert [json.loads(unescape(each)) for each in shown] == [payload]
    refused = client.post(
        "/act", data={"what": "enqueue", "token": token(client), "handler": "mail.send"} | {"payload": text}
    )
    assert [unescape(each) for each in re.findall(r"<textarea[^>]*>([^<]*)</textarea>", refused.text)] == [text]


def test_an_edited_one_keeps_what_the_form_does_not_ask_for(client: TestClient, app: PollConsumer) -> None:
    kept: dict[str, Any] = {"headers": {"n": "1"}, "created_by": "eve", "timeout": "1m", "jitter": "10m"}
    app.recurrences.put("r", handler="mail.send", every="90s", payload={"to": "eve"}, first="next", **kept)
    before = app.recurrences.get("r")
    assert "put?name=r" in seen(client, "recurrence?name=r").links()
    page = seen(client, "put?name=r")
    assert '"to": "eve"' in page.text
    form = {each.get("name"): each.get("value") for each in page.all("input")}
    assert (form["every"], form["timezone"], form["first"]) == ("90s", "UTC", "next")
    status, _ = put(client, "put?name=r", payload='{"to": "eve"}', enabled="true", missed="once", overlap="allow")
    assert (status, app.recurrences.get("r")) == (303, before)
    assert put(client, "put?name=r", payload='{"to": "bob"}', every="2h", overlap="skip")[0] == 303
    after = app.recurrences.get("r").recurrence
    assert before.recurrence is not None
    changed: dict[str, Any] = {"payload": {"to": "bob"}, "every": 7200, "overlap": "skip"}
    assert after == replace(before.recurrence, **changed)
    status, page = put(client, "put?name=r", payload="{}")
    assert (status, "Edit r" in " ".join(page.text.split())) == (409, True)
    assert client.get("/put?name=nobody").status_code == 404


def test_an_encoded_payload_stays_as_it_is_unless_another_is_given(valkey: Server) -> None:
    app = PollConsumer(store=valkey.url, namespace=NAMESPACE, codec=Reversed())
    app.handler("work")(lambda n: n)
    app.recurrences.put("r", handler="work", every="1h", payload={"n": 5})
    client = admitted(valkey.wire(), app)
    assert "empty: as it is" in seen(client, "put?name=r").text
    assert put(client, "put?name=r", every="2h")[0] == 303
    rule = app.recurrences.get("r").recurrence
    assert rule is not None
    assert (rule.payload, rule.every) == ({"n": 5}, 7200)
    assert put(client, "put?name=r", payload='{"n": 6}')[0] == 303
    rule = app.recurrences.get("r").recurrence
    assert rule is not None
    assert rule.payload == {"n": 6}


def test_one_of_a_configuration_cannot_be_edited(client: TestClient, app: PollConsumer, valkey: Server) -> None:
    app.enqueue("mail.send", {"to": "a"})
    nightly = Recurrence("nightly", "mail.send", cron="30 2 * * *", queue="mail")
    LaunchRecurrences(valkey.wire(), NAMESPACE).define("consumer:mail", ["mail"], [nightly], lambda _: None)
    assert "put?name=nightly" not in seen(client, "recurrence?name=nightly").links()
    status, page = put(client, "put?name=nightly", payload='{"to": "a"}')
    assert (status, "a configuration defines one of that name" in page.text) == (409, True)


@contextmanager
def commanded(site: Site) -> Iterator[httpx.Client]:
    """A browser at `pollconsumer dashboard --allow-actions`."""
    process, address = served(site, "--allow-actions")
    bare, _, given = address.partition("?token=")
    with httpx.Client(base_url=bare, follow_redirects=True, timeout=90) as client:
        client.get("", params={"token": given})
        yield client
    process.terminate()
    process.communicate(timeout=90)


def test_the_command_has_the_handlers_and_programs_of_its_configuration(site: Site) -> None:
    with (site.directory / "config.toml").open("a") as config:
        config.write('[commands.backup]\ncommand = ["true"]\nqueue = "slow"\n')
    with commanded(site) as client:
        links = Document(client.get("enqueue").text).links()
        assert {"enqueue?handler=record", "enqueue?handler=backup"} <= {*links}
        form = next(each for each in Document(client.get("enqueue?handler=record").text).forms() if "handler" in each)
        refused = client.post("act", data=form | {"arg.nam": "x"})
        assert (refused.status_code, "missing name" in refused.text) == (409, True)
        for values in ({"arg.name": "by hand"}, {"handler": "backup"}):
            assert client.post("act", data=form | values).status_code == 200
    assert {each["queue"] for each in site.json("list")} == {"default", "slow"}
    site.drain()
    assert site.notes() == ["by hand"]


def test_the_command_warns_of_handlers_that_it_cannot_import_and_takes_json(site: Site) -> None:
    (site.directory / "handlers.py").write_text("import nowhere_to_be_found\n")
    process, address = served(site, "--allow-actions")
    bare, _, given = address.partition("?token=")
    with httpx.Client(base_url=bare, follow_redirects=True, timeout=90) as client:
        client.get("", params={"token": given})
        page = Document(client.get("enqueue?handler=record").text)
        form = next(each for each in page.forms() if "handler" in each)
        assert client.post("act", data=form).status_code == 409
        assert client.post("act", data=form | {"queue": "default", "payload": '{"name": "a"}'}).status_code == 200
    process.terminate()
    _, errors = process.communicate(timeout=90)
    assert "warning: forms know no handlers, and check no arguments: " in errors
    assert [each["payload"] for each in site.json("list")] == [{"name": "a"}]
