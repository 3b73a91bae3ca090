"""docs/reference/openapi.json: what requests the endpoint takes and how it answers them, made from the options that
messages and recurrences have, and from the keys of ``--json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Required, Union, get_args, get_origin, get_type_hints

from pollconsumer.interface.api.recurrences import PutOptions
from pollconsumer.runtime.new_messages import JSON_KEYS, SendOptions
from pollconsumer.web.launch_endpoint import DETAILS, STATE
from tests.interface.json_page import keys_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.interface.json_page import Key

TEXT, WHOLE, NUMBER, SWITCH, OBJECT = ({"type": each} for each in ("string", "integer", "number", "boolean", "object"))
INSTANT = {"type": "string", "format": "date-time"}
OF_KINDS: dict[str, dict[str, Any]] = {
    "text": TEXT, "instant": INSTANT, "whole number": WHOLE, "bytes": WHOLE, "number": NUMBER, "seconds": NUMBER,
    "true or false": SWITCH, "true, false or text": {"type": ["boolean", "string"]}, "object": OBJECT, "any": {},
}  # fmt: skip
"""The schema of each type of `json_page.KINDS`."""
OF_TYPES: dict[Any, list[dict[str, Any]]] = {
    str: [TEXT], int: [WHOLE], float: [NUMBER], bool: [SWITCH], NoneType: [{"type": "null"}], timedelta: [],
    datetime: [INSTANT, NUMBER | {"description": "Seconds since the epoch."}], Any: [{}],
}  # fmt: skip
ERRORS = {
    400: "The request is invalid, or two queues have a message of that id: name its queue.",
    401: "The token is missing or wrong.",
    403: "The token is unset: every such request is refused.",
    404: "There is none.",
    408: "The body did not arrive.",
    409: "It cannot be done as things are.",
    413: "The body is longer than 1 MiB.",
    429: "The queue is full: repeat the request later.",
    500: "The configuration, or the store, is refused.",
    503: "The store does not answer: repeat the request.",
}
TOKENS = {
    "token": "`web.token` of the configuration",
    "enqueue_token": "`web.enqueue_token` of the configuration",
    "manage_token": "`web.manage_token` of the configuration",
}
ID = {"name": "id", "in": "path", "required": True, "schema": TEXT, "description": "Id of the message."}
NAME = {"name": "name", "in": "path", "required": True, "schema": TEXT, "description": "Name of the recurrence."}
QUEUE = {"name": "queue", "in": "query", "schema": TEXT, "description": "Its queue, if two have a message of that id."}


def openapi() -> dict[str, Any]:
    launch = {
        200: ("The launch has ended, or another one works.", "Launch"),
        202: ("The launch goes on.", "Launch"),
        500: ("The launch was refused, or has failed.", "LaunchError"),
        503: ("The launch could not go on: repeat the request.", "LaunchError"),
    }
    starts = _operation("Start a launch, and wait for its end", ["token"], launch, {401, 403})
    message, recurrence = {"parameters": [ID, QUEUE]}, {"parameters": [NAME]}
    told: dict[int, tuple[str, str]] = {200: ("What is known of it.", "Message")}
    stands: dict[int, tuple[str, str]] = {200: ("The recurrence as it stands.", "Recurrence")}
    paths = {
        "/launch": {"get": starts, "post": starts},
        "/messages": {
            "post": _operation(
                "Enqueue a message", ["enqueue_token"], {202: ("It is accepted.", "Accepted")},
                {400, 401, 403, 408, 409, 413, 429, 500, 503}, "NewMessage",
            ),
        },
        "/messages/{id}": message | {
            "get": _operation(
                "Tell the state of a message; with the token for managing, its times, error and result, too",
                ["enqueue_token", "manage_token"], told, {400, 401, 403, 404, 500, 503},
            ),
            "delete": _operation(
                "Cancel a message that is scheduled or ready", ["manage_token"],
                {200: ("It is cancelled.", "Cancelled")}, {400, 401, 403, 404, 409, 500, 503},
            ),
        },
        "/messages/{id}/rerun": message | {
            "post": _operation(
                "Run a message that has ended once more, as a new message", ["manage_token"],
                {200: ("The new message is accepted.", "Rerun")}, {400, 401, 403, 404, 409, 429, 500, 503},
            ),
        },
        "/recurrences/{name}": recurrence | {
            "get": _operation("Tell of a recurrence", ["manage_token"], stands, {401, 403, 404, 500, 503}),
            "put": _operation(
                "Add a recurrence, or change the one of that name", ["manage_token"], stands,
                {400, 401, 403, 408, 409, 413, 500, 503}, "NewRecurrence",
            ),
            "delete": _operation(
                "Remove a recurrence", ["manage_token"],
                {200: ("It is removed; what it has enqueued stays.", "Removed")}, {401, 403, 404, 500, 503},
            ),
        },
    }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {"title": "pollconsumer", "version": "1", "license": {"name": "MIT", "identifier": "MIT"}},
        "servers": [{"url": "/queue", "description": "The path below which the site has the endpoint."}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": said} for name, said in TOKENS.items()
            },
            "schemas": schemas(),
        },
    }


def _operation(
    does: str, tokens: list[str], answers: dict[int, tuple[str, str]], errors: Iterable[int], takes: str = ""
) -> dict[str, Any]:
    given = answers | {status: (ERRORS[status], "Error") for status in errors if status not in answers}
    body = {"requestBody": {"required": True, "content": _content(takes)}} if takes else {}
    responses = {
        str(status): {"description": said, "content": _content(name)} for status, (said, name) in sorted(given.items())
    }
    return {"summary": does, "security": [{token: list[str]()} for token in tokens], **body, "responses": responses}


def _content(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def schemas() -> dict[str, dict[str, Any]]:
    sent = {"handler": TEXT, "payload": OBJECT} | {
        name.removesuffix("_"): _schema_of(kind)
        for name, kind in get_type_hints(SendOptions).items()
        if name.removesuffix("_") in JSON_KEYS
    }
    put = {name: _schema_of(kind) for name, kind in get_type_hints(PutOptions).items()}
    launch = {"stop_reason": {"type": ["string", "null"]}, "handled": _or_null(WHOLE), "failed": _or_null(WHOLE)}
    message = [key for key in keys_of("status a") if key.path.partition(".")[0] in (*STATE, *DETAILS)]
    return {
        "NewMessage": _closed(sent, ["handler"]),
        "NewRecurrence": _closed(put, ["handler"]),
        "Accepted": _closed({"id": TEXT, "duplicate": _or_null(SWITCH)}),
        "Message": _printed(message) | {"required": [*STATE]},
        "Cancelled": _closed({"id": TEXT, "queue": TEXT, "state": {"const": "cancelled"}}),
        "Rerun": _closed({"id": TEXT, "queue": TEXT, "rerun_of": TEXT}),
        "Recurrence": _printed(keys_of("recurrences list")),
        "Removed": _closed({"name": TEXT, "removed": {"const": True}}),
        "Launch": _closed(launch | {"note": TEXT}, [*launch]),
        "LaunchError": _closed({"error": TEXT, "exit_code": WHOLE}, ["error"]),
        "Error": _closed({"error": TEXT}),
    }


def _closed(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    """An object that has no further keys; all of them unless some are ``required``."""
    needed = [*properties] if required is None else required
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return schema | {"type": [schema["type"], "null"]}


def _schema_of(kind: Any) -> dict[str, Any]:
    """The schema of what JSON has for a type of Python."""
    found = [*_schemas_of(kind)]
    if all(each.keys() == {"type"} for each in found):
        types = list(dict.fromkeys(each["type"] for each in found))
        return {"type": types[0] if len(types) == 1 else types}
    return found[0] if len(found) == 1 else {"anyOf": found}


def _schemas_of(kind: Any) -> Iterator[dict[str, Any]]:
    arguments = get_args(kind)
    if get_origin(kind) in (Union, UnionType, Required):
        for each in arguments:
            yield from _schemas_of(each)
    elif get_origin(kind) is Literal:
        yield {"enum": [*arguments]}
    elif get_origin(kind) is Mapping:
        yield OBJECT if arguments[1] is Any else OBJECT | {"additionalProperties": _schema_of(arguments[1])}
    else:
        yield from OF_TYPES[kind]


def _printed(keys: list[Key], above: str = "") -> dict[str, Any]:
    """The schema of an object that has ``keys``, those below the path ``above``."""
    properties = {}
    for key in keys:
        name = key.path.removeprefix(above)
        if key.path.startswith(above) and "." not in name:
            below = f"{key.path}."
            has_keys = any(each.path.startswith(below) for each in keys)
            properties[name] = _of_key(key, _printed(keys, below) if has_keys else {})
    return _closed(properties)


def _of_key(key: Key, inner: dict[str, Any]) -> dict[str, Any]:
    kind, may_be_null, _ = key.kind.partition(" or null")
    of_list = kind.removeprefix("list of ")
    schema = OF_KINDS[of_list] | inner
    if of_list != kind:
        schema = {"type": "array", "items": schema}
    return _or_null(schema) if may_be_null else schema


def openapi_text() -> str:
    return json.dumps(openapi(), indent=1) + "\n"
