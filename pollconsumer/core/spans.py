"""Reads durations, quotas and rates from settings, options and calls. People write durations as ``500ms``, ``2s``,
``1m30s``, ``2h``, ``1d``, as a number of seconds, or as a timedelta."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from functools import lru_cache
from json import dumps, loads

from pollconsumer.core.errors import BadData
from pollconsumer.core.notation.text import is_text

Span = str | float | timedelta
"""A duration, as programs write it: text such as ``5m``, seconds, or a timedelta."""
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
    """``seconds`` for people, in at most two units: ``1h 5m``, ``12.3s``, ``48ms``. NaN and infinity as in Python."""
    if not math.isfinite(seconds):
        return str(seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    unit, lower = ("d", "h") if whole >= DAY else ("h", "m") if whole >= UNITS["h"] else ("m", "s")
    count, rest = divmod(whole, int(UNITS[unit]))
    rest //= int(UNITS[lower])
    return f"{count}{unit} {rest}{lower}" if rest else f"{count}{unit}"


def seconds_in(name: str, span: Span) -> float:
    """``span``, the argument ``name`` of a call, in seconds. BadData if invalid, TypeError for another type."""
    try:
        return parse_duration(span)
    except TypeError as error:
        raise TypeError(f"{name} {error}") from None
    except ValueError as error:
        raise BadData(name, span, str(error)) from None


LEAST_PERIOD, MOST_PERIOD = 0.1, 31 * DAY


def parse_quota(quota: str, example: str = "100/1m") -> tuple[int, int]:
    """Number of messages, and period in milliseconds, of a ``quota`` such as ``100/1m``. ValueError if invalid."""
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


MOST_IN_A_PERIOD = 1000
"""Maximum number of messages in a rate's period. The store remembers each message, in six bytes, during the period."""


def parse_rate(rate: object) -> tuple[int, int]:
    """Number of messages, and period in milliseconds, of a ``rate`` such as ``60/1h``. ValueError if invalid."""
    return _parsed(rate if isinstance(rate, str) else "")


@lru_cache(1024)  # each message may have a rate of its own
def _parsed(rate: str) -> tuple[int, int]:
    most, period_ms = parse_quota(rate, "60/1h")
    if most > MOST_IN_A_PERIOD:
        raise ValueError(f"at most {MOST_IN_A_PERIOD} messages; a quota of the queue may be larger")
    return most, period_ms


def check_rate(rate: object, key: object) -> None:
    """Raise BadData if ``rate``, or its rate key ``key``, is invalid. An empty ``rate`` stands for the queue's rate."""
    check_short_key(key, "rate key")
    if rate != "":
        try:
            parse_rate(rate)
        except ValueError as error:
            raise BadData("rate", repr(rate), str(error)) from None


def check_short_key(key: object, what: str) -> str:
    """``key``, if it is valid, else BadData. ``what``: its kind for the error, such as ``rate key``."""
    if not isinstance(key, str) or not is_text(key) or not 0 < len(key.encode()) <= 255 or min(key) < " ":
        raise BadData(what, repr(key), "text of 1 to 255 bytes without control characters")
    return key


def key_of(handler: str, payload: bytes, argument: str | None) -> str:
    """The rate key: ``handler`` and, if ``argument`` is given, its value in ``payload`` (null if it is missing)."""
    if argument is None:
        return handler
    value = loads(payload).get(argument)
    return f"{handler} {value if isinstance(value, str) else dumps(value, separators=(',', ':'))}"
