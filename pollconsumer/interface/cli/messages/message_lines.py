"""Messages as lines of a file, and as words of a command: each with what its handler has by default."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import sys
from typing import Any, BinaryIO

import click

from pollconsumer.core.errors import BadData, ConfigurationError, suggestion
from pollconsumer.core.messages.codec import is_encoded
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.notation.instants import datetime_of, read_instant
from pollconsumer.core.users_code import refusing
from pollconsumer.interface.assembly.handlers import OwnDefaults
from pollconsumer.runtime.new_messages import SendOptions, milliseconds, new_message

BULK = 1000
"""Lines per page."""
CALLBACKS = ("then", "failed", "ended")
NAMES = (
    *("handler", "payload"),
    *(name.removesuffix("_") for name in SendOptions.__annotations__ if name not in CALLBACKS),
)
"""Keys of a line of --ndjson."""
NO_CALLBACKS = "a line has no callbacks: a batch of lines has, as --then HANDLER; a message in Python, using(then=…)"

LONGEST_EXAMPLE = 400
"""Characters of a text whose correction is shown."""
WORDS = re.compile(
    r"""(?P<json>"(?:[^"\\]|\\.)*")|'(?P<quoted>[^'"\\]*)'|[^\s"'{}\[\],:](?:[^"'{}\[\],:]*[^\s"'{}\[\],:])?"""
)
"""The names and values of an object in JSON, or in what resembles it."""
PYTHONS = {"True": "true", "False": "false", "None": "null"}


def own_message(
    handler: str, payload: dict[str, Any], options: dict[str, Any], own_defaults: OwnDefaults
) -> NewMessage:
    """A message with the queue and rate of its handler, after its hooks, encoded by its application's codec. If
    ``options`` give a queue, no module is imported: then, and if the payload is encoded already, it has neither the
    handler's rate nor its hooks, and goes as it is."""
    if options.get("queue") is not None:
        return new_message(handler, payload, **options)._replace(encoded=is_encoded(payload))
    own_defaults.warn_without_handlers()
    defaults = own_defaults.of(handler)
    message = new_message(handler, payload, **options | {"queue": defaults.queue})
    if is_encoded(payload):
        return message._replace(encoded=True)
    own_defaults.checked(handler, payload, message.retry)
    message = own_defaults.drafted(defaults.rated(message))
    if (codec := own_defaults.codec_of(handler)) is None:
        return message
    from pollconsumer.core.messages.codec import coded  # few applications have a codec

    with refusing("codec", handler, "encode"):
        return coded(message, codec)


def line_message(line: bytes, own_defaults: OwnDefaults) -> NewMessage:
    try:
        entry = parse_object("message", line.decode().strip())
    except UnicodeDecodeError as error:
        raise BadData("not UTF-8", error.reason, "write it as UTF-8") from None
    unknown = [name for name in entry if name not in NAMES]
    if unknown:
        fix = NO_CALLBACKS if unknown[0] in CALLBACKS else suggestion(unknown[0], NAMES)
        raise BadData("unknown key", unknown[0], fix)
    if not isinstance(entry.get("handler"), str):
        raise BadData("handler", entry.get("handler"), "give one, as text")
    options = {"in_" if name == "in" else name: value for name, value in entry.items()}
    handler, payload = options.pop("handler"), options.pop("payload", {})
    try:
        if options.get("at") is not None:
            options["at"] = datetime_of(read_instant(str(options["at"])))
        if options.get("in_") is not None:
            milliseconds("in", options["in_"])  # so that the error has the name of the line's key
        return own_message(handler, payload, options, own_defaults)
    except BadData:
        raise
    except (ValueError, TypeError, ConfigurationError) as error:
        raise BadData(str(error)) from None


def parse_object(what: str, text: str) -> dict[str, Any]:
    """The JSON object in ``text``. BadData writes what `_meant` finds, or names line and column."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        meant = _meant(text)
        example = shlex.quote(json.dumps(meant or {"name": "Ada"}, ensure_ascii=False))
        at = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno} column {error.colno}"
        is_object = text.startswith("{") and "=" not in text
        fix = f"{error.msg}, at {at}" if is_object and meant is None else f"write {example}"
        raise BadData(f"{what} is not JSON", text or "empty", fix) from None
    except (RecursionError, ValueError) as error:
        raise BadData(f"{what} is not JSON", text, str(error)) from None
    if not isinstance(value, dict):
        raise BadData(what, text, 'must be a JSON object, as in \'{"name": "Ada"}\'')
    return value


def _meant(text: str) -> dict[str, Any] | None:
    """The object that ``to=a`` means, or one with single quotes or none, as in Python or YAML; None if unclear."""
    if len(text) > LONGEST_EXAMPLE:
        return None
    name, given, pair = text.partition("=")
    if given and name.isidentifier():
        return {name: pair}
    try:
        value = json.loads(WORDS.sub(_as_json, text))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _as_json(word: re.Match[str]) -> str:
    bare = PYTHONS.get(word[0], word[0])
    is_json = word["json"] is not None or re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?|true|false|null", bare)
    return bare if is_json else json.dumps(bare if word["quoted"] is None else word["quoted"], ensure_ascii=False)


def opened_lines(source: str) -> BinaryIO:
    if source == "-":
        refuse_closed_input()
    try:
        return click.open_file(source, "rb")  # type: ignore[return-value]  # opened as bytes
    except OSError as error:
        raise BadData("--ndjson", source, f"cannot be read: {error.strerror}") from None


def size_of(file: BinaryIO) -> int | None:
    """The size in bytes; None for a pipe."""
    found = os.fstat(file.fileno())
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def refuse_closed_input() -> None:
    if sys.stdin is None:
        raise BadData("standard input", None, "is closed: redirect it from a file, or a pipe")
