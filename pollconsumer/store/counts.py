"""Counts that are kept in the store, as anybody may have written them there."""

from __future__ import annotations

MOST_DIGITS = 16
"""Of the greatest whole numbers that Lua counts on exactly."""


def count_of(text: bytes | None) -> int:
    """The count in ``text``; 0 where there is none, and for what is no number."""
    digits = (text or b"").removeprefix(b"-")
    return int(text or b"0") if digits.isdigit() and len(digits) <= MOST_DIGITS else 0
