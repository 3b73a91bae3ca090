"""Requests whose fields have odd values, by each way in: each gets a status, none raises. One table for all ways: the
same request has the same status."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any
from wsgiref.util import setup_testing_defaults

import pytest

from pollconsumer.dashboard.access import DashboardEndpoint, Visitor
from tests.web.conftest import ENQUEUE_TOKEN

if TYPE_CHECKING:
    from pollconsumer import PollConsumer
    from pollconsumer.web import LaunchEndpoint

BEARER = f"Bearer {ENQUEUE_TOKEN}"
MESSAGE = b'{"handler": "backup"}'
TEXTS = [
    "", " ", "\0", "null", "é", "\xff\xfe", "%", "%00", "%ff", "%ud800", "/", "//", "..", "../../etc/passwd", "-5",
    "1e3", "9" * 400, "x" * 100_000, "a\r\nb: c", "{}", "[]", "http://[", "http://[::1", "://", "\u2028",
]  # fmt: skip
FIELDS = ["method", "path", "id", "query", "body", "content-length", "authorization", "host", "origin", "user-agent"]
"""Of a request. What stands in each is put into a request that is right otherwise."""


def request_with(field: str, text: str) -> tuple[str, str, str, dict[str, str], bytes]:
    """Method, path, query, headers and body."""
    method, path, query, body = "POST", "/messages", "", MESSAGE
    headers = {"authorization": BEARER, "host": "site", "content-length": str(len(MESSAGE))}
    if field == "method":
        method = text
    elif field == "path":
        path = text
    elif field == "id":
        method, path = "GET", f"/messages/{text}"
    elif field == "query":
        query = text
    elif field == "body":
        body = text.encode("utf-8", "surrogatepass")
        headers["content-length"] = str(len(body))
    else:
        headers[field] = text
    return method, path, query, headers, body


def latin(text: str) -> str:
    """As servers give the bytes of a text."""
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def by_wsgi(app: Any, method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> int:
    environ: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": latin(path), "QUERY_STRING": latin(query)}
    for name, value in headers.items():
        environ["CONTENT_LENGTH" if name == "content-length" else f"HTTP_{name.upper().replace('-', '_')}"] = value
    setup_testing_defaults(environ)
    environ["wsgi.input"] = io.BytesIO(body)
    statuses: list[str] = []
    [*app(environ, lambda status, _: statuses.append(status))]
    return int(statuses[0].split()[0])


def by_asgi(app: Any, method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> int:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    given = [(name.encode(), latin(value).encode("latin-1")) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "query_string": latin(query).encode("latin-1")}
    asyncio.run(app.asgi(scope | {"headers": given}, receive, send))
    status: int = sent[0]["status"]
    return status


def by_lambda(app: Any, method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> int:
    event = {
        "requestContext": {"http": {"method": method}}, "rawPath": path.replace("%", "%25"), "rawQueryString": query,
        "headers": headers, "body": body.decode("utf-8", "surrogatepass"),
    }  # fmt: skip
    status: int = app.aws(event)["statusCode"]
    return status


@pytest.mark.parametrize("field", FIELDS)
def test_an_odd_text_in_a_request_has_one_status_by_each_way(endpoint: LaunchEndpoint, field: str) -> None:
    for text in TEXTS:
        request = request_with(field, text)
        found = [way(endpoint, *request) for way in (by_wsgi, by_asgi, by_lambda)]
        assert max(found) < 500, (text[:40], found)
        if field != "content-length":  # without it WSGI knows no body
            assert len({*found}) == 1, (text[:40], found)


EVENT = {
    "version": "2.0", "rawPath": "/messages", "rawQueryString": "", "headers": {"authorization": BEARER},
    "requestContext": {"http": {"method": "POST"}}, "body": MESSAGE.decode(), "isBase64Encoded": False,
}  # fmt: skip
ODD: list[Any] = [None, 5, -1.5, True, "", "null", "é", "\udc00", "no base64!", "YQ", [], ["a"], [["a", "b"]], {}]
ODD += [{"a": None}, {"authorization": ["a"]}, {"http": None}, {"http": {"method": 5}}, {"http": []}, {5: "a"}]


@pytest.mark.parametrize("field", [*EVENT])
@pytest.mark.parametrize("is_encoded", [False, True])
def test_an_odd_value_in_an_event_of_lambda_has_a_status(
    endpoint: LaunchEndpoint, field: str, *, is_encoded: bool
) -> None:
    for value in ODD:
        status = endpoint.aws(EVENT | {"isBase64Encoded": is_encoded, field: value})["statusCode"]
        assert status < 500, value
    without = {name: value for name, value in EVENT.items() if name != field}
    assert endpoint.aws(without)["statusCode"] < 500


@pytest.mark.parametrize("event", [None, 5, "text", [], [{}]])
def test_what_is_no_event_at_all_has_a_status(endpoint: LaunchEndpoint, event: Any) -> None:
    assert endpoint.aws(event)["statusCode"] == 400


@pytest.mark.parametrize("field", FIELDS)
def test_an_odd_text_in_a_request_for_a_page_has_one_status_by_each_way(app: PollConsumer, field: str) -> None:
    pages = DashboardEndpoint(app, lambda _: Visitor("ann", acts=True))
    for text in TEXTS:
        method, path, query, headers, body = request_with(field, text)
        if field == "id":
            path, query = "/message", f"id={text}&queue={text}"
        elif field != "path":
            path = "/act"
        request = method, path, query, headers | {"cookie": text}, body
        found = [way(pages, *request) for way in (by_wsgi, by_asgi)]
        assert len({*found}) == 1, (text[:40], found)
        assert found[0] < 500, (text[:40], found)


@pytest.mark.parametrize(
    "odd", [Visitor(5), Visitor(""), Visitor(None), Visitor(b"ann"), "ann", ("ann", True), 5, True, []]  # type: ignore[arg-type]
)  # fmt: skip
def test_what_is_no_visitor_is_refused_and_the_log_says_why(
    app: PollConsumer, odd: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert by_wsgi(DashboardEndpoint(app, lambda _: odd), "GET", "/", "", {}, b"") == 403
    assert "return Visitor(NAME)" in caplog.text


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [("null", "", 403), ("", "", 403), ("site", "site", 403), ("http://", "", 403), ("https://site", "site", 404)],
)
def test_a_form_without_an_origin_is_not_from_a_page_of_ours(
    app: PollConsumer, origin: str, host: str, status: int
) -> None:
    pages = DashboardEndpoint(app, lambda _: Visitor("ann", acts=True))
    body = b"token=site&what=nothing"
    headers = {"origin": origin, "host": host, "content-length": str(len(body))}
    assert by_wsgi(pages, "POST", "/act", "", headers, body) == status
