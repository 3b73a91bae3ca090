"""Instants as datetimes, as milliseconds since the epoch, and as text; and seconds as milliseconds."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from pollconsumer.core.notation.text import counted

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MILLISECOND = 253_402_300_799_999
"""The end of year 9999, in milliseconds since the epoch: Python has no later dates."""
_MILLISECOND = timedelta(milliseconds=1)
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def datetime_of(epoch_ms: int) -> datetime:
    """The instant as a datetime in UTC."""
    return EPOCH + timedelta(milliseconds=epoch_ms)


def epoch_ms(moment: datetime) -> int:
    """``moment``, an aware datetime, rounded down to the millisecond."""
    return (moment - EPOCH) // _MILLISECOND


def exact_epoch_ms(moment: datetime) -> float:
    """``moment`` in milliseconds, with its microseconds as a fraction."""
    return (moment - EPOCH) / _MILLISECOND


def ceil_epoch_ms(moment: datetime) -> int:
    """``moment`` rounded up to the millisecond, for due times, which must not be early."""
    return -((EPOCH - moment) // _MILLISECOND)


def ceil_ms(seconds: float) -> int:
    """``seconds`` in milliseconds, rounded up, so that no timer fires early, except for floating-point errors: 4.016 s
    are 4016 ms."""
    return math.ceil(seconds * 1000 - 1e-6)


def iso(epoch_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds, as in ``2030-01-31T09:00:00.000Z``, at most the end of year 9999."""
    return iso_of(datetime_of(min(epoch_ms, LAST_MILLISECOND)))


def iso_of(moment: datetime, timespec: str = "milliseconds") -> str:
    """``moment``, which is in UTC, as ISO 8601, truncated to ``timespec``."""
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def ago(epoch_ms: int, now_ms: int) -> str:
    """``3 minutes ago`` or ``in 3 minutes``, in the largest whole unit; ``now`` within a second."""
    seconds = abs(now_ms - epoch_ms) // 1000
    for size, unit in _UNITS:
        if count := seconds // size:
            text = counted(count, unit)
            return f"{text} ago" if epoch_ms < now_ms else f"in {text}"
    return "now"
