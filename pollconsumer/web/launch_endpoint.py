"""The endpoint: routes, errors as statuses, limits; and its forms for WSGI, ASGI and AWS Lambda."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Literal, NamedTuple, TypeVar

from pollconsumer.core import json_values
from pollconsumer.core.errors import (
    BadData,
    Conflict,
    NotFound,
    PayloadTooLarge,
    PollConsumerError,
    StoreUnreachable,
    UsageError,
    suggestion,
)
from pollconsumer.core.messages.payloads import MAX_PAYLOAD_BYTES
from pollconsumer.core.notation.instants import datetime_of, read_instant
from pollconsumer.core.users_code import refusing
from pollconsumer.interface.api.app import PollConsumer, calls_of
from pollconsumer.interface.api.app_calls import AppCalls
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.slips import check_arguments, check_retry, refuse_handler
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.settings.model import WebSettings
from pollconsumer.runtime.launch.pings import USER_AGENT
from pollconsumer.runtime.new_messages import SendOptions, new_message
from pollconsumer.web.launch_starter import LaunchStarter
from pollconsumer.web.web_exchange import (
    AsgiApplication,
    WebAnswer,
    WebRequest,
    equal_secrets,
    failure,
    refusal,
    serve_lambda,
    serve_wsgi,
    status_of,
)

A = TypeVar("A", WebAnswer, WebAnswer | None)
STATUS: dict[type[PollConsumerError], int] = {
    PayloadTooLarge: 413,
    Conflict: 409,
    BadData: 400,
    UsageError: 400,
    NotFound: 404,
    StoreUnreachable: 503,
}
SCHEME = "bearer "
TokenName = Literal["token", "enqueue_token"]
"""The setting that a request's token is compared with."""
CALLBACKS = ("then", "failed")
"""Options whose values are no JSON."""
OPTIONS = [name for name in SendOptions.__annotations__ if name not in CALLBACKS]
KEYS = ("handler", "payload", *(name.removesuffix("_") for name in OPTIONS))


class _Route(NamedTuple):
    """What a request asks for. ``reads``: how many bytes of its body, at most."""

    act: Callable[[], WebAnswer]
    reads: int = 0


class LaunchEndpoint:
    """A WSGI application. ``/launch`` starts a launch and answers with its outcome; ``/messages`` enqueues the message
    that is posted; ``/messages/ID`` tells the state of one. They may stand below any path.

    ``asgi`` is the same as an ASGI application, ``aws`` as a handler of AWS Lambda. Tokens, and how long a request may
    last, are the settings of ``[web]``.
    """

    asgi: AsgiApplication
    """The endpoint as an ASGI application, under asyncio."""

    def __init__(self, app: PollConsumer) -> None:
        self._calls, self._starter = calls_of(app), LaunchStarter(app)
        self.asgi = AsgiApplication(self.answer, self._before_body)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        return serve_wsgi(self.answer, environ, start_response)

    def aws(self, event: Mapping[str, Any], context: Any = None) -> dict[str, Any]:
        """The endpoint as a handler of AWS Lambda, for events of function URLs and of HTTP APIs (payload 2.0)."""
        return serve_lambda(self.answer, event, context)

    def answer(self, request: WebRequest, within: float = inf) -> WebAnswer:
        """The answer to a request, for a server of another kind. ``within``: seconds after which that gives it up, if
        they are less than the budget."""
        found = self._route_of(request, within)
        return found if isinstance(found, WebAnswer) else self._answered(found.act)

    def _before_body(self, request: WebRequest) -> WebAnswer | int:
        """The answer to a request that is refused, else how many bytes of its body are read."""
        found = self._route_of(request)
        return found if isinstance(found, WebAnswer) else found.reads

    def _route_of(self, request: WebRequest, within: float = inf) -> WebAnswer | _Route:
        """What a request asks for, if it may: by its path, its method and its token."""
        *_, before, last = ("", *request.path.split("/"))
        if before == "messages":
            return self._allowed(request, "GET", "enqueue_token", _Route(lambda: self._tell(last)))
        if last == "messages":
            enqueue = _Route(lambda: self._enqueue(request), MAX_PAYLOAD_BYTES + 1)
            return self._allowed(request, "POST", "enqueue_token", enqueue)
        if last == "launch":
            # Whether a program of ours asks for a launch on demand, and no scheduler.
            of_producer = request.headers.get("user-agent") == USER_AGENT
            launch = _Route(lambda: self._starter.start(within, of_producer=of_producer))
            return self._allowed(request, "GET, POST", "token", launch)
        return refusal(404, "there are /launch, /messages and /messages/ID")

    def _allowed(self, request: WebRequest, methods: str, token: TokenName, found: _Route) -> WebAnswer | _Route:
        if request.method not in methods.split(", "):
            return refusal(405, f"allowed here: {methods}", ("Allow", methods))
        return self._answered(lambda: _refused(request, self._calls.settings().web, token)) or found

    def _answered(self, act: Callable[[], A]) -> A | WebAnswer:
        """What ``act`` returns, or the answer about its error."""
        try:
            return act()
        except PollConsumerError as error:
            status = status_of(error, STATUS, 500)
            if status < 500:
                return refusal(status, str(error))
            log.warning("web: %s", error)  # it may name a host or a path, which are not told
            away = "the store does not answer; repeat the request, with the same id"
            return failure(status, error=away if status == 503 else "refused by the configuration; see the log")

    def _enqueue(self, request: WebRequest) -> WebAnswer:
        try:
            body = _body(request)
        except OSError:  # a TimeoutError is one
            return refusal(408, "the request body did not arrive")
        handle = enqueue_received(self._calls, body)
        return WebAnswer(202, {"id": handle.id, "duplicate": handle.duplicate})

    def _tell(self, message_id: str) -> WebAnswer:
        message = self._calls.look(None, message_id)
        names = {"id": message.id, "queue": message.queue, "handler": message.handler}
        return WebAnswer(200, names | {"state": message.state, "attempts": message.attempts})


