"""Codecs of applications: what the store has of payloads and results in place of their JSON.

An encoded value is JSON, too, so that it can stand wherever the value can: an object with one name that no value of a
user's has, and what the codec made of the value's JSON, in base64.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from pollconsumer.core.messages.message import ENCODED, Codec
from pollconsumer.core.notation import strict_json
from pollconsumer.core.users_code import called, described


class Undecodable(Exception):
    """The codec could not decode a value: the text says why."""


def is_encoded(value: object) -> bool:
    return type(value) is dict and ENCODED in value


def encoded_json(data: bytes, codec: Codec) -> bytes:
    """The JSON of what the codec makes of ``data``, which is JSON. Raises as the codec."""
    return b'{"%b":"%b"}' % (ENCODED.encode(), b64encode(called(codec.encode, data)))


def decoded_value(value: Any, codec: Codec) -> Any:
    """The value that ``value`` stands for: itself, if it is not encoded. Undecodable, if the codec refuses."""
    if not is_encoded(value):
        return value
    try:
        found = strict_json.parse(called(codec.decode, _content(value)))
    except Exception as error:
        raise Undecodable(f"the codec raised {described(error)}") from error
    rest = {name: each for name, each in value.items() if name != ENCODED}
    return {**found, **rest} if rest else found


def readable_value(value: Any, codec: Codec | None) -> Any:
    """`decoded_value` for people: what cannot be decoded as it is."""
    try:
        return value if codec is None else decoded_value(value, codec)
    except Undecodable:
        return value


def shown_value(value: Any) -> Any:
    """What is shown of a value without its codec: of an encoded one the size."""
    if not is_encoded(value):
        return value
    try:
        return {"encoded_bytes": len(_content(value))}
    except ValueError:
        return {"encoded_bytes": None}


def _content(value: dict[str, Any]) -> bytes:
    return b64decode(str(value[ENCODED]), validate=True)
