"""Options that travel with a message, apart from its payload, to the launch that handles it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from pollconsumer.core.errors import BadData
from pollconsumer.core.message import MOST_ATTEMPTS, Malformed, NewMessage
from pollconsumer.core.notation import strict_json
from pollconsumer.core.notation.addresses import check_address
from pollconsumer.core.notation.timespan import YEAR

MAX_HEADERS_BYTES = 4096
_HEADER_NAME = r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Options(NamedTuple):
    """Those that a message has. ``timeout`` in seconds, ``max_attempts`` and ``retry``, the name of a policy, take the
    place of its handler's."""

    headers: Mapping[str, str] = MappingProxyType({})
    timeout: float | None = None
    max_attempts: int | None = None
    retry: str | None = None
    ping: str | None = None
    """URL of a monitor that is told of the message, an occurrence."""


FIRST = frozenset(("headers", "timeout", "max_attempts", "retry", "ping"))
"""Versions that know these alone bury a message with another one, in a record of letter B: a record of letter C, which
they leave as it is, has it."""


def has_later(options: Options) -> bool:
    """Whether any that it has is not of the FIRST."""
    return any(value for name, value in options._asdict().items() if name not in FIRST)


def options_of(message: NewMessage) -> Options:
    """Checked. BadData if any is invalid."""
    return _checked(Options(message.headers or {}, message.timeout, message.max_attempts, message.retry, message.ping))


def encoded(options: Options) -> bytes:
    """A JSON object, empty if there are none."""
    given = {name: dict(value) if name == "headers" else value for name, value in options._asdict().items() if value}
    return _encode(given).encode() if given else b""


def decoded(stored: bytes) -> tuple[Options, bool]:
    """What `encoded` made, and whether there are others: a newer version wrote these. Malformed if it is anything
    else."""
    if not stored:
        return Options(), False
    try:
        given = dict(**strict_json.parse(stored))
        known = {name: given[name] for name in given.keys() & set(Options._fields)}
        return _checked(Options(**known)), len(known) < len(given)
    except (ValueError, TypeError) as error:
        raise Malformed(f"malformed: its options: {error}"[:300]) from None


def _checked(options: Options) -> Options:
    headers, timeout, max_attempts, retry, ping = options
    if timeout is not None and not (_is_number(timeout) and 0 < timeout <= YEAR):
        raise BadData("timeout", repr(timeout), "must be > 0, and at most 365d")
    if max_attempts is not None and not (type(max_attempts) is int and 1 <= max_attempts <= MOST_ATTEMPTS):
        raise BadData("max_attempts", repr(max_attempts), f"a whole number from 1 to {MOST_ATTEMPTS}")
    if retry is not None:
        check_policy_name(retry)
    if ping is not None:
        check_address(ping)
    return options._replace(headers=MappingProxyType(check_headers(headers)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_policy_name(name: object) -> str:
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= 100:
        raise BadData("retry", repr(name), "the name of a policy, 1 to 100 printable characters")
    return name


def variable_of(header: str) -> str:
    """The name of a header as it stands in that of a program's variable: in capitals, and an underscore for each other
    character."""
    return "".join(character if character.isalnum() else "_" for character in header.upper())


def check_new_headers(headers: object) -> dict[str, str]:
    """`check_headers` of a producer: a program can tell one from another."""
    checked = check_headers(headers)
    names: dict[str, str] = {}
    for name in checked:
        if (other := names.setdefault(variable_of(name), name)) != name:
            raise BadData("header names", f"{other}, {name}", "a program would find both in one variable: rename one")
    return checked


def check_headers(headers: object) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise BadData("headers", repr(headers), "a mapping of names to text")
    for name, value in headers.items():
        if not isinstance(name, str) or not re.fullmatch(_HEADER_NAME, name):
            raise BadData("header name", repr(name), "1 to 100 letters, digits or any of !#$%&'*+-.^_`|~")
        if not isinstance(value, str) or not value.isprintable():
            raise BadData(f"header {name}", repr(value), "printable text")
    size = len(_encode(dict(headers)).encode())
    if size > MAX_HEADERS_BYTES:
        raise BadData("headers", f"{size} bytes", f"at most {MAX_HEADERS_BYTES}")
    return dict(headers)
