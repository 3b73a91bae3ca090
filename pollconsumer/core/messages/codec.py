"""Encoding and decoding of payloads and results by an application's codec. The store gets them encoded.

An encoded value is JSON, too, so it can stand wherever the value can: an object with one reserved name, whose value is
the codec's output in base64."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from typing import Any

from pollconsumer.core import json_values
from pollconsumer.core.errors import PayloadTooLarge
from pollconsumer.core.messages import continuation as continuations
from pollconsumer.core.messages.continuation import Packed
from pollconsumer.core.messages.message import ENCODED, Codec, NewMessage
from pollconsumer.core.messages.payloads import MAX_PAYLOAD_BYTES, canonical_text
from pollconsumer.core.users_code import called, described


class Undecodable(Exception):
    """The codec could not decode a value: the text says why."""


def is_encoded(value: object) -> bool:
    return type(value) is dict and ENCODED in value


def encoded_json(data: bytes, codec: Codec | None) -> bytes:
    """The JSON that is stored in place of ``data``, which is JSON: what the codec encodes, or ``data`` itself without a
    codec. Raises what the codec raises, TypeError if it returns no bytes, PayloadTooLarge if it returns too many."""
    if codec is None:
        return data
    made = called(codec.encode, data)
    if not isinstance(made, bytes | bytearray | memoryview):
        raise TypeError(f"the codec's encode must return bytes, not {type(made).__name__}")
    if len(made) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            "payload", f"{len(made)} bytes, encoded", f"at most {MAX_PAYLOAD_BYTES}; store it elsewhere"
        )
    return b'{"%b":"%b"}' % (ENCODED.encode(), b2a_base64(made, newline=False))


def decoded_value(value: Any, codec: Codec | None) -> Any:
    """``value``, decoded; unchanged if it is not encoded, or without a codec. Undecodable if the codec raises."""
    if codec is None or not is_encoded(value):
        return value
    try:
        found = json_values.parse(called(codec.decode, _content(value)))
    except Exception as error:
        raise Undecodable(f"the codec raised {described(error)}") from error
    rest = {name: each for name, each in value.items() if name != ENCODED}
    return {**_object(found), **rest} if rest else found


def decoded_object(value: dict[str, Any], codec: Codec | None) -> dict[str, Any]:
    """`decoded_value` of a payload or a state, each an object. Undecodable, too, if the decoded value is no object."""
    return _object(decoded_value(value, codec))


def _object(found: Any) -> dict[str, Any]:
    if type(found) is not dict:
        raise Undecodable(f"the codec decoded a {type(found).__name__}, not an object")
    return found


def readable_value(value: Any, codec: Codec | None) -> Any:
    """`decoded_value` for people: if ``value`` cannot be decoded, it is returned as it is."""
    try:
        return decoded_value(value, codec)
    except Undecodable:
        return value


def shown_value(value: Any) -> Any:
    """What to show of a value without its codec: the size of an encoded value; any other value as it is."""
    if not is_encoded(value):
        return value
    try:
        return {"encoded_bytes": len(_content(value))}
    except ValueError:
        return {"encoded_bytes": None}


def _content(value: dict[str, Any]) -> bytes:
    return a2b_base64(str(value[ENCODED]), strict_mode=True)


def coded(message: NewMessage, codec: Codec) -> NewMessage:
    """``message`` with its payload, callbacks and links encoded. Raises what the codec raises."""
    if message.encoded:
        return message
    if message.digest:
        message = message._replace(digest=_digest(message, codec))
    if message.continuation:
        continuation, _ = continuations.decoded(message.continuation.encode())
        callbacks = {"then": continuation.then, "failed": continuation.failed}
        coded_ones: dict[str, Any] = {name: each and coded_packed(each, codec) for name, each in callbacks.items()}
        links = [coded_packed(each, codec) for each in continuation.links]
        message = message._replace(continuation=continuations.encoded(continuation._replace(links=links, **coded_ones)))
    return message._replace(payload=encoded_json(message.payload, codec), encoded=True)


def coded_packed(message: Packed, codec: Codec) -> Packed:
    """`coded` for a message packed as a dict."""
    return continuations.packed(coded(continuations.unpacked(message), codec))


def _digest(message: NewMessage, codec: Codec) -> str:
    """The digest of handler and payload, keyed by the codec's ``digest_key``. Without a key it is a digest of the
    handler alone: by an unkeyed digest of the payload, a reader of the store could confirm a guess at the payload."""
    import hmac
    from hashlib import blake2b, sha256

    key = called(getattr, codec, "digest_key", None)
    if key is None:
        return blake2b(message.handler.encode(), digest_size=8).hexdigest()
    return hmac.new(key, f"{message.handler}\n{canonical_text(message.payload)}".encode(), sha256).hexdigest()[:16]
