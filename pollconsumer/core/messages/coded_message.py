"""Encodes messages, and what their sequels have of others, by the codec of their application."""

from __future__ import annotations

from typing import Any

from pollconsumer.core.messages import sequel as sequels
from pollconsumer.core.messages.codec import encoded_json
from pollconsumer.core.messages.message import Codec, NewMessage
from pollconsumer.core.messages.packed_message import Packed, packed, unpacked
from pollconsumer.core.messages.payloads import canonical_text
from pollconsumer.core.users_code import called


def coded(message: NewMessage, codec: Codec) -> NewMessage:
    """``message``, encoded. Raises as the codec."""
    if message.encoded:
        return message
    if message.digest:
        message = message._replace(digest=_digest(message, codec))
    if message.sequel:
        message = message._replace(sequel=_coded_sequel(message.sequel, codec))
    return message._replace(payload=encoded_json(message.payload, codec), encoded=True)


def coded_packed(message: Packed, codec: Codec) -> Packed:
    """The same of a packed message."""
    return packed(coded(unpacked(message), codec))


def _coded_sequel(stored: str, codec: Codec) -> str:
    sequel, _ = sequels.decoded(stored.encode())
    called: dict[str, Any] = {
        name: coded_packed(each, codec) for name in ("then", "failed") if (each := getattr(sequel, name)) is not None
    }
    links = [coded_packed(each, codec) for each in sequel.links]
    return sequels.encoded(sequel._replace(links=links, **called))


def _digest(message: NewMessage, codec: Codec) -> str:
    """The digest of handler and payload under the codec's key; of the handler alone, if it has none: of a payload that
    is easy to guess, a digest without a key would tell who has the store which it is."""
    import hmac
    from hashlib import blake2b, sha256

    key = called(getattr, codec, "digest_key", None)
    if key is None:
        return blake2b(message.handler.encode(), digest_size=8).hexdigest()
    return hmac.new(key, f"{message.handler}\n{canonical_text(message.payload)}".encode(), sha256).hexdigest()[:16]
