"""A message that a request sends, as a JSON object with the keys of a line of ``enqueue --ndjson``."""

from __future__ import annotations

from typing import Any

from pollconsumer.core import json_values
from pollconsumer.core.errors import BadData, PayloadTooLarge, suggestion
from pollconsumer.core.notation.instants import datetime_of, read_instant
from pollconsumer.core.users_code import refusing
from pollconsumer.interface.api.app_calls import AppCalls
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.slips import check_arguments, check_retry, refuse_handler
from pollconsumer.runtime.new_messages import SendOptions, new_message

CALLBACKS = ("then", "failed")
"""Options whose values are no JSON."""
OPTIONS = [name for name in SendOptions.__annotations__ if name not in CALLBACKS]
KEYS = ("handler", "payload", *(name.removesuffix("_") for name in OPTIONS))


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
