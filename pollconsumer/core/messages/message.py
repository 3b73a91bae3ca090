"""A message about to be enqueued, and which names, ids and keys it may have."""

import re
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from pollconsumer.core.errors import BadData

MAX_PRIORITY = 4096
MOST_ATTEMPTS = 10_000
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
LONGEST_ID = 128
_ID = re.compile(r"[A-Za-z0-9_.:@+-]{1,128}")
MAX_HANDLER_LENGTH = 200


class NewMessage(NamedTuple):
    """A message about to be enqueued.

    ``due`` is in epoch milliseconds, with a fraction, ``delay`` in milliseconds from the server's now. ``key`` is as
    the queue has it, see `scoped_key`; ``key_lifetime`` in milliseconds, 0 until the message ends. It expires
    ``lifetime`` milliseconds after it was accepted or, if that is later, due; 0 for never. At most
    ``concurrency_limit`` messages with one concurrency key are in flight. Those with one ``rate_key`` are handed out
    at ``rate`` at most, as ``60/1h``; empty: that of the queue.
    """

    id: str
    queue: str
    handler: str
    payload: bytes
    priority: int = 0
    due: float | None = None
    delay: int | None = None
    key: str = ""
    key_lifetime: int = 0
    concurrency_key: str = ""
    concurrency_limit: int = 1
    key_rule: str = ""
    """How a holder of the key is dealt with: see `UNTIL_START`. Empty: this message is its duplicate."""
    digest: str = ""
    """The digest of handler and payload, if the user chose the id."""
    headers: Mapping[str, str] | None = None
    timeout: float | None = None
    max_attempts: int | None = None
    retry: str | None = None
    lifetime: int = 0
    ping: str | None = None
    """The URL of the monitor that is told how an occurrence begins and ends."""
    rate_key: str = ""
    rate: str = ""
    sequel: str = ""
    """What its end brings about, encoded: see `sequel.py`."""
    encoded: bool = False
    """Whether its payload is encoded by a codec: see `codec.py`."""


ENCODED = "pollconsumer:encoded"
"""The one name of a value that a codec has encoded."""


class Codec(Protocol):
    """Encodes the JSON of values, and decodes it again. Either may raise any exception.

    An attribute ``digest_key``, bytes, keys the digest by which a second message of an id of the user's is compared
    with the first; without it only their handlers are compared.
    """

    def encode(self, data: bytes, /) -> bytes:
        """What the store is to have in place of ``data``."""

    def decode(self, data: bytes, /) -> bytes:
        """The inverse of `encode`; also of what earlier keys encoded."""


OPTIONS, EXTENSION = slice(4, None), slice(12, None)
"""The fields that have defaults; and those of them for which a record of letter A has no place."""
NO_OPTIONS = NewMessage("", "", "", b"")[OPTIONS]
NO_EXTENSION = NewMessage("", "", "", b"")[EXTENSION]
"""The defaults of these fields: one compare tells a message without options."""
TRAVELLING = ("headers", "timeout", "max_attempts", "retry", "ping", "encoded")
"""The fields that a record has as options, those of `Options`."""


UNTIL_START, REPLACES = "s", "r"
"""Key rules: a holder in hand holds no more; and one that waits is replaced. After the second: how many ms that one may
wait at most, from its enqueueing, 0 for no end."""


def replaces(message: NewMessage) -> bool:
    """Whether ``message`` replaces the one that waits with its key."""
    return message.key_rule.startswith(REPLACES)


def is_text(text: str) -> bool:
    """Whether ``text`` can be encoded: undecodable bytes arrive as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_queue(name: object) -> str:
    """``name``, if it is valid for a queue or a namespace."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadData("queue name", repr(name), "1 to 64 letters, digits, dots, dashes or underscores")
    return name


def check_id(value: object) -> str:
    return value if isinstance(value, str) and _ID.fullmatch(value) else check_stem(value, "message id", LONGEST_ID)


def check_stem(value: object, what: str, most: int, since: str = "") -> str:
    """An id with which longer ones begin, if it has ``most`` characters at most. ``since``: why no more."""
    if not isinstance(value, str) or not _ID.fullmatch(value) or len(value) > most:
        raise BadData(what, repr(value), f"1 to {most} letters, digits or any of _ . : @ + -{since}")
    return value


def check_handler(name: object) -> str:
    # Printable: no control character, and none that changes the direction of the text after it.
    if not isinstance(name, str) or not name.isprintable() or " " in name or not 0 < len(name) <= MAX_HANDLER_LENGTH:
        raise BadData("handler name", repr(name), f"1 to {MAX_HANDLER_LENGTH} printable characters without spaces")
    return name


def check_key(key: object) -> str:
    if not isinstance(key, str) or not is_text(key) or len(key.encode()) > MAX_KEY_BYTES:
        raise BadData("unique key", repr(key), "text of at most 255 bytes")
    return key


SCOPED_BY = "\0"
"""Ends the handler's name in a unique key that only messages of that handler share."""
MAX_KEY_BYTES = 255
DIGESTED_BYTES = 33
"""Length of a digested handler's name, with what ends it."""


def scoped_key(handler: str, key: str) -> str:
    """How a unique key of ``handler``'s messages is stored. Names that a record has no room for are digested."""
    own = f"{handler}{SCOPED_BY}"
    if len(f"{own}{key}".encode()) > MAX_KEY_BYTES:
        own = _digested(handler) + SCOPED_BY
    return own + digested_key(key, len(own.encode()))


def digested_key(key: str, used: int = 0) -> str:
    """``key``, or what stands for it where it has no room beside ``used`` bytes."""
    return key if len(key.encode()) + used <= MAX_KEY_BYTES else _digested(key)


def _digested(text: str) -> str:
    from pollconsumer.core.notation.digests import sha256  # few messages have a key, and most keys have room

    return sha256(text.encode())[:32]


def check_concurrency(key: object, limit: object) -> tuple[str, int]:
    if not isinstance(key, str) or not is_text(key) or not 0 < len(key.encode()) <= 255 or min(key) < " ":
        raise BadData("concurrency key", repr(key), "text of 1 to 255 bytes without control characters")
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= 255:
        raise BadData("concurrency limit", repr(limit), "a whole number from 1 to 255")
    return key, limit


def check_priority(priority: object) -> int:
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > MAX_PRIORITY:
        raise BadData(
            "priority", repr(priority), f"a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}, smaller first"
        )
    return priority


def checked(message: NewMessage) -> NewMessage:
    """``message``. BadData if its id, a name, a key or its priority is invalid."""
    check_id(message.id)
    check_queue(message.queue)
    check_handler(message.handler)
    check_priority(message.priority)
    check_key(message.key)
    if message.concurrency_key:
        check_concurrency(message.concurrency_key, message.concurrency_limit)
    if message.rate_key or message.rate:
        from pollconsumer.core.rates import check_rate  # few messages have a rate

        check_rate(message.rate, message.rate_key)
    return message
