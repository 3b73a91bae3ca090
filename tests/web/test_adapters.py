"""The endpoint under WSGI, ASGI and AWS Lambda: the same answers to the same requests, by well-kept clients of each."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading
from typing import TYPE_CHECKING, Any, NamedTuple
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import httpx
import pytest
import uvicorn

from pollconsumer.core.messages.payloads import MAX_PAYLOAD_BYTES
from pollconsumer.web import launch_starter, web_exchange
from pollconsumer.web.web_exchange import WebAnswer, json_answer
from tests.site import PATIENCE
from tests.web.conftest import ENQUEUE_TOKEN, MANAGE_TOKEN, TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer import PollConsumer
    from pollconsumer.web import LaunchEndpoint

    Ask = Callable[..., "Told"]


class Told(NamedTuple):
    status: int
    said: Any
    headers: dict[str, str]


class LambdaContext:
    """Of AWS Lambda."""

    def __init__(self, seconds: float = 900.0) -> None:
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self._seconds * 1000)


def event_of(method: str, address: str, headers: dict[str, str], body: bytes = b"") -> dict[str, Any]:
    """As a function URL makes it."""
    path, _, query = address.partition("?")
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {name.lower(): value for name, value in headers.items()},
        "requestContext": {"http": {"method": method, "path": path, "sourceIp": "192.0.2.1"}, "stage": "$default"},
        **({"body": base64.b64encode(body).decode(), "isBase64Encoded": True} if body else {"isBase64Encoded": False}),
    }


@pytest.fixture(params=["wsgi", "asgi", "aws"])
def ask(request: pytest.FixtureRequest, endpoint: LaunchEndpoint) -> Ask:
    """Asks the endpoint, through one of its forms."""

    def by_httpx(transport: Any, method: str, path: str, headers: dict[str, str], body: bytes) -> Told:
        async def answered() -> httpx.Response:
            async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:
                return await client.request(method, path, headers=headers, content=body)

        if request.param == "asgi":
            response = asyncio.run(answered())
        else:
            with httpx.Client(transport=transport, base_url="http://site") as client:
                response = client.request(method, path, headers=headers, content=body)
        return Told(response.status_code, response.json(), dict(response.headers))

    def by_lambda(method: str, path: str, headers: dict[str, str], body: bytes) -> Told:
        told = endpoint.aws(event_of(method, path, headers, body), LambdaContext())
        json.dumps(told)  # Lambda does that
        return Told(
            told["statusCode"],
            json.loads(told["body"]),
            {name.lower(): value for name, value in told["headers"].items()},
        )

    def asked(method: str, path: str, token: str = "", body: bytes = b"", **headers: str) -> Told:
        given = headers | ({"Authorization": f"Bearer {token}"} if token else {})
        if request.param == "aws":
            return by_lambda(method, path, given, body)
        transport: Any = httpx.ASGITransport(endpoint.asgi)
        if request.param == "wsgi":
            transport = httpx.WSGITransport(validator(endpoint))
        return by_httpx(transport, method, path, given, body)

    return asked


@pytest.fixture(autouse=True)
def starts(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each launch might have lasted. None is started."""
    found: list[float] = []

    def start(_: Any, within: float, *, by_producer: bool) -> WebAnswer:  # noqa: ARG001  its signature
        found.append(within)
        return json_answer(200, {"stop_reason": "empty", "handled": 0, "failed": 0})

    monkeypatch.setattr(launch_starter.LaunchStarter, "start", start)
    return found


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_launch_is_answered_with_its_outcome(ask: Ask, starts: list[float], method: str) -> None:
    told = ask(method, "/queue/launch?ignored=1", TOKEN)
    assert told[:2] == (200, {"stop_reason": "empty", "handled": 0, "failed": 0})
    assert told.headers["content-type"] == "application/json"
    assert told.headers["cache-control"] == "no-store"
    assert len(starts) == 1


def test_the_body_of_a_request_for_a_launch_is_ignored(ask: Ask, starts: list[float]) -> None:
    assert ask("POST", "/launch", TOKEN, b"x" * 10_000).status == 200
    assert len(starts) == 1


