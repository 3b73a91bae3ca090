"""Messages as JSON objects: in entries of an outbox, and in the sequels of other messages."""

from __future__ import annotations

import re
from typing import Any

from pollconsumer.core.messages.message import EXTENSION, NO_EXTENSION, NewMessage, checked
from pollconsumer.core.notation.instants import LAST_MILLISECOND

Packed = dict[str, Any]
REQUIRED = ("id", "queue", "handler", "payload")
FIRST = {
    *REQUIRED, "priority", "due", "delay", "key", "key_lifetime", "concurrency_key", "concurrency_limit", "digest",
    "headers", "timeout", "max_attempts", "retry", "lifetime", "ping", "rate_key", "rate",
}  # fmt: skip
"""Fields of the first versions. These leave an entry with any other field to a newer version if it has all of these
fields, too, and drop it if it lacks one."""
DIGEST_DIGITS = (0, 16)


def packed(message: NewMessage) -> Packed:
    """``message`` without fields at their defaults, so that a version that does not know them can send the others
    on."""
    given, defaults = message._asdict() | {"payload": message.payload.decode()}, message._field_defaults
    wanted = {name for name, value in given.items() if name not in defaults or value != defaults[name]}
    if not wanted <= FIRST:
        wanted |= FIRST
    return {name: value for name, value in given.items() if name in wanted}


def unpacked(given: Packed) -> NewMessage:
    """The inverse of `packed`: a message that the store accepts. ValueError, TypeError, KeyError or AttributeError for
    anything else."""
    message = checked(NewMessage(**given | {"payload": given["payload"].encode()}))
    if message[EXTENSION] != NO_EXTENSION:
        from pollconsumer.core.messages.message_options import options_of

        options_of(message)
    if len(message.digest) not in DIGEST_DIGITS or len(bytes.fromhex(message.digest)) * 2 != len(message.digest):
        raise ValueError(message)
    due, whole = message.due or 0, (message.key_lifetime, message.lifetime, message.delay or 0)
    if type(due) not in (int, float) or not 0 <= due <= LAST_MILLISECOND:
        raise ValueError(message)
    if not re.fullmatch(r"s?|r\d{1,15}", message.key_rule):
        raise ValueError(message)
    if not all(type(each) is int and 0 <= each < 1 << 46 for each in whole):
        raise ValueError(message)
    return message
