"""Options that travel with a message, apart from its payload."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from pollconsumer.core.errors import BadData
from pollconsumer.core.message import Malformed, NewMessage
from pollconsumer.core.notation import strict_json

MAX_HEADERS_BYTES = 4096
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Options(NamedTuple):
    """What a message has of these."""

    headers: Mapping[str, str] = MappingProxyType({})


def encoded(message: NewMessage) -> bytes:
    """The options of a checked message as a stored JSON object; empty if it has none."""
    given = {name: value for name in Options._fields if (value := getattr(message, name))}
    return _encode(given).encode() if given else b""


def decoded(stored: bytes) -> Options:
    """What `encoded` made. Malformed if it is anything else."""
    try:
        return checked(Options(**strict_json.parse(stored))) if stored else Options()
    except (ValueError, TypeError) as error:
        raise Malformed(f"malformed: its options: {error}"[:300]) from None


def checked(options: Options) -> Options:
    """``options``. BadData if any is invalid."""
    return options._replace(headers=MappingProxyType(check_headers(options.headers)))


def check_headers(headers: object) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise BadData("headers", repr(headers), "a mapping of names to text")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise BadData("header name", repr(name), "1 to 100 letters, digits or any of !#$%&'*+-.^_`|~")
        if not isinstance(value, str) or not value.isprintable():
            raise BadData(f"header {name}", repr(value), "printable text")
    size = len(_encode(dict(headers)).encode())
    if size > MAX_HEADERS_BYTES:
        raise BadData("headers", f"{size} bytes", f"at most {MAX_HEADERS_BYTES}")
    return dict(headers)