def test_what_is_refused_is_refused_alike(ask: Ask, starts: list[float]) -> None:
    assert ask("POST", "/launch").status == 401
    assert ask("POST", "/launch", "another-token-than-that").headers["www-authenticate"] == "Bearer"
    assert ask("DELETE", "/launch", TOKEN).headers["allow"] == "GET, POST"
    assert ask("GET", "/", TOKEN).status == 404
    assert ask("POST", "/messages", ENQUEUE_TOKEN, b"{").status == 400
    assert ask("POST", "/messages", ENQUEUE_TOKEN).status == 400
    assert ask("POST", "/messages", ENQUEUE_TOKEN, b"x" * (MAX_PAYLOAD_BYTES + 1)).status == 413
    assert not starts


def test_a_message_is_sent_and_its_state_asked_for(app: PollConsumer, ask: Ask) -> None:
    body = json.dumps({"handler": "backup", "payload": {"name": "Zoë"}, "id": "a:b@c+d"}).encode()
    told = ask("POST", "/messages", ENQUEUE_TOKEN, body)
    assert told[:2] == (202, {"id": "a:b@c+d", "duplicate": False})
    assert app.message("a:b@c+d").status().payload == {"name": "Zoë"}
    for path in ("/messages/a:b@c+d", "/messages/a%3Ab%40c%2Bd"):
        assert ask("GET", path, ENQUEUE_TOKEN)[:2] == (
            200,
            {"id": "a:b@c+d", "queue": "default", "handler": "backup", "state": "ready", "attempts": 0},
        )


def test_a_recurrence_is_put_and_removed_and_a_message_cancelled(app: PollConsumer, ask: Ask) -> None:
    body = json.dumps({"handler": "backup", "every": "1h", "payload": {"name": "Zoë"}}).encode()
    told = ask("PUT", "/recurrences/a:b@c+d", MANAGE_TOKEN, body)
    assert (told.status, told.said["name"], told.said["payload"]) == (200, "a:b@c+d", {"name": "Zoë"})
    assert ask("GET", "/recurrences/a%3Ab%40c%2Bd", MANAGE_TOKEN)[:2] == (200, told.said)
    assert ask("DELETE", "/recurrences/a:b@c+d", MANAGE_TOKEN).status == 200
    assert [*app.recurrences] == []
    for queue in ("one", "two"):
        app.enqueue("backup", queue=queue, id="a")
    assert ask("DELETE", "/messages/a?queue=two", MANAGE_TOKEN).said["queue"] == "two"


# WSGI


def wsgi_status(endpoint: LaunchEndpoint, body: bytes, **environ: Any) -> str:
    given: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": "/messages", "wsgi.input": io.BytesIO(body)}
    given |= {"HTTP_AUTHORIZATION": f"Bearer {ENQUEUE_TOKEN}", **environ}
    setup_testing_defaults(given)
    statuses: list[str] = []
    [*endpoint(given, lambda status, _: statuses.append(status))]
    return statuses[0]


MESSAGE = b'{"handler": "backup"}'


def test_what_comes_after_the_announced_body_is_not_waited_for(endpoint: LaunchEndpoint) -> None:
    assert wsgi_status(endpoint, MESSAGE + b"GET / HTTP/1.1", CONTENT_LENGTH=str(len(MESSAGE))) == "202 Accepted"
    assert wsgi_status(endpoint, MESSAGE, CONTENT_LENGTH="").startswith("400")


def test_an_answer_to_head_has_no_content(endpoint: LaunchEndpoint) -> None:
    with httpx.Client(transport=httpx.WSGITransport(validator(endpoint)), base_url="http://site") as client:
        answered = client.head("/launch")
    assert (answered.status_code, answered.content) == (405, b"")


def test_a_body_in_parts_is_read_where_the_server_ends_it(endpoint: LaunchEndpoint) -> None:
    assert wsgi_status(endpoint, MESSAGE, **{"wsgi.input_terminated": True}) == "202 Accepted"


# ASGI


