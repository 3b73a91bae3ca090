"""Quotas, a number of messages in a period, as settings and options write them."""

from __future__ import annotations

import re

from pollconsumer.core.notation.timespan import DAY, parse_duration

LEAST_PERIOD, MOST_PERIOD = 0.1, 31 * DAY


def parse_quota(quota: str, example: str = "100/1m") -> tuple[int, int]:
    """Messages and milliseconds of the period in ``quota``, written ``100/1m``. ValueError for another text."""
    count, slash, period = quota.partition("/")
    if not slash or not re.fullmatch(r"[0-9]{1,9}", count.strip()) or int(count) == 0:
        raise ValueError(f"write messages / period, as in {example}")
    try:
        seconds = parse_duration(period.strip())
    except ValueError as error:
        raise ValueError(f"its period: {error}") from None
    if not LEAST_PERIOD <= seconds <= MOST_PERIOD:
        raise ValueError("its period must be between 100ms and 31d")
    return int(count), int(seconds * 1000)
