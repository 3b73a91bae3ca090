"""Messages and recurrences that requests send as JSON. Errors about them show no value of a payload."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pollconsumer.core import json_values
from pollconsumer.core.errors import BadData, PayloadTooLarge, retelling, suggestion
from pollconsumer.core.users_code import refusing
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.recurrences import PutOptions, given_put, instant_given
from pollconsumer.interface.api.registry import RegisteredHandler
from pollconsumer.interface.api.slips import check_arguments, refuse_handler
from pollconsumer.interface.api.store_calls import AppCalls
from pollconsumer.runtime.new_messages import SendOptions, new_message
from pollconsumer.store.recurrence_actions import Put

CALLBACKS = ("then", "failed")
"""Options that JSON cannot give, since their values are messages."""
OPTIONS = [name for name in SendOptions.__annotations__ if name not in CALLBACKS]
KEYS = ("handler", "payload", *(name.removesuffix("_") for name in OPTIONS))
"""The keys that a message in JSON may have."""
PUT_KEYS = tuple(PutOptions.__annotations__)
"""The keys that a recurrence in JSON may have."""


def enqueue_received(app: AppCalls, body: bytes) -> Handle[Any]:
    """Enqueue the message in ``body``. BadData if it is no message, if this process does not know its handler, or if
    its arguments do not fit. Raises the errors of `PollConsumer.enqueue`, too."""
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
    """The recurrence in ``body``, under ``name``. BadData if it is no recurrence, if this process does not know its
    handler, or if its payload does not fit."""
    options = _object_in(body, PUT_KEYS)
    known = _known(app, options["handler"])
    return given_put(name, known, app.defaults_of(options["handler"]), app.settings().namespace, app.codec, options)


def _check(app: AppCalls, handler: str, payload: dict[str, Any], options: dict[str, Any]) -> None:
    """Raise BadData if anything but the payload's values is wrong, and convert the option ``at`` to its type."""
    known = _known(app, handler)
    if known is not None:
        check_arguments(known, payload, options.get("retry"))
    if options.get("at") is not None:
        options["at"] = instant_given("at", options["at"])
    with retelling(TypeError, BadData):
        new_message(handler, {}, **options)  # its error may show a value, unlike one about the payload


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