def asgi_told(endpoint: LaunchEndpoint, scope: dict[str, Any], *messages: Any) -> list[Any]:
    """What the application sends if it receives these messages, and then nothing."""
    sent: list[Any] = []

    async def run() -> None:
        left = iter(messages)

        async def receive() -> Any:
            for message in left:
                return message
            await asyncio.Event().wait()
            return None

        async def send(message: Any) -> None:
            sent.append(message)

        await endpoint.asgi(scope, receive, send)

    asyncio.run(run())
    return sent


HTTP = {
    "type": "http",
    "method": "POST",
    "path": "/messages",
    "headers": [(b"authorization", f"Bearer {ENQUEUE_TOKEN}".encode())],
}


def part(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_is_put_together_from_its_parts(endpoint: LaunchEndpoint) -> None:
    sent = asgi_told(endpoint, HTTP, part(MESSAGE[:5], more=True), part(b"", more=True), part(MESSAGE[5:], more=False))
    assert sent[0]["status"] == 202


def test_a_body_that_never_ends_is_cut(endpoint: LaunchEndpoint) -> None:
    parts = [part(b" " * 2**18, more=True)] * 5
    assert asgi_told(endpoint, HTTP, *parts)[0]["status"] == 413


def test_a_client_that_sends_no_body_is_given_up(endpoint: LaunchEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_exchange, "BODY_WITHIN", 0.01)
    assert asgi_told(endpoint, HTTP, part(b"{", more=True))[0]["status"] == 408


def test_a_client_that_goes_away_before_its_body_has_sent_nothing(endpoint: LaunchEndpoint) -> None:
    assert asgi_told(endpoint, HTTP, part(MESSAGE, more=True), {"type": "http.disconnect"})[0]["status"] == 408


def test_a_request_that_waits_for_its_launch_holds_up_no_other(
    endpoint: LaunchEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    def start(_: Any, within: float, *, by_producer: bool) -> WebAnswer:  # noqa: ARG001  its signature
        assert goes_on.wait(PATIENCE)
        return json_answer(200, {})

    monkeypatch.setattr(launch_starter.LaunchStarter, "start", start)

    async def run() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(endpoint.asgi), base_url="http://site") as client:
            launch = asyncio.ensure_future(client.post("/launch", headers={"Authorization": f"Bearer {TOKEN}"}))
            other = await client.get("/messages/a", headers={"Authorization": f"Bearer {ENQUEUE_TOKEN}"})
            goes_on.set()
            return [other.status_code, (await launch).status_code]

    assert asyncio.run(run()) == [404, 200]


def test_servers_take_it_for_an_application_of_asgi_3(endpoint: LaunchEndpoint) -> None:
    config = uvicorn.Config(endpoint.asgi)
    config.load()
    assert config.interface == "asgi3"


def test_a_server_may_ask_it_to_start_and_stop(endpoint: LaunchEndpoint) -> None:
    phases = {"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}
    assert asgi_told(endpoint, {"type": "lifespan"}, *phases) == [
        {"type": "lifespan.startup.complete"},
        {"type": "lifespan.shutdown.complete"},
    ]
    assert asgi_told(endpoint, {"type": "websocket"}) == []


# AWS Lambda


def test_a_launch_has_the_time_that_the_function_has_left(endpoint: LaunchEndpoint, starts: list[float]) -> None:
    event = event_of("GET", "/launch", {"Authorization": f"Bearer {TOKEN}"})
    endpoint.aws(event, LambdaContext(12.5))
    assert starts == [12.5]


def test_a_body_may_come_as_text(endpoint: LaunchEndpoint) -> None:
    event = event_of("POST", "/messages", {"Authorization": f"Bearer {ENQUEUE_TOKEN}"})
    assert endpoint.aws(event | {"body": MESSAGE.decode()}, LambdaContext())["statusCode"] == 202


@pytest.mark.parametrize(
    "event",
    [{}, {"source": "aws.events"}, {"requestContext": None}, {"httpMethod": "GET", "requestContext": {}, "path": "/"}],
    ids=repr,
)
def test_an_event_of_another_kind_is_refused_and_the_log_says_so(
    endpoint: LaunchEndpoint, event: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert endpoint.aws(event, LambdaContext())["statusCode"] == 400
    assert "payload format" in caplog.text
