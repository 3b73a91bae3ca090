"""Instants as datetimes, as milliseconds since the epoch, and as text; and seconds as milliseconds."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from pollconsumer.core.notation.text import counted

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MILLISECOND = 253_402_300_799_999
"""The end of year 9999, in milliseconds since the epoch: Python has no later dates."""
LEAST_EPOCH_SECONDS = 1_000_000_000
"""The least number that is read as an instant (in 2001). A smaller number was meant as a delay."""
FIRST_MILLISECOND = -62_135_596_800_000
TOO_LATE = "must not be beyond year 9999"
_FINER_THAN_MICROSECONDS, _LONG_YEAR = r"[.,]\d{6}\d*[1-9]", r"\+?\d{5,}-"
_MILLISECOND = timedelta(milliseconds=1)
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def datetime_of(instant: int | datetime) -> datetime:
    """The instant, in epoch milliseconds, as a datetime in UTC. The store may hold any number: one outside Python's
    range becomes the nearest instant in the range. A datetime is returned as it is."""
    if isinstance(instant, datetime):
        return instant
    return EPOCH + timedelta(milliseconds=min(max(instant, FIRST_MILLISECOND), LAST_MILLISECOND))


def read_instant(text: str) -> int:
    """The ISO 8601 time ``text`` in epoch milliseconds, rounded up so that no message is early. The text of the
    ValueError says which rule ``text`` breaks."""
    if re.match(_LONG_YEAR, text):
        raise ValueError(TOO_LATE)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("write ISO 8601 with an offset or Z, as in 2030-01-31T09:00:00Z") from None
    if moment.tzinfo is None:
        raise ValueError("needs an offset or Z, as in 2030-01-31T09:00:00Z")
    return due_of(moment, finer=re.search(_FINER_THAN_MICROSECONDS, text) is not None)


def given_instant(value: object) -> datetime:
    """An instant from JSON: text, as for `read_instant`, or seconds since the epoch. ValueError for anything else, also
    for a number that must be milliseconds or a delay. The error's text says which rule ``value`` breaks."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not LEAST_EPOCH_SECONDS <= value <= LAST_MILLISECOND / 1000:
            raise ValueError("a number is seconds since the epoch, as in 1893456000, or write ISO 8601")
        return EPOCH + timedelta(seconds=value)
    return datetime_of(read_instant(str(value)))


def due_of(moment: datetime, *, finer: bool = False) -> int:
    """An aware ``moment`` as a due time in epoch milliseconds, rounded up. A past one, even before year 1, is due now.
    ``finer``: the user wrote ``moment`` with digits beyond microseconds. ValueError after year 9999."""
    microseconds = (moment - EPOCH) // timedelta(microseconds=1) + finer
    if microseconds > LAST_MILLISECOND * 1000:
        raise ValueError(TOO_LATE)
    return max(1, -(-microseconds // 1000))


def epoch_ms(moment: datetime) -> int:
    """The aware datetime ``moment`` in epoch milliseconds, rounded down."""
    return (moment - EPOCH) // _MILLISECOND


def exact_epoch_ms(moment: datetime) -> float:
    """``moment`` in epoch milliseconds, with microseconds as a fraction."""
    return (moment - EPOCH) / _MILLISECOND


def ceil_epoch_ms(moment: datetime) -> int:
    """``moment`` in epoch milliseconds, rounded up: a due time must not be early."""
    return -((EPOCH - moment) // _MILLISECOND)


def ceil_ms(seconds: float) -> int:
    """``seconds`` in milliseconds, rounded up so that no timer fires early. A mere floating-point error is not rounded
    up: 4.016 s are 4016 ms."""
    return math.ceil(seconds * 1000 - 1e-6)


def moment_of(instant: int | None) -> datetime | None:
    """`datetime_of`, or None for None."""
    return None if instant is None else datetime_of(instant)


def iso(instant: int | datetime) -> str:
    """ISO 8601 in UTC with milliseconds, ``2030-01-31T09:00:00.000Z``, of the instant that `datetime_of` returns."""
    return iso_of(datetime_of(instant))


def iso_of(moment: datetime, timespec: str = "milliseconds") -> str:
    """``moment``, which must be in UTC, as ISO 8601, truncated to the unit ``timespec``."""
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def clock(epoch_ms: int, now_ms: int, *, utc: bool = False) -> str:
    """A time such as ``23:19:01``, with its date if ``now_ms`` has another; in this machine's zone, or in UTC."""
    latest = LAST_MILLISECOND - 86_400_000  # until then Python has dates in each zone
    zone = UTC if utc else None
    moment, now = (datetime_of(min(at, latest)).astimezone(zone) for at in (epoch_ms, now_ms))
    return moment.strftime("%H:%M:%S" if moment.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def ago(instant: int | datetime, now_ms: int) -> str:
    """Text such as ``3 minutes ago`` or ``in 3 minutes``, in the largest whole unit; ``now`` for less than a second."""
    at_ms = epoch_ms(instant) if isinstance(instant, datetime) else instant
    seconds = abs(now_ms - at_ms) // 1000
    for size, unit in _UNITS:
        if count := seconds // size:
            text = counted(count, unit)
            return f"{text} ago" if at_ms < now_ms else f"in {text}"
    return "now"
