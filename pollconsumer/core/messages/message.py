"""Validation and encoding of messages: names, payload, id."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn, Protocol

from pollconsumer.core.errors import BadData, PayloadTooLarge

MAX_PAYLOAD_BYTES = 1 << 20
MAX_PRIORITY = 4096
MOST_ATTEMPTS = 10_000
_ODD_NAME = r'"(?:-?[0-9][-+.0-9e]*|null|true|false)":'
"""A name in encoded JSON that may not have been text. Compiled where a sign of one is seen."""
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
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
"""The fields that have defaults, `NO_OPTIONS`; among them the fields for which records of version 1 have no place."""
NO_OPTIONS = NewMessage("", "", "", b"")[OPTIONS]
NO_EXTENSION = NewMessage("", "", "", b"")[EXTENSION]


UNTIL_START, REPLACES = "s", "r"
"""Key rules: a holder in hand holds no more; and one that waits is replaced. After the second: how many ms that one may
wait at most, from its enqueueing, 0 for no end."""


def replaces(message: NewMessage) -> bool:
    """Whether it replaces the one that waits with its key."""
    return message.key_rule.startswith(REPLACES)


def _is_text(text: str) -> bool:
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
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise BadData("message id", repr(value), "1 to 128 letters, digits or any of _ . : @ + -")
    return value


def check_handler(name: object) -> str:
    # Printable: no control character, and none that changes the direction of the text after it.
    if not isinstance(name, str) or not name.isprintable() or " " in name or not 0 < len(name) <= MAX_HANDLER_LENGTH:
        raise BadData("handler name", repr(name), f"1 to {MAX_HANDLER_LENGTH} printable characters without spaces")
    return name


def check_key(key: object) -> str:
    if not isinstance(key, str) or not _is_text(key) or len(key.encode()) > MAX_KEY_BYTES:
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
    if not isinstance(key, str) or not _is_text(key) or not 0 < len(key.encode()) <= 255 or min(key) < " ":
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


def encode_payload(payload: Mapping[str, Any]) -> bytes:
    """``payload`` as the stored JSON object: UTF-8, no NaN, at most 1 MiB.

    TypeError for a type without JSON form, ValueError (BadData) for an invalid value; both name its place.
    """
    if not isinstance(payload, dict):
        raise TypeError(f"payload must be a dict of JSON values, not {type(payload).__name__}")
    for name in payload:
        if not isinstance(name, str):
            raise TypeError(f"payload names must be text, not {name!r}")
    return encode_named(payload)


def encode_named(payload: dict[str, Any]) -> bytes:
    """`encode_payload` of a dict whose own names are known to be text. Hot path."""
    try:
        text = "".join(quick(payload, 0))
        encoded = text.encode()
    except (TypeError, ValueError, RecursionError):
        encoded = _encode_checked(payload)
    else:
        # A name that was no text ends with a digit, or is a word of JSON: that is found sooner than the whole name.
        is_suspect = text.rfind("{") and (
            encoded.translate(_ZEROS).find(b'0":') >= 0 or '"null":' in text or '"true":' in text or '"false":' in text
        )
        if is_suspect and re.search(_ODD_NAME, text) and not _has_text_names(payload):
            _explain(payload)
    if len(encoded) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge("payload", f"{len(encoded)} bytes", f"at most {MAX_PAYLOAD_BYTES}; store it elsewhere")
    return encoded


def _has_text_names(whole: object) -> bool:
    """Whether all names within are text: the encoder would write 1 and "1" alike."""
    left = [whole]
    for value in left:  # the list grows meanwhile
        if isinstance(value, dict):
            if not all(isinstance(name, str) for name in value):
                return False
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value
        elif hasattr(type(value), "__dataclass_fields__"):
            left.append(_default(value))
    return True


def _encode_checked(payload: dict[str, Any]) -> bytes:
    """Encode ``payload``, or raise the error that locates the value for which that failed; it tells a circle from deep
    nesting."""
    try:
        encoded = _encode(payload).encode("utf-8")
    except (TypeError, ValueError, RecursionError):
        _explain(payload)
    return encoded


def _explain(payload: dict[str, Any]) -> NoReturn:
    from pollconsumer.core.json_values import explain

    try:
        explain(payload, "payload", "annotate the handler's parameter with its type, or send JSON's")
    except RecursionError:
        raise BadData("payload", None, "it is nested too deeply") from None


def _default(value: Any) -> Any:
    from pollconsumer.core.json_values import to_json

    return to_json(value)


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_default)
_encode = _encoder.encode


def _quick_of(slow: json.JSONEncoder) -> Callable[[Any, int], Iterable[str]]:
    """The encoder that ``slow.encode`` makes in each call, made once, and without a search for circles: so it takes a
    third of the time.

    A circle raises RecursionError. ``slow`` has no white space, no NaN, and no ASCII alone.
    """
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda value, _: (slow.encode(value),)
    encoder: Callable[[Any, int], Iterable[str]] = make(
        None, slow.default, json.encoder.encode_basestring, None, ":", ",", False, False, False
    )
    return encoder


quick = _quick_of(_encoder)
"""The parts of a value's JSON form, given the value and 0: of payloads and of results."""


def digest_of(handler: str, payload: bytes) -> str:
    """Digest of handler and payload, independent of the order of names: 8 bytes, as hex."""
    from hashlib import blake2b

    return blake2b(f"{handler}\n{canonical_text(payload)}".encode(), digest_size=8).hexdigest()


def canonical_text(payload: bytes) -> str:
    """The JSON of a payload, with its names in order."""
    if payload.count(b'":') < 2 and b" " not in payload and b"\\" not in payload:  # one name: nothing to sort
        return payload.decode()
    try:
        return _encode_sorted(json.loads(payload))
    except RecursionError:
        raise BadData("payload", None, "it is nested too deeply") from None


_encode_sorted = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


class Malformed(Exception):
    """A stored message is invalid; the text says why."""


def _refuse_constant(text: str) -> None:
    raise Malformed(f"malformed: {text} is not a number of JSON"[:300])


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        _refuse_constant(text)
    return number


_decoder: Any = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
_scan = _decoder.scan_once


def decode_payload(payload: bytes) -> dict[str, Any]:
    """The object in ``payload``. Malformed if it is not a JSON object."""
    try:
        text = payload.decode()
        try:
            value, end = _scan(text, 0)  # as decode does, without its search for white space
        except StopIteration:
            end = -1
        if end != len(text):
            value = _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"malformed: {error}"[:300]) from None
    if type(value) is not dict:
        raise Malformed(f"malformed: the payload is a {type(value).__name__}, not an object")
    return value
