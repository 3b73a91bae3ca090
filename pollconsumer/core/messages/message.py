"""A message about to be enqueued: which names, ids and keys it may have, and the options that travel with it."""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from pollconsumer.core import json_values
from pollconsumer.core.errors import BadData
from pollconsumer.core.messages.payloads import Malformed
from pollconsumer.core.notation.digests import sha256
from pollconsumer.core.notation.text import check_address, is_text
from pollconsumer.core.spans import YEAR, check_rate, check_short_key

MAX_PRIORITY = 4096
MOST_ATTEMPTS = 10_000
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
LONGEST_ID = 128
_ID = re.compile(r"[A-Za-z0-9_.:@+-]{1,128}")
MAX_HANDLER_LENGTH = 200
ENCODED = "pollconsumer:encoded"
"""The name that marks an encoded value: an object with it, and perhaps an ``occurrence`` that is not encoded."""
TRAVELLING = ("headers", "timeout", "max_attempts", "retry", "ping", "encoded")
"""The fields that a record stores as its options: those of `Options`."""
UNTIL_START, REPLACES = "s", "r"
"""Values of ``key_rule``. ``s``: the message frees its key when its handler starts. ``r``: the message replaces a
waiting one with its key. A number follows: the most ms from the first enqueueing to the due time; 0: no limit."""
SCOPED_BY = "\0"
"""Stands between handler and key in the stored form of a unique key that only messages of one handler share."""
MAX_KEY_BYTES = 255
DIGESTED_BYTES = 33
"""Length of the digest that replaces a long name of a handler, with the separator."""
MAX_HEADERS_BYTES = 4096
CREATED_BY = "created-by"
"""The header that says who created a message."""
LONGEST_CREATOR = 200
_HEADER_NAME = r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
FIRST_OPTIONS = frozenset(("headers", "timeout", "max_attempts", "retry", "ping"))
"""The options that the first version knows. It makes a message with another option a dead letter if the message's
record has letter B, and leaves the message as it is at letter C. So a record with a later option has letter C."""


class NewMessage(NamedTuple):
    """A message that is about to be enqueued.

    ``due`` is in epoch milliseconds, with a fraction; ``delay`` in milliseconds from the server's now. ``key``: the
    unique key as the queue stores it, see `scoped_key`. ``key_lifetime``: in milliseconds; 0 if the key lasts until the
    message ends. ``lifetime``: the message expires so many milliseconds after it was accepted or, if later, due; 0:
    never. At most ``concurrency_limit`` messages with one ``concurrency_key`` are in flight. Messages with one
    ``rate_key`` are handed out at ``rate`` at most, such as ``60/1h``; if ``rate`` is empty, at the queue's. A message
    with an ``order_key`` is handed out once the earlier messages with the same key have ended."""

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
    """What is special about the key: see `UNTIL_START`. Without ``r``, a message whose key is taken is a duplicate."""
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
    continuation: str = ""
    """What the message's end brings about, encoded: see `continuation.py`."""
    encoded: bool = False
    """Whether a codec has encoded the payload: see `codec.py`."""
    order_key: str = ""

    def __message__(self) -> "NewMessage":
        """The message itself, which can be a member of a batch, or a callback."""
        return self


class Codec(Protocol):
    """Encodes the JSON of values, and decodes it again. Either may raise any exception.

    If the user chose a message's id, a second message with that id is compared with the first by a digest. The
    attribute ``digest_key``, bytes, keys this digest. Without it only the handlers are compared."""

    def encode(self, data: bytes, /) -> bytes:
        """The bytes that the store gets in place of ``data``."""

    def decode(self, data: bytes, /) -> bytes:
        """The inverse of `encode`. It must also decode what was encoded with earlier keys."""


OPTIONS, EXTENSION = (slice(NewMessage._fields.index(first), None) for first in ("priority", "digest"))
"""Slices of a `NewMessage`: the fields that have defaults, and the fields that a record of letter A cannot hold."""
NO_OPTIONS = NewMessage("", "", "", b"")[OPTIONS]
NO_EXTENSION = NewMessage("", "", "", b"")[EXTENSION]
"""The defaults of the fields in `EXTENSION`: comparing with them shows whether a message uses any of these fields."""


def replaces(message: NewMessage) -> bool:
    """Whether ``message`` replaces a message that waits with its key."""
    return message.key_rule.startswith(REPLACES)


