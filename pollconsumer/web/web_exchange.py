"""A request and its answer in a form that WSGI, ASGI, Lambda and Django share, and the conversions from and to each."""

from __future__ import annotations

import hmac
import json
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextvars import copy_context
from functools import partial
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.interface.api.store_calls import in_thread
from pollconsumer.interface.logs.logs import log

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Semaphore, Task


S = TypeVar("S")
RETRY_AFTER = 30
"""Seconds after which a client may repeat a request that failed temporarily."""
T = TypeVar("T")
BODY_WITHIN = 10.0
"""Seconds within which the body of a request must arrive."""
MOST_READ = 32
"""Number of bodies that are read at the same time. If there are more, the one that began first is given up. The body of
an honest client arrives within milliseconds."""
THREADS = 16
MOST_WAITING, MOST_BYTES = 256, 32 << 20
"""Maximum number of requests that have a thread or wait for one, and the total size of their bodies. Further clients
are asked to come again."""


class WebRequest(NamedTuple):
    """A request for ``path`` below ``mount``, the path of our application in a site. ``headers``: by name in lower
    case. ``read(n)``: returns the first ``n`` bytes of the body at most; TimeoutError or OSError if they do not come.
    ``source``: what the server gave: WSGI's environ, ASGI's scope, Django's request, or None."""

    method: str
    path: str
    headers: Mapping[str, str]
    read: Callable[[int], bytes]
    query: str = ""
    mount: str = ""
    source: Any = None


class WebAnswer(NamedTuple):
    """An answer, as a server sends it: the content ``body`` of the media type ``kind``."""

    status: int
    body: bytes
    kind: str
    further: tuple[tuple[str, str], ...] = ()
    """Further headers, besides those of every answer."""

    def headers(self) -> list[tuple[str, str]]:
        basic = [("Content-Type", self.kind), ("Content-Length", str(len(self.body)))]
        return [*basic, ("Cache-Control", "no-store"), *self.further]


def json_answer(status: int, json_fields: Mapping[str, Any], *further: tuple[str, str]) -> WebAnswer:
    return WebAnswer(status, json.dumps(json_fields).encode() + b"\n", "application/json", further)


def refusal(status: int, error: str, *further: tuple[str, str]) -> WebAnswer:
    """An answer that says what is wrong with the request."""
    return json_answer(status, {"error": error}, *further)


def failure(status: int, **json_fields: Any) -> WebAnswer:
    """An answer about an error on the server's side. With 503 it asks the client to come again later."""
    return json_answer(status, json_fields, *[("Retry-After", str(RETRY_AFTER))] * (status == 503))


def status_of(error: Exception, known: Mapping[type[PollConsumerError], S], otherwise: S) -> S:
    """The status that ``known`` has for the error's class, or for its nearest base class; else ``otherwise``."""
    return next((known[kind] for kind in type(error).__mro__ if kind in known), otherwise)


