"""Forms of the dashboard: a new message for a handler, asked for by its parameters, and checked as Python checks it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pollconsumer import Item, PollConsumer
from pollconsumer.audit import interventions
from pollconsumer.dashboard.server import LONGEST_FORM
from tests.conftest import NAMESPACE
from tests.dashboard.pages import Document, admitted, browser, seen
from tests.dashboard.test_dashboard_command import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.testclient import TestClient

    from tests.site import Site
    from tests.store.servers import Server


@pytest.fixture
def app(valkey: Server) -> PollConsumer:
    app = PollConsumer(store=valkey.url, namespace=NAMESPACE)

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
    assert client.get("/enqueue").status_code == 404
    assert "enqueue" not in seen(client, "/").links()
    assert client.post("/act", data={"what": "enqueue", "handler": "mail.send"}).status_code == 404


def test_a_form_that_is_too_long_or_from_elsewhere_is_refused(client: TestClient, app: PollConsumer) -> None:
    form = {"what": "enqueue", "handler": "mail.send", "arg.to": "a", "token": token(client)}
    assert client.post("/act", data=form | {"payload": "x" * LONGEST_FORM}).status_code == 403
    assert client.post("/act", data=form | {"token": "guessed"}).status_code == 403
    assert client.post("/act", data=form, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert [*app.messages()] == []


def test_an_encoded_payload_is_what_the_form_sends_where_the_application_has_a_codec(valkey: Server) -> None:
    class Reversed:
        def encode(self, data: bytes) -> bytes:
            return data[::-1]

        decode = encode

    app = PollConsumer(store=valkey.url, namespace=NAMESPACE, codec=Reversed())
    app.handler("work")(lambda n: n)
    client = admitted(valkey.wire(), app)
    assert sent(client, "work", arg_n="5", queue="other")[0] == 303
    [message] = app.messages()
    assert message.status().payload == {"n": 5}
    assert "encoded_bytes" in seen(client, f"message?queue=other&id={message.id}").text


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