def _body(request: WebRequest) -> bytes:
    """The body. BadData for one of an invalid length, or longer than a payload may be."""
    announced = request.headers.get("content-length") or "0"
    if not (announced.isascii() and announced.isdecimal()):
        raise BadData("Content-Length", None, "must be a number")
    if len(announced) < 10 and int(announced) <= MAX_PAYLOAD_BYTES:
        body = request.read(MAX_PAYLOAD_BYTES + 1)
        if len(body) <= MAX_PAYLOAD_BYTES:
            return body
    raise PayloadTooLarge("body", None, f"at most {MAX_PAYLOAD_BYTES} bytes")


def _refused(request: WebRequest, settings: WebSettings, name: TokenName) -> WebAnswer | None:
    """The answer to a request without the token that it needs; None if it may go on."""
    if name == "token" and _is_of_app_engine(request):
        return None
    token: str | None = getattr(settings, name)
    if token is None:
        return refusal(403, f"web.{name} is unset: every request is refused; set it, or its variable")
    given = request.headers.get("authorization", "")
    if given[: len(SCHEME)].lower() == SCHEME and equal_secrets(given[len(SCHEME) :].strip(), token):
        return None
    return refusal(401, f"send the header Authorization: Bearer, with web.{name}", ("WWW-Authenticate", "Bearer"))


def _is_of_app_engine(request: WebRequest) -> bool:
    """Whether App Engine's cron sends the request. There, a header of that name is taken from all other requests;
    anywhere else, anybody may send it."""
    here = os.environ.get("GAE_ENV", "").startswith("standard")
    return here and request.headers.get("x-appengine-cron") == "true"


def enqueue_received(app: AppCalls, body: bytes) -> Handle[Any]:
    """Enqueue the message in ``body``. BadData for what is none, for a handler that this process does not know, and for
    arguments that do not fit it; its text has no value of the payload. Other errors as of `PollConsumer.enqueue`."""
    entry = _object_in(body)
    if unknown := [name for name in entry if name not in KEYS]:
        raise BadData("unknown key", unknown[0], suggestion(unknown[0], KEYS))
    options: dict[str, Any] = {"in_" if name == "in" else name: value for name, value in entry.items()}
    handler, payload = options.pop("handler", None), options.pop("payload", {})
    if not isinstance(handler, str):
        raise BadData("handler", None, "give one, as text")
    if not isinstance(payload, dict):
        raise BadData("payload", None, "must be a JSON object")
    _check(app, handler, payload, options)
    try:
        message = app.new_message(handler, payload, **options)
    except PayloadTooLarge:
        raise
    except (BadData, TypeError):
        raise BadData("payload", None, "has a value that cannot be stored, or is no rate key") from None
    with refusing("message", handler, "a hook or the codec"):
        return app.enqueue_one(message)


def _check(app: AppCalls, handler: str, payload: dict[str, Any], options: dict[str, Any]) -> None:
    """Raise BadData for what is wrong beside the values of the payload, and give ``at`` its type."""
    known = app.known(handler)
    if known is not None:
        check_arguments(known, payload)
        check_retry(known, options.get("retry"))
    elif handler not in (programs := app.settings().commands):
        refuse_handler(handler, {*app.handlers, *programs}, fix="")
    if options.get("at") is not None:
        try:
            options["at"] = datetime_of(read_instant(str(options["at"])))
        except ValueError as error:
            raise BadData("at", options["at"], str(error)) from None
    try:
        new_message(handler, {}, **options)  # what is wrong with an option is told, unlike a value of the payload
    except TypeError as error:
        raise BadData(str(error)) from None


def _object_in(body: bytes) -> dict[str, Any]:
    try:
        value = json_values.parse(body)
    except ValueError:  # its text has parts of the body
        raise BadData("body", None, "must be JSON, in UTF-8") from None
    if not isinstance(value, dict):
        raise BadData("body", None, "must be a JSON object, with handler and payload")
    return value