def equal_secrets(one: str, other: str) -> bool:
    """Whether two secrets are equal. The time of the comparison does not reveal where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def serve_wsgi(
    answer: Callable[[WebRequest], WebAnswer], environ: dict[str, Any], start_response: Callable[..., Any]
) -> list[bytes]:
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_") or name == "CONTENT_LENGTH"
    }

    def read(most: int) -> bytes:
        """Read at most the announced length: reading on would block, unless the server ends the input there."""
        ends, announced = environ.get("wsgi.input_terminated"), headers.get("content-length", "")
        size = int(announced) if announced.isascii() and announced.isdecimal() and len(announced) < 10 else 0
        read: bytes = environ["wsgi.input"].read(most if ends else min(most, size))
        return read

    path, query, mount = (environ.get(name, "") for name in ("PATH_INFO", "QUERY_STRING", "SCRIPT_NAME"))
    answered = answer(WebRequest(environ["REQUEST_METHOD"], path, headers, read, query, mount, environ))
    start_response(f"{answered.status} {HTTPStatus(answered.status).phrase}", answered.headers())
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [answered.body]  # not every server leaves it out


Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class AsgiApplication:
    """An ASGI application. It is an object, since servers take a bound method for an ASGI 2 application."""

    def __init__(
        self, answer: Callable[[WebRequest], WebAnswer], before_body: Callable[[WebRequest], WebAnswer | int]
    ) -> None:
        """``before_body``: the answer, if the request needs no body; else how many bytes of the body to read."""
        self._answer, self._before_body = answer, before_body
        self._free: WeakKeyDictionary[AbstractEventLoop, Semaphore] = WeakKeyDictionary()
        self._bodies: dict[Task[bytes], None] = {}
        """Tasks that read bodies, in the order of their start."""
        self._waiting = self._bytes = 0

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for phase in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{phase}.complete"})
        if scope["type"] != "http":
            return
        answered = await self._answered(scope, receive)
        given = [(name.lower().encode(), value.encode()) for name, value in answered.headers()]
        await send({"type": "http.response.start", "status": answered.status, "headers": given})
        await send({"type": "http.response.body", "body": answered.body})

    async def _answered(self, scope: Mapping[str, Any], receive: Receive) -> WebAnswer:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        mount = scope.get("root_path", "")
        path, query = scope["path"].removeprefix(mount), scope.get("query_string", b"").decode("latin-1")
        request, body = WebRequest(scope["method"], path, headers, lambda _: b"", query, mount, scope), b""
        try:
            if request.method in ("POST", "PUT"):
                found = await self._in_thread(self._before_body, request)
                if not isinstance(found, int):
                    return found
                try:
                    body = await self._read_ahead(receive, found)
                except OSError:
                    request = request._replace(read=_not_read)
                else:
                    request = request._replace(read=lambda most: body[:most])
            return await self._in_thread(self._answer, request, len(body))
        except _TooManyError as error:
            return failure(503, error=str(error))

    async def _in_thread(self, call: Callable[[WebRequest], T], request: WebRequest, size: int = 0) -> T:
        """Run ``call`` in a thread once one is free, and return its result. ``size``: bytes of the request's body."""
        import asyncio  # neither WSGI nor a launch needs it

        answering = partial(copy_context().run, call, request)  # a site's `visitor` may use context variables
        free = self._free.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(THREADS))

        def leave() -> None:
            self._waiting, self._bytes = self._waiting - 1, self._bytes - size

        def end(_: object = None) -> None:
            leave()
            free.release()

        if self._waiting >= MOST_WAITING or self._bytes + size > MOST_BYTES:
            raise _TooManyError("too many requests at one time")
        self._waiting, self._bytes = self._waiting + 1, self._bytes + size
        try:
            await free.acquire()
        except BaseException:  # the server gives up the request
            leave()
            raise
        try:
            answered = in_thread("web request", answering)
        except RuntimeError as error:
            end()
            raise _TooManyError(str(error)) from None
        answered.add_done_callback(end)
        return await asyncio.shield(answered)  # the thread goes on if the server gives up the request

    async def _read_ahead(self, receive: Receive, most: int) -> bytes:
        """The first ``most`` bytes of the body. OSError if they do not arrive in time."""
        import asyncio

        if not most:
            return b""
        reading = asyncio.ensure_future(asyncio.wait_for(_body(receive, most), BODY_WITHIN))
        self._bodies[reading] = None
        if len(self._bodies) > MOST_READ:
            slowest = next(iter(self._bodies))
            del self._bodies[slowest]
            slowest.get_loop().call_soon_threadsafe(slowest.cancel)
        try:
            await asyncio.wait([reading])
        finally:
            self._bodies.pop(reading, None)
            reading.cancel()
        if reading.cancelled():
            raise TimeoutError
        return reading.result()


class _TooManyError(Exception):
    """Too many requests are waiting or being answered, or the system refuses another thread."""


def _not_read(_: int) -> bytes:
    raise ConnectionError


async def _body(receive: Receive, most: int) -> bytes:
    parts, size, more = list[bytes](), 0, True
    while more and size < most:
        part = await receive()
        if part["type"] == "http.disconnect":
            raise ConnectionError
        parts.append(part.get("body", b""))
        size, more = size + len(parts[-1]), part.get("more_body", False)
    return b"".join(parts)[:most]


def serve_lambda(
    answer: Callable[[WebRequest, float], WebAnswer], event: Mapping[str, Any], context: Any
) -> dict[str, Any]:
    """The response for Lambda. ``context``: Lambda's object that says how much time is left; None for no limit. An
    event that is no HTTP request is answered with 400, and logged, since a scheduler may ignore the answer."""
    left = inf if context is None else context.get_remaining_time_in_millis() / 1000
    try:
        request = _request_of(event)
    except (AttributeError, KeyError, TypeError, ValueError):
        json_fields = "no event of a function URL, or of an HTTP API with payload format 2.0"
        log.warning("web: %s", json_fields)
        answered = refusal(400, json_fields)
    else:
        answered = answer(request, left)
    return {"statusCode": answered.status, "headers": dict(answered.headers()), "body": answered.body.decode()}


def _request_of(event: Mapping[str, Any]) -> WebRequest:
    """The request in ``event``. AttributeError, KeyError, TypeError or ValueError if it has another form."""
    method, path = event["requestContext"]["http"]["method"], unquote(event["rawPath"])
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    body, query = event.get("body") or "", event.get("rawQueryString") or ""
    for text in (method, path, query, *headers, *headers.values()):
        text.encode()  # unpaired surrogates are refused
    content = b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
    return WebRequest(method, path, headers, lambda most: content[:most], query)
