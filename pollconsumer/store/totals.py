"""Totals of all launches, which never fall: fields of one hash, that name what was counted. Read by
`totals_reading.py`.

A histogram's buckets double: the first has all below a millisecond, number n those below 2ⁿ milliseconds, the last one
all longer ones.
"""

from __future__ import annotations

LAST_BUCKET = 24
"""For spans of 2.3 hours and more."""
SUM = "us"
"""Stands for a bucket in the name of a histogram's sum, in microseconds."""


def settled(queue: str, handler: str, outcome: str) -> str:
    return f"settled\n{queue}\n{handler}\n{outcome}"


def bucket(histogram: str, subject: str, number: int) -> str:
    """How many spans of ``subject`` are in that bucket."""
    return f"{histogram}\n{subject}\n{number}"


def total(histogram: str, subject: str) -> str:
    """Their sum in microseconds."""
    return f"{histogram}\n{subject}\n{SUM}"
