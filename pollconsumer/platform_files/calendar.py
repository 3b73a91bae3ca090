"""Cron expressions in the dialects of other launchers.

They agree on stars, lists, ranges and steps. Sunday is 0 everywhere, and 7 in some.
"""

from __future__ import annotations

import re
from datetime import UTC
from itertools import islice, pairwise

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.notation.cron_expression import Cron

DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
FIRST_AND_LAST = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
LEAST_OF_GITHUB = 300


def with_sunday_0(schedule: str) -> str:
    """The schedule for Kubernetes and GitHub, where Sunday is 0 alone."""
    *others, weekday = _plain(schedule)
    return " ".join([*others, weekday if weekday == "*" else _listed(_numbers(weekday, 4))])


def for_azure(schedule: str) -> str:
    """The schedule for Azure, in six fields, seconds first; a day must match both of its fields, where cron asks for
    one of them."""
    if _either_day(schedule):
        raise ConfigurationError("schedule", schedule, "Azure cannot take both day of month and day of week")
    return f"0 {with_sunday_0(schedule)}"


def for_github(schedule: str) -> str:
    """The schedule for GitHub, at most every five minutes."""
    instants = [*islice(Cron(schedule).instants(0, UTC), 500)]
    closest = min((after - before for before, after in pairwise(instants)), default=LEAST_OF_GITHUB * 1000)
    return "*/5 * * * *" if closest < LEAST_OF_GITHUB * 1000 else with_sunday_0(schedule)


def for_systemd(schedule: str) -> list[str]:
    """Values of OnCalendar: two where cron asks for one of both days, systemd for both."""
    minute, hour, day, month, weekday = (
        text if text == "*" else _stepped(text, index) or _listed(_numbers(text, index))
        for index, text in enumerate(_plain(schedule))
    )
    time = f"{hour}:{minute}:00"
    weekdays = "" if weekday == "*" else ",".join(_weekday(number) for number in weekday.split(",")) + " "
    if _either_day(schedule):
        return [f"*-{month}-{day} {time}", f"{weekdays}*-{month}-* {time}"]
    return [f"{weekdays}*-{month}-{day} {time}"]


def _weekday(number: str) -> str:
    return DAYS[int(number)].capitalize()


def _either_day(schedule: str) -> bool:
    _, _, day, _, weekday = schedule.split()
    return not day.startswith("*") and not weekday.startswith("*")


def _plain(schedule: str) -> list[str]:
    """The schedule's fields, with numbers in place of names. ConfigurationError for L, W, # or ?."""
    fields = schedule.upper().split()
    for index, names, first in ((3, MONTHS, 1), (4, DAYS, 0)):
        for number, name in enumerate(names, first):
            fields[index] = re.sub(rf"\b{name}\b", str(number), fields[index])
    if any(character in field for field in fields for character in "LW#?"):
        raise ConfigurationError("schedule", schedule, "this platform has no L, W, # or ?")
    return fields


def _stepped(text: str, index: int) -> str | None:
    """A field such as ``*/5``, written ``0/5``; None for any other field, and for the days of the week, which have no
    steps in systemd."""
    found = re.fullmatch(r"\*/(\d+)", text)
    return f"{FIRST_AND_LAST[index][0]}/{found[1]}" if found and index != 4 else None


def _numbers(text: str, index: int) -> list[int]:
    first, last = FIRST_AND_LAST[index]
    found = set[int]()
    for term in text.split(","):
        span, _, step = term.partition("/")
        begin, _, end = span.partition("-")
        low = first if span == "*" else int(begin)
        high = int(end) if end else last if span == "*" or step else low
        found |= {*range(low, high + 1, int(step or 1))}
    return sorted({number % 7 for number in found} if index == 4 else found)


def _listed(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))
