"""Messages as JSON objects: in entries of an outbox, and in the sequels of other messages."""

from __future__ import annotations

import re
from typing import Any, get_args, get_origin

from pollconsumer.core.messages.message import EXTENSION, NO_EXTENSION, NewMessage, checked
from pollconsumer.core.messages.payloads import Malformed
from pollconsumer.core.notation.instants import LAST_MILLISECOND

Packed = dict[str, Any]
REQUIRED = ("id", "queue", "handler", "payload")
FIRST = {
    *REQUIRED, "priority", "due", "delay", "key", "key_lifetime", "concurrency_key", "concurrency_limit", "digest",
    "headers", "timeout", "max_attempts", "retry", "lifetime", "ping", "rate_key", "rate",
}  # fmt: skip
"""The fields of the first versions. Those versions leave an entry with a later field to a newer version, if the entry
has all of these fields, too. They drop it if one is missing. So an entry with a later field has all of these."""
DIGEST_DIGITS = (0, 16)
UNPACKABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError, Malformed)


def _types_of(declared: Any) -> tuple[type, ...]:
    """The types of the values that a field of this declaration may have."""
    kinds = [get_origin(each) or each for each in get_args(declared) or (declared,)]
    return (*kinds, int) if float in kinds else (*kinds,)


_TYPES = {name: _types_of(declared) for name, declared in NewMessage.__annotations__.items()}


def packed(message: NewMessage) -> Packed:
    """``message`` without fields at their defaults, so that a version that does not know them can send the others
    on."""
    given, defaults = message._asdict() | {"payload": message.payload.decode()}, message._field_defaults
    wanted = {name for name, value in given.items() if name not in defaults or value != defaults[name]}
    if not wanted <= FIRST:
        wanted |= FIRST
    return {name: value for name, value in given.items() if name in wanted}


def unpacked(given: Packed) -> NewMessage:
    """The inverse of `packed`: a message that the store accepts. One of `UNPACKABLE` for anything else."""
    given = given | {"payload": given["payload"].encode()}
    for name, value in given.items():
        kinds = _TYPES[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):  # GUARD types of fields
            raise TypeError(f"{name} is {value!r}")
    message = checked(NewMessage(**given))
    if message[EXTENSION] != NO_EXTENSION:
        from pollconsumer.core.messages.message_options import options_of

        options_of(message)
    if len(message.digest) not in DIGEST_DIGITS or len(bytes.fromhex(message.digest)) * 2 != len(message.digest):
        raise ValueError(message)
    if not 0 <= (message.due or 0) <= LAST_MILLISECOND:
        raise ValueError(message)
    if not re.fullmatch(r"s?|r\d{1,15}", message.key_rule):
        raise ValueError(message)
    for number in (message.key_lifetime, message.lifetime, message.delay or 0):
        whole(number)
    return message


def whole(number: object) -> int:
    """``number``, if it is a whole one of at most 46 bits. ValueError for anything else."""
    if type(number) is not int or not 0 <= number < 1 << 46:
        raise ValueError(number)
    return number
