"""Options that travel with a message, apart from its payload, to the launch that handles it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from pollconsumer.core.errors import BadData
from pollconsumer.core.messages.message import MOST_ATTEMPTS, TRAVELLING, NewMessage
from pollconsumer.core.messages.payloads import Malformed
from pollconsumer.core.notation import strict_json
from pollconsumer.core.notation.addresses import check_address
from pollconsumer.core.notation.timespan import YEAR

MAX_HEADERS_BYTES = 4096
_HEADER_NAME = r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Options(NamedTuple):
    """The options of a message, named and in the order of `TRAVELLING`. ``timeout`` in seconds, ``max_attempts`` and
    ``retry``, the name of a policy, take the place of its handler's."""

    headers: Mapping[str, str] = MappingProxyType({})
    timeout: float | None = None
    max_attempts: int | None = None
    retry: str | None = None
    ping: str | None = None
    """URL of a monitor that is told of the message, an occurrence."""
    encoded: bool = False
    """Whether its payload is encoded by a codec."""


FIRST = frozenset(("headers", "timeout", "max_attempts", "retry", "ping"))
"""The options of the first version. That version makes a message with any other option a dead letter if the record has
the letter B, and leaves a record of letter C as it is. So a record with a later option has the letter C."""


def has_later(options: Options) -> bool:
    """Whether an option is given that is not among the `FIRST`."""
    return any(value for name, value in options._asdict().items() if name not in FIRST)


def options_of(message: NewMessage) -> Options:
    """The options of ``message``. BadData if any is invalid."""
    return _checked(given_options(message))


def given_options(message: NewMessage) -> Options:
    """The options of ``message``, as they are."""
    options = Options(*[getattr(message, name) for name in TRAVELLING])
    return options._replace(headers={}) if message.headers is None else options


def encoded(options: Options) -> bytes:
    """The options as a JSON object; empty bytes if there are none."""
    given = {name: dict(value) if name == "headers" else value for name, value in options._asdict().items() if value}
    return _encode(given).encode() if given else b""


def decoded(stored: bytes) -> tuple[Options, bool]:
    """The inverse of `encoded`, and whether there are unknown options, which a newer version wrote. Malformed for
    anything else."""
    if not stored:
        return Options(), False
    try:
        given = dict(**strict_json.parse(stored))
        known = {name: given[name] for name in given.keys() & set(Options._fields)}
        return _checked(Options(**known)), len(known) < len(given)
    except (ValueError, TypeError) as error:
        raise Malformed(f"malformed: its options: {error}"[:300]) from None


def _checked(options: Options) -> Options:
    headers, timeout, max_attempts, retry, ping, encoded = options
    if type(encoded) is not bool:
        raise TypeError(f"encoded is {encoded!r}, not true or false")
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
    """The name of a header as part of a program's variable: in capitals, with an underscore for each character that is
    no letter or digit."""
    return "".join(character if character.isalnum() else "_" for character in header.upper())


def read_header(text: str) -> tuple[str, str]:
    """Name and value of a header that is written as NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError("write NAME=VALUE")
    return name, value


def check_new_headers(headers: object) -> dict[str, str]:
    """`check_headers` for a producer. BadData, too, for two names that are one variable of a program."""
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
