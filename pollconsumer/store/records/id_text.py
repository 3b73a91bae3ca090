"""Ids as text. Valid ids are ASCII; ids that others wrote to the store may be any bytes."""

from __future__ import annotations

import re


def id_text(stored: bytes) -> str:
    """Inverse of `id_bytes`. Escapes bytes that are not UTF-8, as in ``\\xff``, and backslashes that would read as
    such."""
    if b"\\" in stored:
        stored = re.sub(rb"\\(?=x(?:5c|[89a-f][0-9a-f]))", rb"\\x5c", stored)
    return stored.decode("utf-8", "backslashreplace")


def id_bytes(text: str) -> bytes:
    """Inverse of `id_text`. Arguments of a command line may contain undecodable bytes."""
    stored = text.encode("utf-8", "surrogateescape")
    if b"\\" not in stored:
        return stored
    return re.sub(rb"\\x(5c|[89a-f][0-9a-f])", lambda escaped: bytes([int(escaped[1], 16)]), stored)
