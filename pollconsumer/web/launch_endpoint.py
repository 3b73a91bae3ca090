"""The endpoint: routes, errors as statuses, limits; the messages and recurrences that requests send as JSON; and its
variants for WSGI, ASGI and AWS Lambda. Errors about what a request sends show no value of a payload."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import parse_qs

from pollconsumer.core import json_values
from pollconsumer.core.errors import (
    BadData,
    Conflict,
    NotFound,
    PayloadTooLarge,
    PollConsumerError,
    QueueFull,
    StoreUnreachable,
    UsageError,
    retelling,
    suggestion,
)
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import check_queue
from pollconsumer.core.messages.payloads import MAX_PAYLOAD_BYTES
from pollconsumer.core.users_code import refusing
from pollconsumer.interface.api.app import PollConsumer, calls_of
from pollconsumer.interface.api.described import describe, describe_recurrence, log_as_json
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.recurrences import PutOptions, decoded_status, given_put, instant_given
from pollconsumer.interface.api.registry import RegisteredHandler
from pollconsumer.interface.api.slips import check_arguments, refuse_handler
from pollconsumer.interface.api.store_calls import AppCalls
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.settings.model import WebSettings
from pollconsumer.runtime.launch.pings import USER_AGENT
from pollconsumer.runtime.new_messages import JSON_KEYS, new_message
from pollconsumer.store.audit_log import acting_as
from pollconsumer.store.recurrence_actions import Put
from pollconsumer.store.store import Store
from pollconsumer.web.launch_starter import LaunchStarter
from pollconsumer.web.web_exchange import (
    RETRY_AFTER,
    AsgiApplication,
    WebAnswer,
    WebRequest,
    equal_secrets,
    failure,
    json_answer,
    refusal,
    serve_lambda,
    serve_wsgi,
    status_of,
)

A = TypeVar("A", WebAnswer, WebAnswer | None)


class _BodyNotArrivedError(PollConsumerError):
    """A request's body did not arrive."""


STATUS: dict[type[PollConsumerError], int] = {
    _BodyNotArrivedError: 408,
    PayloadTooLarge: 413,
    Conflict: 409,
    BadData: 400,
    UsageError: 400,
    NotFound: 404,
    QueueFull: 429,
    StoreUnreachable: 503,
}
PUT_KEYS = tuple(PutOptions.__annotations__)
"""The keys that a recurrence in JSON may have."""
SCHEME = "bearer "
TokenName = Literal["token", "enqueue_token", "manage_token"]
"""The setting that a request's token must equal."""
STATE = ("id", "queue", "handler", "state", "attempts")
"""The fields of a message that its sender may read; `DETAILS`: those that only a manager may read, too."""
DETAILS = ("created_by", "last_error", "result", "progress", "log", "timestamps", "durations")
WHO = "web"
"""The name in the audit log for everybody who has the ``manage_token``."""


class _Route(NamedTuple):
    """What a request asks for. ``tokens``: it must send one of these. ``reads``: bytes of its body to read at most."""

    tokens: tuple[TokenName, ...]
    act: Callable[[], WebAnswer]
    reads: int = 0


