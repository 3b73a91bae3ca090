"""Cron expressions in the notations of other launchers.

Most have stars, lists, ranges and steps. Sunday is 0 in most, in some also 7; in EventBridge it is 1."""

from __future__ import annotations

import re
from datetime import UTC
from itertools import islice, pairwise, product

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.notation.cron_expression import Cron

DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
FIRST_AND_LAST = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
FIVE_MINUTES, HOUR, DAY = 300, 3_600, 86_400
HEROKU = {HOUR: "*/10 * * * *", DAY: "0 * * * *"}
"""Heroku's intervals below a day. Each serves schedules whose launches are fewer seconds apart than its key."""
MOST_OF_LAUNCHD = 400
"""Maximum number of instants in launchd's property list."""
KEYS_OF_LAUNCHD = ("Minute", "Hour", "Day", "Month", "Weekday")


def with_sunday_0(schedule: str) -> str:
    """The schedule for platforms where Sunday is only 0."""
    _refuse_both_days(schedule, "this platform")
    return _with_sunday_0(schedule)


def _with_sunday_0(schedule: str) -> str:
    *others, weekday = _fields(schedule)
    return " ".join([*others, weekday if weekday == "*" else _listed(_numbers(weekday, 4))])


def for_azure(schedule: str) -> str:
    """The schedule for Azure, in six fields, seconds first. There a day must match both fields for days, in cron only
    one of them."""
    if _either_day(schedule):
        raise ConfigurationError("schedule", schedule, "Azure cannot take both day of month and day of week")
    return f"0 {_with_sunday_0(schedule)}"


def every_five_minutes(schedule: str) -> str:
    """The schedule for GitHub, GitLab and Railway, which launch at most every five minutes."""
    return "*/5 * * * *" if least_gap(schedule) < FIVE_MINUTES else with_sunday_0(schedule)


def for_heroku(schedule: str) -> str:
    """The longest interval of Heroku Scheduler within the time between launches: a day, an hour, else ten minutes."""
    gap = least_gap(schedule)
    return next((interval for most, interval in HEROKU.items() if gap < most), "0 0 * * *")


def for_aws(schedule: str) -> str:
    """The schedule for EventBridge. There one of the two fields for days is a question mark, and Sunday is 1."""
    if _either_day(schedule):
        raise ConfigurationError("schedule", schedule, "EventBridge cannot take both day of month and day of week")
    _refuse_both_days(schedule, "EventBridge")
    minute, hour, day, month, weekday = _listed_fields(schedule)
    if weekday != "*":
        day, weekday = "?", ",".join(DAYS[int(number)] for number in weekday.split(","))
    return f"cron({minute} {hour} {day} {month} {'?' if weekday == '*' else weekday} *)"


def for_launchd(schedule: str) -> list[dict[str, int]]:
    """Values of StartCalendarInterval. Each gives an instant by the fields that are not stars."""
    _refuse_both_days(schedule, "launchd")
    numbers = [None if text == "*" else _numbers(text, index) for index, text in enumerate(_fields(schedule))]
    found = []
    for left_out in (4, 2) if _either_day(schedule) else (None,):
        named = {KEYS_OF_LAUNCHD[at]: each for at, each in enumerate(numbers) if each is not None and at != left_out}
        found += [dict(zip(named, values, strict=True)) for values in product(*named.values())]
    if len(found) > MOST_OF_LAUNCHD:
        raise ConfigurationError("schedule", schedule, f"launchd would need {len(found)} entries: name fewer instants")
    return found


def least_gap(schedule: str) -> float:
    """The least number of seconds between two successive launches."""
    instants = [*islice(Cron(schedule).instants(0, UTC), 500)]
    return min((after - before for before, after in pairwise(instants)), default=DAY * 1000) / 1000


def for_systemd(schedule: str) -> list[str]:
    """Values of OnCalendar. They are two if neither field for days is a star: in cron a day must match one of these
    fields, in systemd both."""
    minute, hour, day, month, weekday = _listed_fields(schedule)
    time = f"{hour}:{minute}:00"
    weekdays = "" if weekday == "*" else ",".join(DAYS[int(each)].capitalize() for each in weekday.split(",")) + " "
    if _either_day(schedule):
        return [f"*-{month}-{day} {time}", f"{weekdays}*-{month}-* {time}"]
    return [f"{weekdays}*-{month}-{day} {time}"]


def _either_day(schedule: str) -> bool:
    _, _, day, _, weekday = schedule.split()
    return not day.startswith("*") and not weekday.startswith("*")


def _refuse_both_days(schedule: str, platform: str) -> None:
    """Raise ConfigurationError if a day must match both fields for days, as in cron if one of them is a step such as
    ``*/2``: ``platform`` launches on days that match either field."""
    _, _, day, _, weekday = schedule.split()
    if "*" not in (day, weekday) and not _either_day(schedule):
        raise ConfigurationError("schedule", schedule, f"{platform} cannot take both day of month and day of week")


def _fields(schedule: str) -> list[str]:
    """The fields of the schedule, with numbers in place of names. ConfigurationError for L, W, # or ?."""
    fields = schedule.upper().split()
    for index, names, first in ((3, MONTHS, 1), (4, DAYS, 0)):
        for number, name in enumerate(names, first):
            fields[index] = re.sub(rf"\b{name}\b", str(number), fields[index])
    if any(character in field for field in fields for character in "LW#?"):
        raise ConfigurationError("schedule", schedule, "this platform has no L, W, # or ?")
    return fields


def _listed_fields(schedule: str) -> list[str]:
    """The fields of the schedule, each a star, a step such as ``0/5``, or a list of numbers."""
    return [
        text if text == "*" else _stepped(text, index) or _listed(_numbers(text, index))
        for index, text in enumerate(_fields(schedule))
    ]


def _stepped(text: str, index: int) -> str | None:
    """A field such as ``*/5`` as ``0/5``. None for other fields, and for days of the week, for which systemd has no
    steps."""
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
