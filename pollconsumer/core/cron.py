"""Cron expressions, and the instants that they name in a time zone, as Debian's cron has them.

cronsim reads the expression and matches its days; what a change of the clock does to an instant is decided here, by the
rules of the main loop of Debian's cron. Where the clock goes forward by less than three hours, a fixed time that it
skips comes right after the change, several of them as one. Where it goes back by up to three hours, a fixed time that
it repeats comes once. An expression whose minute or hour begins with a star follows the clock: it comes whenever the
clock shows its time. A jump of more than that is taken for the setting of a clock: nothing is made up for, and what the
clock shows again comes again.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import date, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from cronsim import CronSim, CronSimError
from cronsim.cronsim import Field

from pollconsumer.core.instants import EPOCH, datetime_of

if TYPE_CHECKING:
    from collections.abc import Iterator

YEARS_SEARCHED = 50
"""After so many years without a match there is none: 29 February falls on each day of the week within 40."""
LAST_YEAR = 9990
"""The calendar of Python ends soon after it."""
DAY, MINUTE, SECOND = 86_400_000, 60_000, 1000
MADE_UP_FOR = {False: 180 * MINUTE, True: 5 * MINUTE}
"""Fixed times, and times that follow the clock, come after a gap that is shorter than this."""
NOT_REPEATED = 181 * MINUTE
"""Fixed times come once, where the clock goes back by no more than this."""


class Cron:
    """An expression of five fields. ValueError for what is none."""

    def __init__(self, expression: str) -> None:
        fields = expression.upper().split()
        if len(fields) != 5:
            raise ValueError("not a cron expression of five fields")
        fields = [_read_as_ranges(part, Field(at)) for at, part in enumerate(fields, Field.MINUTE)]
        try:
            parsed = CronSim(" ".join(fields), EPOCH)
        except (CronSimError, AssertionError, TypeError, ValueError):  # the last three for L and # in a wrong place
            raise ValueError("not a cron expression") from None
        self._matches, self._months = parsed.match_day, parsed.months
        self._hours, self._minutes = sorted(parsed.hours), sorted(parsed.minutes)
        self._follows_clock = fields[0].startswith("*") or fields[1].startswith("*")

    def instants(self, after_ms: int, zone: tzinfo) -> Iterator[int]:
        """Instants later than ``after_ms``, in epoch milliseconds, ascending; without end, unless none is left."""
        last, repeated = after_ms, list[int]()
        for local_ms, before, after in self._times(after_ms, zone):
            if after > before and after - before >= MADE_UP_FOR[self._follows_clock]:
                continue
            instant = local_ms - before if after <= before else _end_of_gap(local_ms, before, after, zone)
            while repeated and repeated[0] < instant:
                again = repeated.pop(0)
                if again > last:
                    last = again
                    yield again
            if after < before and (self._follows_clock or before - after > NOT_REPEATED):
                repeated.append(local_ms - after)
            if instant > last:
                last = instant
                yield instant

    def _times(self, after_ms: int, zone: tzinfo) -> Iterator[tuple[int, int, int]]:
        """Times that the expression names, as the clock shows them, in ms; with the clock's offset from UTC if the next
        change has not happened by then, and if it has. They differ where the clock skips a time or shows it twice."""
        start = datetime_of(after_ms).astimezone(zone)
        shown_ms = after_ms + _offset(start)
        shown_ms -= max(0, _offset(start) - _offset(start.replace(fold=1)))  # times that are to be shown again
        for day in self._days(datetime_of(shown_ms).date()):
            midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
            day_ms = (day.toordinal() - EPOCH.toordinal()) * DAY
            for hour in self._hours[bisect_left(self._hours, (shown_ms - day_ms) // (60 * MINUTE)) :]:
                for minute in self._minutes:
                    local = midnight.replace(hour=hour, minute=minute)
                    local_ms = day_ms + (hour * 60 + minute) * MINUTE
                    yield local_ms, _offset(local), _offset(local.replace(fold=1))

    def _days(self, day: date) -> Iterator[date]:
        until = day.year + YEARS_SEARCHED
        while day.year <= min(until, LAST_YEAR):
            if day.month not in self._months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if self._matches(day):
                until = day.year + YEARS_SEARCHED
                yield day
            day += timedelta(days=1)


def _read_as_ranges(part: str, field: Field) -> str:
    """``part`` of an expression with ranges of one value written as that value: cronsim takes 6-6/10 for 6/10."""
    terms = []
    for term in part.split(","):
        span, _, step = term.partition("/")
        first, dash, _ = span.partition("-")
        try:
            one = bool(dash and step and int(step) > 0 and len(field.parse(span)) == 1)
        except (CronSimError, ValueError):
            one = False
        terms.append(first if one else term)
    return ",".join(terms)


def _offset(local: datetime) -> int:
    offset = local.utcoffset()
    assert offset is not None
    return offset // timedelta(milliseconds=1)


def _end_of_gap(local_ms: int, before: int, after: int, zone: tzinfo) -> int:
    """The instant at which the clock skips the time ``local_ms``, by changing its offset."""
    low, high = (local_ms - after) // SECOND, (local_ms - before) // SECOND
    while high - low > 1:
        middle = (low + high) // 2
        changed = _offset(datetime_of(middle * SECOND).astimezone(zone)) == after
        low, high = (low, middle) if changed else (middle, high)
    return high * SECOND