class LaunchEndpoint:
    """A WSGI application. ``/launch`` starts a launch, and answers with its outcome. ``/messages`` enqueues the message
    that is posted. ``/messages/ID`` shows a message or cancels it, and ``/messages/ID/rerun`` runs it again.
    ``/recurrences/NAME`` puts, shows or removes a recurrence. Any path may precede these.

    ``asgi``: the same as an ASGI application. ``aws``: the same as a handler of AWS Lambda. The settings in ``[web]``
    give the tokens, and how long a request may last."""

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
        """The answer to a request at another kind of server. ``within``: seconds after which that server gives up the
        request, if less than the budget."""
        found = self._route_of(request, within)
        return found if isinstance(found, WebAnswer) else self._answered(found.act)

    def _before_body(self, request: WebRequest) -> WebAnswer | int:
        """The answer, if the request is refused without its body; otherwise how many bytes of the body to read."""
        found = self._route_of(request)
        return found if isinstance(found, WebAnswer) else found.reads

    def _route_of(self, request: WebRequest, within: float = inf) -> WebAnswer | _Route:
        """What a request asks for, by its path, method and token. If it is refused: the answer that says why."""
        routes = self._routes_at(request, within)
        if not routes:
            return refusal(404, "there are /launch, /messages, /messages/ID, /messages/ID/rerun and /recurrences/NAME")
        found = routes.get(request.method)
        if found is None:
            methods = ", ".join(routes)
            return refusal(405, f"allowed here: {methods}", ("Allow", methods))
        return self._answered(lambda: _refused(request, self._calls.settings().web, found.tokens)) or found

    def _routes_at(self, request: WebRequest, within: float) -> dict[str, _Route]:
        """The routes at a request's path, by method."""
        *_, above, before, last = ("", "", *request.path.split("/"))
        if before == "messages":
            return {
                "GET": _Route(("enqueue_token", "manage_token"), lambda: self._answer_state(request, last)),
                "DELETE": _Route(("manage_token",), lambda: self._cancel(request, last)),
            }
        if (above, last) == ("messages", "rerun"):
            return {"POST": _Route(("manage_token",), lambda: self._rerun(request, before))}
        if before == "recurrences":
            return {
                "GET": _Route(
                    ("manage_token",), lambda: json_answer(200, self._calls.ask(self._recurrence_answer(last)))
                ),
                "PUT": _Route(("manage_token",), lambda: self._put(request, last), MAX_PAYLOAD_BYTES + 1),
                "DELETE": _Route(("manage_token",), lambda: self._remove(last)),
            }
        if last == "messages":
            return {"POST": _Route(("enqueue_token",), lambda: self._enqueue(request), MAX_PAYLOAD_BYTES + 1)}
        if last == "launch":
            # Whether one of our programs asks for a launch on demand, rather than a scheduler.
            by_producer = request.headers.get("user-agent") == USER_AGENT
            launch = _Route(("token",), lambda: self._starter.start(within, by_producer=by_producer))
            return {"GET": launch, "POST": launch}
        return {}

    def _answered(self, act: Callable[[], A]) -> A | WebAnswer:
        """The return value of ``act``, or the answer about the error that it raises."""
        try:
            return act()
        except PollConsumerError as error:
            status = status_of(error, STATUS, 500)
            if status < 500:
                again = [("Retry-After", str(RETRY_AFTER))] if status == 429 else []
                return refusal(status, str(error), *again)
            log.warning("web: %s", error)  # its text may name a host or a path, which a client must not see
            away = "the store does not answer; repeat the request, with the same id"
            return failure(status, error=away if status == 503 else "refused by the configuration; see the log")

    def _enqueue(self, request: WebRequest) -> WebAnswer:
        handle = enqueue_received(self._calls, _body(request))
        return json_answer(202, {"id": handle.id, "duplicate": handle.duplicate})

    def _answer_state(self, request: WebRequest, message_id: str) -> WebAnswer:
        """Answer with the state of a message; to a manager of messages also with its times, error and result."""
        manages = _has(request, self._calls.settings().web, "manage_token")
        message = self._calls.look(_queue_of(request), message_id)
        message_fields = describe(message) | {"log": log_as_json(message)}
        return json_answer(200, {name: message_fields[name] for name in (*STATE, *(DETAILS if manages else ()))})

    def _cancel(self, request: WebRequest, message_id: str) -> WebAnswer:
        queue = _queue_of(request)

        def cancel(store: Store) -> dict[str, Any]:
            having = store.inspector.message(message_id, queue).queue
            store.actions.cancel(having, message_id)
            return {"id": message_id, "queue": having, "state": State.CANCELLED}

        return self._done(cancel)

    def _rerun(self, request: WebRequest, message_id: str) -> WebAnswer:
        queue = _queue_of(request)

        def rerun(store: Store) -> dict[str, Any]:
            having = store.inspector.message(message_id, queue).queue
            again = store.rerun(having, message_id)
            return {"id": again, "queue": having, "rerun_of": message_id}

        return self._done(rerun)

    def _recurrence_answer(self, name: str) -> Callable[[Store], dict[str, Any]]:
        codec = self._calls.codec
        return lambda store: describe_recurrence(decoded_status(store.recurrences.find(name), codec))

    def _put(self, request: WebRequest, name: str) -> WebAnswer:
        put, answer_of = received_put(self._calls, name, _body(request)), self._recurrence_answer(name)

        def do(store: Store) -> dict[str, Any]:
            store.recurrences.put([put])
            return answer_of(store)

        return self._done(do)

    def _remove(self, name: str) -> WebAnswer:
        def remove(store: Store) -> dict[str, Any]:
            store.recurrences.remove(name)
            return {"name": name, "removed": True}

        return self._done(remove)

    def _done(self, act: Callable[[Store], dict[str, Any]]) -> WebAnswer:
        """Call ``act`` for the store, and answer with its result; 409 if the present state does not allow it."""
        try:
            with acting_as(WHO):
                return json_answer(200, self._calls.ask(act))
        except BadData as error:
            return refusal(409, str(error))


def _queue_of(request: WebRequest) -> str | None:
    """The queue that a request names; None if it names none. Two queues may have a message of one id."""
    given = parse_qs(request.query).get("queue")
    return None if given is None else check_queue(given[0])