def check_queue(name: object) -> str:
    """``name``, if it is a valid name of a queue or a namespace, else BadData."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadData("queue name", repr(name), "1 to 64 letters, digits, dots, dashes or underscores")
    return name


def check_id(value: object) -> str:
    return value if isinstance(value, str) and _ID.fullmatch(value) else check_stem(value, "message id", LONGEST_ID)


def check_stem(value: object, what: str, most: int, since: str = "") -> str:
    """``value``, if it is a valid id of at most ``most`` characters, so that an ending can be added. BadData otherwise.
    ``since``: the reason for the limit, which the error adds."""
    if not isinstance(value, str) or not _ID.fullmatch(value) or len(value) > most:
        raise BadData(what, repr(value), f"1 to {most} letters, digits or any of _ . : @ + -{since}")
    return value


def check_handler(name: object) -> str:
    # Only printable characters: no control character, and none that changes the direction of the text after it.
    if not isinstance(name, str) or not name.isprintable() or " " in name or not 0 < len(name) <= MAX_HANDLER_LENGTH:
        raise BadData("handler name", repr(name), f"1 to {MAX_HANDLER_LENGTH} printable characters without spaces")
    return name


def check_key(key: object) -> str:
    if not isinstance(key, str) or not is_text(key) or len(key.encode()) > MAX_KEY_BYTES:
        raise BadData("unique key", repr(key), "text of at most 255 bytes")
    return key


def scoped_key(handler: str, key: str) -> str:
    """The stored form of a unique key that only messages of ``handler`` share. If handler or key is too long, its
    digest is stored."""
    own = f"{handler}{SCOPED_BY}"
    if len(f"{own}{key}".encode()) > MAX_KEY_BYTES:
        own = _digested(handler) + SCOPED_BY
    return own + digested_key(key, len(own.encode()))


def digested_key(key: str, used: int = 0) -> str:
    """``key``, or its digest if ``key`` would be too long after ``used`` other bytes."""
    return key if len(key.encode()) + used <= MAX_KEY_BYTES else _digested(key)


def _digested(text: str) -> str:
    return sha256(text.encode())[:32]


def check_concurrency(key: object, limit: object) -> tuple[str, int]:
    key = check_short_key(key, "concurrency key")
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
    """``message``, unchanged. BadData if its id, a name, a key or its priority is invalid."""
    check_id(message.id)
    check_queue(message.queue)
    check_handler(message.handler)
    check_priority(message.priority)
    check_key(message.key)
    if message.concurrency_key:
        check_concurrency(message.concurrency_key, message.concurrency_limit)
    if message.rate_key or message.rate:
        check_rate(message.rate, message.rate_key)
    if message.order_key:
        check_short_key(message.order_key, "order key")
        if message.priority:
            raise BadData("priority", message.priority, "messages with an order_key are handled in their order: give 0")
    return message


class Options(NamedTuple):
    """The options of a message, in the order of `TRAVELLING`. ``timeout`` (in seconds), ``max_attempts`` and ``retry``
    (the name of a policy) replace those of its handler."""

    headers: Mapping[str, str] = MappingProxyType({})
    timeout: float | None = None
    max_attempts: int | None = None
    retry: str | None = None
    ping: str | None = None
    """The URL of the monitor that is told how an occurrence begins and ends."""
    encoded: bool = False
    """Whether a codec has encoded the payload."""


def has_later(options: Options) -> bool:
    """Whether an option is set that is not among the `FIRST_OPTIONS`."""
    return any(value for name, value in options._asdict().items() if name not in FIRST_OPTIONS)


def options_of(message: NewMessage) -> Options:
    """The options of ``message``. BadData for an invalid one."""
    return _checked_options(given_options(message))


def given_options(message: NewMessage) -> Options:
    """The options of ``message``, unchecked."""
    options = Options(*[getattr(message, name) for name in TRAVELLING])
    return options._replace(headers={}) if message.headers is None else options


def encoded_options(options: Options) -> bytes:
    """The options as a JSON object; empty bytes if there are none."""
    given = {name: dict(value) if name == "headers" else value for name, value in options._asdict().items() if value}
    return _encode(given).encode() if given else b""


def decoded_options(stored: bytes) -> tuple[Options, bool]:
    """The inverse of `encoded_options`, and whether ``stored`` has unknown options, of a newer version. Malformed if
    invalid."""
    if not stored:
        return Options(), False
    try:
        given = dict(**json_values.parse(stored))
        known = {name: given[name] for name in given.keys() & set(Options._fields)}
        return _checked_options(Options(**known)), len(known) < len(given)
    except (ValueError, TypeError) as error:
        raise Malformed(f"malformed: its options: {error}"[:300]) from None


def _checked_options(options: Options) -> Options:
    headers, timeout, max_attempts, retry, ping, encoded = options
    if type(encoded) is not bool:
        raise TypeError(f"encoded is {encoded!r}, not true or false")
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and 0 < timeout <= YEAR):
        raise BadData("timeout", repr(timeout), "must be > 0, and at most 365d")
    if max_attempts is not None and not (type(max_attempts) is int and 1 <= max_attempts <= MOST_ATTEMPTS):
        raise BadData("max_attempts", repr(max_attempts), f"a whole number from 1 to {MOST_ATTEMPTS}")
    if retry is not None:
        check_policy_name(retry)
    if ping is not None:
        check_address(ping)
    return options._replace(headers=MappingProxyType(check_headers(headers)))


def check_policy_name(name: object) -> str:
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= 100:
        raise BadData("retry", repr(name), "the name of a policy, 1 to 100 printable characters")
    return name


def created_header(who: object) -> dict[str, str]:
    """The header that says who created a message. BadData if ``who`` is empty, too long, or not printable."""
    if not isinstance(who, str) or not who.isprintable() or not 0 < len(who) <= LONGEST_CREATOR:
        raise BadData("created_by", repr(who), f"1 to {LONGEST_CREATOR} printable characters")
    return {CREATED_BY: who}


def variable_of(header: str) -> str:
    """The name of the environment variable in which a program finds the value of ``header``: in capitals, with an
    underscore for each character that is no letter or digit."""
    return "".join(character if character.isalnum() else "_" for character in header.upper())


def read_header(text: str) -> tuple[str, str]:
    """Name and value of a header that is written as NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError("write NAME=VALUE")
    return name, value


def check_new_headers(headers: object) -> dict[str, str]:
    """`check_headers` for a producer. BadData, too, if two header names become the same environment variable: see
    `variable_of`."""
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
