"""Durations as people write them: ``500ms``, ``2s``, ``1m30s``, ``2h``, ``1d``, a number of seconds, or a timedelta."""

from __future__ import annotations

import math
import re
from datetime import timedelta

Span = str | float | timedelta
"""A duration, as programs write it."""
DAY, YEAR = 86400.0, 365 * 86400.0
UNITS = {"d": DAY, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = r"(\d+(?:\.\d+)?)(ms|[dhms])"
_WHOLE = rf"(?:{_PART})+"


def parse_duration(value: Span) -> float:
    """``value`` in seconds. ValueError if it is invalid, negative or not finite; TypeError for another type."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"must be seconds, text such as 1m30s, or a timedelta, not {type(value).__name__}")
    # This comes first: if a float() fails, an exception that a signal handler raises meanwhile is lost.
    if isinstance(value, str) and re.fullmatch(_WHOLE, value.strip()):
        seconds = sum(float(number) * UNITS[unit] for number, unit in re.findall(_PART, value))
    else:
        try:
            seconds = float(value)
        except OverflowError:
            raise ValueError("must be 0 or more, and finite") from None
        except ValueError:
            daily = '; a time of day is a cron expression, as in "30 2 * * *"' if ":" in str(value) else ""
            raise ValueError(f"units are ms, s, m, h, d, as in 500ms, 2s or 1m30s{daily}") from None
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError("must be 0 or more, and finite")
    return seconds


def format_duration(seconds: float) -> str:
    """``seconds`` for people, in at most two units: ``1h 5m``, ``12.3s``, ``48ms``. NaN and infinity are written as
    Python does."""
    if not math.isfinite(seconds):
        return str(seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for unit, size, lower in (("d", 86400, "h"), ("h", 3600, "m"), ("m", 60, "s")):
        if whole >= size:
            count, rest = divmod(whole, size)
            rest //= int(UNITS[lower])
            return f"{count}{unit} {rest}{lower}" if rest else f"{count}{unit}"
    raise AssertionError("unreachable: 60 s or more is a minute at least")