def _body(request: WebRequest) -> bytes:
    """The body of a request. BadData if its length is invalid or exceeds a payload's; `_BodyNotArrivedError`."""
    announced = request.headers.get("content-length") or "0"
    if not (announced.isascii() and announced.isdecimal()):
        raise BadData("Content-Length", None, "must be a number")
    if len(announced) < 10 and int(announced) <= MAX_PAYLOAD_BYTES:
        try:
            body = request.read(MAX_PAYLOAD_BYTES + 1)
        except OSError:  # a TimeoutError is one
            raise _BodyNotArrivedError("the request body did not arrive") from None
        if len(body) <= MAX_PAYLOAD_BYTES:
            return body
    raise PayloadTooLarge("body", None, f"at most {MAX_PAYLOAD_BYTES} bytes")


def _refused(request: WebRequest, settings: WebSettings, names: tuple[TokenName, ...]) -> WebAnswer | None:
    """The answer to a request without one of the tokens ``names``; None with one, or from App Engine for ``token``."""
    if any(_has(request, settings, name) for name in names) or ("token" in names and _is_of_app_engine(request)):
        return None
    those = " or ".join(f"web.{name}" for name in names)
    if not any(getattr(settings, name) for name in names):
        return refusal(403, f"{those} is unset: every such request is refused; set it, or its variable")
    return refusal(401, f"send the header Authorization: Bearer, with {those}", ("WWW-Authenticate", "Bearer"))


def _has(request: WebRequest, settings: WebSettings, name: TokenName) -> bool:
    """Whether the token ``name`` is set, and the request sends it."""
    token: str | None = getattr(settings, name)
    given = request.headers.get("authorization", "")
    return (
        token is not None
        and given[: len(SCHEME)].lower() == SCHEME
        and equal_secrets(given[len(SCHEME) :].strip(), token)
    )


def _is_of_app_engine(request: WebRequest) -> bool:
    """Whether App Engine's cron sent the request, by a header. App Engine removes that header from all other requests;
    elsewhere anybody could send it."""
    here = os.environ.get("GAE_ENV", "").startswith("standard")
    return here and request.headers.get("x-appengine-cron") == "true"


def enqueue_received(app: AppCalls, body: bytes) -> Handle[Any]:
    """Enqueue the message that ``body`` holds as JSON. BadData if ``body`` holds none, if no handler here has the
    message's handler name, or if its payload does not fit. Raises the errors of `PollConsumer.enqueue`, too."""
    entry = _object_in(body, JSON_KEYS)
    options: dict[str, Any] = {"in_" if name == "in" else name: value for name, value in entry.items()}
    handler, payload = options.pop("handler"), options.pop("payload", {})
    if not isinstance(payload, dict):
        raise BadData("payload", None, "must be a JSON object")
    if (known := _known(app, handler)) is not None:
        check_arguments(known, payload, options.get("retry"))
    if options.get("at") is not None:
        options["at"] = instant_given("at", options["at"])
    with retelling(TypeError, BadData):
        new_message(handler, {}, **options)  # its error may show a value, unlike one about the payload
    try:
        message = app.new_message(handler, payload, **options)
    except PayloadTooLarge:
        raise
    except (BadData, TypeError):
        raise BadData("payload", None, "has a value that cannot be stored, or is no rate key") from None
    with refusing("message", handler, "a hook or the codec"):
        return app.enqueue_one(message)


def received_put(app: AppCalls, name: str, body: bytes) -> Put:
    """The recurrence ``name`` that ``body`` defines as JSON. BadData if ``body`` defines none, if no handler here has
    the name that it gives, or if its payload does not fit."""
    options = _object_in(body, PUT_KEYS)
    known = _known(app, options["handler"])
    return given_put(name, known, app.defaults_of(options["handler"]), app.settings().namespace, app.codec, options)


def _known(app: AppCalls, handler: str) -> RegisteredHandler | None:
    """The handler of that name. None for a program. BadData if this process does not know it."""
    known = app.known(handler)
    if known is None and handler not in (programs := app.settings().commands):
        refuse_handler(handler, {*app.handlers, *programs}, fix="")
    return known


def _object_in(body: bytes, keys: Collection[str]) -> dict[str, Any]:
    """The JSON object in ``body``. BadData unless it has a handler, and only these ``keys``."""
    try:
        value = json_values.parse(body)
    except ValueError:  # the error's text has parts of the body
        raise BadData("body", None, "must be JSON, in UTF-8") from None
    if not isinstance(value, dict):
        raise BadData("body", None, "must be a JSON object, with handler and payload")
    if unknown := [name for name in value if name not in keys]:
        raise BadData("unknown key", unknown[0], suggestion(unknown[0], keys))
    if not isinstance(value.get("handler"), str):
        raise BadData("handler", None, "give one, as text")
    return value
