"""Ids as people see them. Ours are text; what somebody else pushed may be any bytes, and must be named all the same."""

from __future__ import annotations

import re


def id_text(stored: bytes) -> str:
    """An id as text, from which `id_bytes` makes the same id again.

    Bytes that are no UTF-8 are escaped, as in ``\\xff``, and so is a backslash that would be taken for such an escape.
    """
    if b"\\" in stored:
        stored = re.sub(rb"\\(?=x(?:5c|[89a-f][0-9a-f]))", rb"\\x5c", stored)
    return stored.decode("utf-8", "backslashreplace")


def id_bytes(text: str) -> bytes:
    """The id that `id_text` made ``text`` of. A command line may bring bytes that are no text."""
    stored = text.encode("utf-8", "surrogateescape")
    if b"\\" not in stored:
        return stored
    return re.sub(rb"\\x(5c|[89a-f][0-9a-f])", lambda escaped: bytes([int(escaped[1], 16)]), stored)
