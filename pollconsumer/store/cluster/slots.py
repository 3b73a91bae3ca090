"""Which slot of a cluster a command belongs to."""

from __future__ import annotations

from binascii import crc_hqx
from functools import lru_cache
from typing import Any

SLOTS = 16384
KEYLESS = frozenset({"TIME", "INFO"})
"""Commands of ours that name no key."""


@lru_cache(4096)
def slot_of(key: str | bytes) -> int:
    """The slot of a key: the CRC16 of its hash tag, if it has one, or of the whole key."""
    name = key.encode() if isinstance(key, str) else key
    _, opened, rest = name.partition(b"{")
    tag, closed, _ = rest.partition(b"}")
    return crc_hqx(tag if opened and closed and tag else name, 0) % SLOTS


def key_of(command: tuple[Any, ...], home: str) -> str | bytes:
    """The first key of a command, ``home`` if it has none: its other keys are in the same slot."""
    name = command[0]
    if name == "EVALSHA":
        key: str | bytes = command[3]
        return key
    return home if name in KEYLESS else command[1]
