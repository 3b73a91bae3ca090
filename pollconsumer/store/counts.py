"""Reading of stored counts, which may be corrupt."""

from __future__ import annotations

MOST_DIGITS = 16
"""Of the largest integers that Lua represents exactly."""


def count_of(text: bytes | None) -> int:
    """The count in ``text``; 0 if it is missing or corrupt."""
    digits = (text or b"").removeprefix(b"-")
    return int(text or b"0") if digits.isdigit() and len(digits) <= MOST_DIGITS else 0
