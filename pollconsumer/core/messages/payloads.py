"""Payloads: their JSON, what they must not contain, and their digests."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from pollconsumer.core.errors import BadData, PayloadTooLarge
from pollconsumer.core.json_values import explain, to_json

MAX_PAYLOAD_BYTES = 1 << 20
_SUSPECT_NAME = r'"(?:-?[0-9][-+.0-9e]*|null|true|false)":'
"""A name in encoded JSON that was perhaps a number, null, true or false. Compiled at the first such name."""
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_encode_sorted = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def encode_payload(payload: Mapping[str, Any]) -> bytes:
    """The JSON object that is stored for ``payload``: UTF-8, no NaN, at most 1 MiB.

    TypeError for a type without JSON form, ValueError (BadData) for an invalid value. The error says where in
    ``payload`` it is."""
    if not isinstance(payload, dict):
        raise TypeError(f"payload must be a dict of JSON values, not {type(payload).__name__}")
    for name in payload:
        if not isinstance(name, str):
            raise TypeError(f"payload names must be text, not {name!r}")
    return encode_named(payload)


def encode_named(payload: dict[str, Any]) -> bytes:
    """`encode_payload` of a dict whose top-level names are known to be text. Fast, since each message needs it."""
    try:
        text = "".join(quick(payload, 0))
        encoded = text.encode()
    except (TypeError, ValueError, RecursionError):
        _explain(payload)
    else:
        # A name that was no text ends with a digit, or is a word of JSON. These signs are found sooner than a whole
        # name.
        is_suspect = text.rfind("{") and (
            encoded.translate(_ZEROS).find(b'0":') >= 0 or '"null":' in text or '"true":' in text or '"false":' in text
        )
        if is_suspect and re.search(_SUSPECT_NAME, text) and not _has_text_names(payload):
            _explain(payload)
    if len(encoded) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge("payload", f"{len(encoded)} bytes", f"at most {MAX_PAYLOAD_BYTES}; store it elsewhere")
    return encoded


def _has_text_names(whole: object) -> bool:
    """Whether the names of all objects within ``whole`` are text. The encoder would write the names 1 and "1" alike."""
    left = [whole]
    for value in left:  # the list grows meanwhile
        if isinstance(value, dict):
            if not all(isinstance(name, str) for name in value):
                return False
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value
        elif hasattr(type(value), "__dataclass_fields__"):
            left.append(to_json(value))
    return True


def _explain(payload: dict[str, Any]) -> NoReturn:
    """Raise an error that names the value that cannot be encoded, and tells circular references from deep nesting."""
    try:
        explain(payload, "payload", "annotate the handler's parameter with its type, or send JSON's")
    except RecursionError:
        raise BadData("payload", None, "it is nested too deeply") from None


quick: Callable[[Any, int], Iterable[str]] = json.encoder.c_make_encoder(  # type: ignore[attr-defined]
    None, to_json, json.encoder.encode_basestring, None, ":", ",", False, False, False
)
"""Yields the parts of a value's JSON form, for payloads and results: without white space and NaN, and with non-ASCII
as it is. The second argument is always 0. An encoder of ``json`` makes this anew in each call. Made once, and
without the check for circular references, it takes a third of the time. A circular reference raises RecursionError."""


def digest_of(handler: str, payload: bytes) -> str:
    """Digest of handler and payload, 8 bytes as hex. It does not depend on the order of names."""
    from hashlib import blake2b

    return blake2b(f"{handler}\n{canonical_text(payload)}".encode(), digest_size=8).hexdigest()


def canonical_text(payload: bytes) -> str:
    """The JSON of a payload, with its names sorted."""
    if payload.count(b'":') < 2 and b" " not in payload and b"\\" not in payload:  # one name: nothing to sort
        return payload.decode()
    try:
        return _encode_sorted(json.loads(payload))
    except RecursionError:
        raise BadData("payload", None, "it is nested too deeply") from None


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
            value, end = _scan(text, 0)  # as decode does, but without skipping white space
        except StopIteration:
            end = -1
        if end != len(text):
            value = _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"malformed: {error}"[:300]) from None
    if type(value) is not dict:
        raise Malformed(f"malformed: the payload is a {type(value).__name__}, not an object")
    return value
