"""What requests send, as JSON: messages, and recurrences. The error for what is refused has no value of a payload."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pollconsumer.core import json_values
from pollconsumer.core.errors import BadData, PayloadTooLarge, suggestion
from pollconsumer.core.notation.instants import given_instant
from pollconsumer.core.users_code import refusing
from pollconsumer.interface.api.app_calls import AppCalls
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.recurrences import PutOptions, encoded_put, new_put
from pollconsumer.interface.api.registry import RegisteredHandler
from pollconsumer.interface.api.slips import check_arguments, check_retry, refuse_handler
from pollconsumer.runtime.new_messages import SendOptions, new_message
from pollconsumer.store.recurrence_actions import Put

CALLBACKS = ("then", "failed")
"""Options whose values are no JSON."""
OPTIONS = [name for name in SendOptions.__annotations__ if name not in CALLBACKS]
KEYS = ("handler", "payload", *(name.removesuffix("_") for name in OPTIONS))
"""The keys of a message."""
PUT_KEYS = tuple(PutOptions.__annotations__)
"""The keys of a recurrence."""


def enqueue_received(app: AppCalls, body: bytes) -> Handle[Any]:
    """Enqueue the message in ``body``. BadData for what is none, for a handler that this process does not know, and for
    arguments that do not fit it. Other errors as of `PollConsumer.enqueue`."""
    entry = _object_in(body, KEYS)
    options: dict[str, Any] = {"in_" if name == "in" else name: value for name, value in entry.items()}
    handler, payload = options.pop("handler"), options.pop("payload", {})
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


def received_put(app: AppCalls, name: str, body: bytes) -> Put:
    """The recurrence in ``body``, to be put as ``name``. BadData for what is none, for a handler that this process does
    not know, and for a payload that does not fit it."""
    options = _object_in(body, PUT_KEYS)
    known = _known(app, options["handler"])
    for key, words in (("first", ("now", "next")), ("until", ())):
        if (value := options.get(key)) is not None and value not in words:
            options[key] = _instant(key, value)
    try:
        put = new_put(name, known, app.defaults_of(options["handler"]), app.settings().namespace, **options)
    except TypeError as error:
        raise BadData(str(error)) from None
    with refusing("codec", name, "encode"):
        return encoded_put(put, app.codec)


def _check(app: AppCalls, handler: str, payload: dict[str, Any], options: dict[str, Any]) -> None:
    """Raise BadData for what is wrong beside the values of the payload, and give ``at`` its type."""
    known = _known(app, handler)
    if known is not None:
        check_arguments(known, payload)
        check_retry(known, options.get("retry"))
    if options.get("at") is not None:
        options["at"] = _instant("at", options["at"])
    try:
        new_message(handler, {}, **options)  # what is wrong with an option is told, unlike a value of the payload
    except TypeError as error:
        raise BadData(str(error)) from None


def _known(app: AppCalls, handler: str) -> RegisteredHandler | None:
    """The handler of that name; None for a program. BadData for one that this process does not know."""
    known = app.known(handler)
    if known is None and handler not in (programs := app.settings().commands):
        refuse_handler(handler, {*app.handlers, *programs}, fix="")
    return known


def _instant(key: str, value: object) -> Any:
    try:
        return given_instant(value)
    except ValueError as error:
        raise BadData(key, value, str(error)) from None


def _object_in(body: bytes, keys: Collection[str]) -> dict[str, Any]:
    """The JSON object in ``body``, which has a handler, and no other than these keys."""
    try:
        value = json_values.parse(body)
    except ValueError:  # its text has parts of the body
        raise BadData("body", None, "must be JSON, in UTF-8") from None
    if not isinstance(value, dict):
        raise BadData("body", None, "must be a JSON object, with handler and payload")
    if unknown := [name for name in value if name not in keys]:
        raise BadData("unknown key", unknown[0], suggestion(unknown[0], keys))
    if not isinstance(value.get("handler"), str):
        raise BadData("handler", None, "give one, as text")
    return value
