"""The dashboard within a site: the same pages under WSGI and ASGI, for whom the site's login lets in."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from wsgiref.validate import validator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from pollconsumer import PollConsumer
from pollconsumer.audit import interventions
from pollconsumer.dashboard import DashboardEndpoint, Visitor
from pollconsumer.dashboard.access import HEADERS
from pollconsumer.dashboard.server import LONGEST_FORM
from pollconsumer.store import rights
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.inspector import Inspector
from tests.conftest import NAMESPACE
from tests.dashboard.pages import Document
from tests.interface.rights_page import PATTERNS
from tests.store.acting import HOUR, message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.store.servers import Server

WHO = {"ada": Visitor("ada", acts=True), "bob": Visitor("bob")}
OURS = {"sec-fetch-site": "same-origin"}


def of_environ(environ: dict[str, Any]) -> Visitor | None:
    return WHO.get(environ.get("HTTP_WHO", ""))


def of_scope(scope: dict[str, Any]) -> Visitor | None:
    return WHO.get(dict(scope["headers"]).get(b"who", b"").decode())


def mounted(endpoint: Any) -> Callable[..., Any]:
    """As a site's dispatcher does it: the path below the mount."""

    def site(environ: dict[str, Any], start_response: Any) -> Any:
        assert environ["PATH_INFO"].startswith("/queue")
        path = environ["PATH_INFO"].removeprefix("/queue")
        length = environ.get("CONTENT_LENGTH") or "0"
        given = {"CONTENT_LENGTH": length, "wsgi.input": io.BytesIO(environ["wsgi.input"].read(int(length)))}
        return validator(endpoint)(environ | {"SCRIPT_NAME": "/queue", "PATH_INFO": path} | given, start_response)

    return site


@pytest.fixture
def app(valkey: Server) -> PollConsumer:
    RedisStore(valkey.wire(), NAMESPACE).enqueue([message("a", delay=HOUR)])
    return PollConsumer(store=valkey.url, namespace=NAMESPACE)


@pytest.fixture(params=["wsgi", "asgi"])
def client(request: pytest.FixtureRequest, app: PollConsumer) -> Iterator[httpx.Client]:
    if request.param == "asgi":
        site = Starlette(routes=[Mount("/queue", DashboardEndpoint(app, of_scope).asgi)])
        yield TestClient(site, base_url="https://site.test", follow_redirects=False)
        return
    transport = httpx.WSGITransport(mounted(DashboardEndpoint(app, of_environ)))
    with httpx.Client(transport=transport, base_url="https://site.test") as client:
        yield client


def seen(client: httpx.Client, who: str, page: str) -> Document:
    answer = client.get(f"/queue/{page}", headers={"who": who})
    assert (answer.status_code, {name: answer.headers[name] for name in dict(HEADERS)}) == (200, dict(HEADERS))
    return Document(answer.text)


def test_who_may_look_sees_the_pages_of_the_applications_store(client: httpx.Client) -> None:
    page = seen(client, "bob", "")
    assert "message?queue=mail&id=a" in page.links()
    assert "scheduled" in seen(client, "bob", "message?queue=mail&id=a").text
    assert client.get("/queue/style.css").headers["content-type"] == "text/css; charset=utf-8"


def test_the_path_without_a_slash_leads_to_the_first_page(client: httpx.Client) -> None:
    answer = client.get("/queue", headers={"who": "bob"})
    assert answer.status_code in (303, 307)
    assert str(answer.url.join(answer.headers["location"])) == "https://site.test/queue/"


@pytest.mark.parametrize("page", ["", "message?queue=mail&id=a", "nothing"])
def test_who_may_not_look_is_told_nothing(client: httpx.Client, page: str) -> None:
    for answer in (client.get(f"/queue/{page}"), client.get(f"/queue/{page}", headers={"who": "eve"})):
        assert answer.status_code == 403
        assert "mail" not in answer.text


def test_who_may_only_look_has_no_button_and_can_send_no_form(client: httpx.Client) -> None:
    assert seen(client, "bob", "message?queue=mail&id=a").forms() == []
    form = seen(client, "ada", "message?queue=mail&id=a").forms()[0]
    assert client.post("/queue/act", data=form, headers=OURS | {"who": "bob"}).status_code == 403
    assert client.post("/queue/act", data=form, headers=OURS).status_code == 403
    assert "scheduled" in seen(client, "bob", "message?queue=mail&id=a").text


def test_who_may_act_enqueues_for_a_handler_of_the_site_in_their_own_name(
    app: PollConsumer, client: httpx.Client
) -> None:
    app.handler("greet", queue="mail")(lambda name: name)
    assert client.get("/queue/enqueue", headers={"who": "bob"}).status_code == 403
    assert "enqueue?handler=greet" in seen(client, "ada", "enqueue").links()
    form = next(each for each in seen(client, "ada", "enqueue?handler=greet").forms() if "handler" in each)
    refused = client.post("/queue/act", data=form, headers=OURS | {"who": "ada"})
    assert (refused.status_code, "arguments of greet: missing name" in refused.text) == (409, True)
    taken = client.post("/queue/act", data=form | {"arg.name": "eve"}, headers=OURS | {"who": "ada"})
    assert taken.status_code == 303
    [message] = app.messages(handler="greet")
    assert (message.status().created_by, message.status().payload) == ("ada", {"name": "eve"})
    [note] = interventions(app)
    assert (note.who, note.what, note.names) == ("ada", "enqueue", (message.id,))


