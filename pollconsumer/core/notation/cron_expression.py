"""Cron expressions, and their instants in a time zone, as in Debian's cron.

cronsim parses the expression and matches its days. This module handles changes of the clock, by the rules of the main
loop of Debian's cron. If the clock goes forward by less than three hours, a fixed time that it skips occurs right after
the change; several of them occur as one. If the clock goes back by up to three hours, a repeated fixed time occurs
once. An expression whose minute or hour begins with a star follows the clock. After a larger change skipped times are
left out, and repeated times occur again."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import date, datetime, timedelta, tzinfo

from cronsim import CronSim, CronSimError
from cronsim.cronsim import Field

from pollconsumer.core.notation.digests import sha256
from pollconsumer.core.notation.instants import EPOCH, FIRST_MILLISECOND, LAST_MILLISECOND, datetime_of

YEARS_SEARCHED = 50
"""If no day matches in so many years, none ever does: 29 February falls on every day of the week within 40 years."""
LAST_YEAR = 9990
"""The last year in which days are searched: Python's calendar ends soon after it."""
DAY, MINUTE, SECOND = 86_400_000, 60_000, 1000
MADE_UP_FOR = {False: 180 * MINUTE, True: 5 * MINUTE}
"""Longest forward jump of the clock whose skipped times occur right after it, by whether the expression follows the
clock."""
NOT_REPEATED = 181 * MINUTE
"""Longest backward jump of the clock after which repeated fixed times do not occur again."""


NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_HASHED = re.compile(r"H(?:\(([0-9]{1,2})-([0-9]{1,2})\))?(?:/([0-9]{1,2}))?")
_HASHED_VALUES = ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6))
"""The range of ``H`` in each field. Every month has days 1 to 28. Sunday is 0 only, not 7 as well."""


def five_fields(expression: str) -> str:
    """The five fields that a nickname such as ``@daily`` stands for. Any other expression is returned as it is.
    ValueError for ``@reboot`` and unknown nicknames."""
    name = expression.strip().lower()
    if not name.startswith("@"):
        return expression
    if name == "@reboot":
        raise ValueError("@reboot names no time, write five fields")
    if name not in NICKNAMES:
        raise ValueError(f"no such nickname, write five fields or one of {', '.join(NICKNAMES)}")
    return NICKNAMES[name]


def spread(expression: str, seed: str) -> str:
    """``expression`` with each ``H`` replaced, as in Jenkins, by a value that depends on ``seed`` alone. ``H(0-29)`` is
    a value in this range. ``H/15`` is every 15th value and ``H(0-29)/10`` every tenth of the range, from a first one
    that depends on ``seed``. ValueError for an ``H`` that stands for no value."""
    fields = expression.split()
    if len(fields) != 5 or "H" not in expression:
        return expression
    for at, part in enumerate(fields):
        chosen = int(sha256(f"{seed}\n{at}".encode())[:12], 16)
        fields[at] = ",".join(_chosen(term, at, chosen) for term in part.split(","))
    return " ".join(fields)


def _chosen(term: str, at: int, chosen: int) -> str:
    """``term``, of the field number ``at``, with its ``H`` replaced by the value that the number ``chosen`` selects."""
    hashed = _HASHED.fullmatch(term)
    if hashed is None:
        return term
    least, most = _HASHED_VALUES[at]
    first, last, step = (
        int(given or default) for given, default in zip(hashed.groups(), (least, most, 0), strict=True)
    )
    if not least <= first <= last <= most or step > last - first + 1 or (hashed[3] and not step):
        raise ValueError(f"{term} stands for no value of {least}-{most}, field {at + 1}")
    if not step:
        return str(first + chosen % (last - first + 1))
    first += chosen % step
    return f"{first}-{last}/{step}"


class Cron:
    """An expression of five fields, or a nickname. ValueError if it is invalid."""

    def __init__(self, expression: str) -> None:
        fields = five_fields(expression).upper().split()
        if len(fields) != 5:
            raise ValueError("not a cron expression of five fields")
        fields = [_read_as_ranges(part, Field(at)) for at, part in enumerate(fields, Field.MINUTE)]
        try:
            parsed = CronSim(" ".join(fields), EPOCH)
        except (CronSimError, AssertionError, TypeError, ValueError):  # the last three for misplaced L and #
            raise ValueError("not a cron expression") from None
        self._matches, self._months = parsed.match_day, parsed.months
        self._hours, self._minutes = sorted(parsed.hours), sorted(parsed.minutes)
        self._follows_clock = fields[0].startswith("*") or fields[1].startswith("*")

    def instants(self, after_ms: int, zone: tzinfo) -> Iterator[int]:
        """Instants later than ``after_ms``, in epoch milliseconds, ascending, until none is left."""
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
        """Local times that match the expression, in ms, each with the offsets from UTC before and after a change of the
        clock. The two differ only if that change skips or repeats the time."""
        after_ms = min(max(after_ms, FIRST_MILLISECOND + DAY), LAST_MILLISECOND - DAY)
        start = datetime_of(after_ms).astimezone(zone)
        shown_ms = after_ms + _offset(start)
        shown_ms -= max(0, _offset(start) - _offset(start.replace(fold=1)))  # for times that are about to be repeated
        for day in self._days(datetime_of(shown_ms).date()):
            midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
            day_ms = (day.toordinal() - EPOCH.toordinal()) * DAY
            for hour in self._hours[bisect_left(self._hours, (shown_ms - day_ms) // (60 * MINUTE)) :]:
                passed = (shown_ms - day_ms) // MINUTE - hour * 60  # minutes of the displayed hour that are over
                for minute in self._minutes[bisect_left(self._minutes, passed) :]:
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
    """``part`` with each range of a single value replaced by that value, since cronsim reads 6-6/10 as 6/10."""
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
    """The instant at which the clock goes forward and thereby skips ``local_ms``."""
    low, high = (local_ms - after) // SECOND, (local_ms - before) // SECOND
    while high - low > 1:
        middle = (low + high) // 2
        changed = _offset(datetime_of(middle * SECOND).astimezone(zone)) == after
        low, high = (low, middle) if changed else (middle, high)
    return high * SECOND