def test_who_may_act_cancels_a_message_and_is_told(client: httpx.Client) -> None:
    form = seen(client, "ada", "message?queue=mail&id=a").forms()[0]
    answer = client.post("/queue/act", data=form, headers=OURS | {"who": "ada"})
    assert answer.status_code == 303
    page = seen(client, "ada", answer.headers["location"])
    assert "Cancelled: a" in page.text
    noted = " ".join(seen(client, "bob", "audit").text.split())
    assert "names ada " in noted
    assert " cancel mail a " in noted
    assert "cancelled" in page.text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.test"},
        {"origin": "null"},
    ],
)
def test_a_form_of_which_the_browser_does_not_say_that_it_is_ours_is_refused(
    client: httpx.Client, headers: dict[str, str]
) -> None:
    form = seen(client, "ada", "message?queue=mail&id=a").forms()[0]
    assert client.post("/queue/act", data=form, headers=headers | {"who": "ada"}).status_code == 403
    assert (
        client.post("/queue/act", data=form | {"x": "x" * LONGEST_FORM}, headers=OURS | {"who": "ada"}).status_code
        == 413
    )
    assert "scheduled" in seen(client, "ada", "message?queue=mail&id=a").text


@pytest.mark.parametrize(("acts", "may"), [(None, False), ("", False), (0, False), ("yes", True), (2, True)])
def test_whatever_a_site_says_of_acting_is_true_or_false(app: PollConsumer, acts: Any, may: bool) -> None:
    transport = httpx.WSGITransport(mounted(DashboardEndpoint(app, lambda _: Visitor("ada", acts))))
    with httpx.Client(transport=transport, base_url="https://site.test") as site:
        assert bool(seen(site, "ada", "message?queue=mail&id=a").forms()) is may


def test_a_head_request_has_no_content(client: httpx.Client) -> None:
    answer = client.head("/queue/", headers={"who": "ada"})
    assert (answer.status_code, answer.content) == (200, b"")


def test_a_store_that_is_away_is_a_page_of_the_site(tmp_path: Path) -> None:
    away = PollConsumer(store=f"unix://{tmp_path}/nowhere.sock", namespace=NAMESPACE, patience=0.01)
    transport = httpx.WSGITransport(mounted(DashboardEndpoint(away, of_environ)))
    with httpx.Client(transport=transport, base_url="https://site.test") as client:
        answer = client.get("/queue/", headers={"who": "ada"})
    assert answer.status_code == 503
    assert "store unreachable" in Document(answer.text).text


def test_a_configuration_that_is_refused_is_told_in_the_log_alone(tmp_path: Path, caplog: Any) -> None:
    endpoint = DashboardEndpoint(PollConsumer(config=tmp_path / "missing.toml"), of_environ)
    with httpx.Client(transport=httpx.WSGITransport(mounted(endpoint)), base_url="https://site.test") as client:
        answer = client.get("/queue/", headers={"who": "ada"})
    assert (answer.status_code, answer.text) == (500, "refused by the configuration; see the log\n")
    assert "configuration file not found" in caplog.text


@pytest.mark.parametrize("role", ["producer", "launch"])
def test_a_site_with_the_login_of_a_producer_or_a_launch_is_refused_its_actions(valkey: Server, role: str) -> None:
    admin = valkey.wire()
    RedisStore(admin, NAMESPACE).enqueue([message("a", delay=HOUR)])
    granted = getattr(rights, role.upper()).split() + rights.OPERATOR.split() * (role == "launch")
    keys = PATTERNS[role].replace("pollconsumer", NAMESPACE).split()
    commands = [f"+{each.lower()}" for each in ("EVALSHA", *granted)]
    admin.command("ACL", "SETUSER", "site", "reset", "on", ">secret", "-@all", *keys, *commands)
    try:
        app = PollConsumer(store=valkey.url.replace("unix://", "unix://site:secret@"), namespace=NAMESPACE)
        transport = httpx.WSGITransport(mounted(DashboardEndpoint(app, of_environ)))
        with httpx.Client(transport=transport, base_url="https://site.test") as site:
            form = {"what": "cancel", "queue": "mail", "id": "a", "token": "site"}
            answer = site.post("/queue/act", data=form, headers=OURS | {"who": "ada"})
        assert answer.status_code == 403
        assert ("rights missing" if role == "producer" else "not permitted to write the audit log") in answer.text
    finally:
        admin.command("ACL", "DELUSER", "site")
    assert Inspector(admin, NAMESPACE).message("a").state == "scheduled"
