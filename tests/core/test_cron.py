"""Cron expressions, held against the main loop of Debian's cron, minute by minute around every change of a clock."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.notation.cron_expression import NICKNAMES, Cron, five_fields, spread
from pollconsumer.core.notation.instants import datetime_of, epoch_ms
from pollconsumer.interface.settings.values import check_cron
from pollconsumer.runtime.launch.next_launches import LocalZone, next_launches
from tests.leaving_out import long

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 20261121
DEBIAN_3_HOURS = 3 * 60
ZONES = [
    ("Europe/Paris", 2025, 2025),
    ("America/New_York", 2025, 2025),
    ("Australia/Lord_Howe", 2025, 2025),  # by half an hour
    ("America/Havana", 2025, 2025),  # at midnight, back to midnight
    ("Atlantic/Azores", 2025, 2025),  # at midnight, back from one
    ("Africa/Cairo", 2025, 2025),  # at midnight, back into the day before
    ("Pacific/Apia", 2011, 2011),  # by a day
    ("Antarctica/Casey", 2010, 2012),  # by three hours
]
RANGES = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 7)}


class Field(NamedTuple):
    text: str
    values: frozenset[int]


class Run(NamedTuple):
    """What Debian's cron does in a minute: jobs that follow the clock, jobs at fixed times, as of a minute it shows."""

    instant: int
    shown: datetime
    wild: bool
    fixed: bool


def term(chance: random.Random, low: int, high: int, most: int) -> Field:
    first, last = sorted((chance.randint(low, most), chance.randint(low, most)))
    step = chance.choice([1, 2, 3, 5, 10, 15, 30])
    kind = chance.random()
    if kind < 0.4:
        return Field(str(first), frozenset({first}))
    if kind < 0.6:
        return Field(f"{first}-{last}", frozenset(range(first, last + 1)))
    if kind < 0.7:
        return Field(f"{first}-{first}/{step}", frozenset({first}))
    if kind < 0.85:
        return Field(f"{first}-{last}/{step}", frozenset(range(first, last + 1, step)))
    return Field(f"*/{step}", frozenset(range(low, high + 1, step)))


def drawn(chance: random.Random, name: str) -> Field:
    low, high = RANGES[name]
    if chance.random() < {"minute": 0.1, "hour": 0.3}.get(name, 0.7):
        return Field("*", frozenset(range(low, high + 1)))
    most = 4 if name == "hour" and chance.random() < 0.7 else high  # when most clocks are changed
    terms = [term(chance, low, high, most) for _ in range(chance.choice([1, 1, 2, 3]))]
    return Field(",".join(each.text for each in terms), frozenset().union(*(each.values for each in terms)))


def changes(zone: ZoneInfo, first: int, last: int) -> Iterator[datetime]:
    """The hours of UTC in whose course the offset changes."""
    hour = datetime(first, 1, 1, tzinfo=UTC)
    while hour.year <= last:
        if hour.astimezone(zone).utcoffset() != (hour + timedelta(hours=1)).astimezone(zone).utcoffset():
            yield hour
        hour += timedelta(hours=1)


def debian(zone: ZoneInfo, begin: datetime, minutes: int) -> Iterator[Run]:
    """cron.c, less the sleeping: time_running is the minute that the clock shows, virtual_time the one dealt with."""

    def shown(minute: int) -> datetime:
        return datetime(1970, 1, 1) + timedelta(minutes=minute)

    virtual_time = None
    for ahead in range(minutes):
        moment = begin + timedelta(minutes=ahead)
        instant = epoch_ms(moment)
        local = moment.astimezone(zone).replace(tzinfo=None)
        time_running = (local - datetime(1970, 1, 1)) // timedelta(minutes=1)
        virtual_time = time_running - 1 if virtual_time is None else virtual_time
        difference = time_running - virtual_time
        if difference == 1 or abs(difference) > DEBIAN_3_HOURS:
            virtual_time = time_running
            yield Run(instant, shown(time_running), wild=True, fixed=True)
        elif difference > 5:
            yield Run(instant, shown(time_running), wild=True, fixed=False)
            while virtual_time < time_running:
                virtual_time += 1
                yield Run(instant, shown(virtual_time), wild=False, fixed=True)
        elif difference > 0:
            while virtual_time < time_running:
                virtual_time += 1
                yield Run(instant, shown(virtual_time), wild=True, fixed=True)
        else:
            yield Run(instant, shown(time_running), wild=True, fixed=False)


def due(fields: list[Field], runs: list[Run]) -> list[int]:
    minutes, hours, days, months, weekdays = (each.values for each in fields)
    follows_clock = any(each.text.startswith("*") for each in fields[:2])
    either = not any(fields[at].text.startswith("*") for at in (2, 4))
    found = dict[int, None]()
    for instant, shown, wild, fixed in runs:
        if shown.minute in minutes and shown.hour in hours and shown.month in months:
            day = shown.day in days
            weekday = shown.isoweekday() in weekdays or shown.isoweekday() % 7 in weekdays
            if ((day or weekday) if either else (day and weekday)) and (wild if follows_clock else fixed):
                found[instant] = None
    return list(found)


@pytest.mark.parametrize("expressions", [50, long(200)])
@pytest.mark.parametrize(("name", "first", "last"), ZONES)
def test_random_expressions_come_when_debians_cron_runs_them(
    name: str, first: int, last: int, expressions: int
) -> None:
    zone, chance = ZoneInfo(name), random.Random(SEED)
    windows = [list(debian(zone, change - timedelta(hours=5), 11 * 60)) for change in changes(zone, first, last)]
    assert windows
    for _ in range(expressions):
        fields = [drawn(chance, field) for field in RANGES]
        text = " ".join(each.text for each in fields)
        try:
            cron = Cron(text)
        except ValueError:
            with pytest.raises(ValueError, match="no such day"):
                check_cron(text)
            continue
        for runs in windows:
            begin, end = runs[0].instant, runs[-1].instant
            found = []
            for instant in cron.instants(begin - 1, zone):
                if instant > end:
                    break
                found.append(instant)
            assert found == due(fields, runs), (text, name)


@pytest.mark.parametrize(("name", "first", "last"), ZONES)
def test_where_one_begins_makes_no_difference_to_what_follows(name: str, first: int, last: int) -> None:
    """Within the repeated hour as well, whose times are shown again although they are past."""
    zone = ZoneInfo(name)
    for text in ("7 * * * *", "*/10 0-3 * * *", "30 0,1,2 * * *"):
        for change in changes(zone, first, last):
            begin = epoch_ms(change - timedelta(hours=5))
            ahead = Cron(text).instants(begin, zone)
            instants = [next(ahead) for _ in range(30)]
            for one, following in itertools.pairwise(instants):
                for later in (one, one + 1, following - 1):
                    assert next(Cron(text).instants(later, zone)) == following


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("6-6/10", [6]), ("06-6/1", [6]), ("6/10", [6, 16, 26, 36, 46, 56]), ("6-26/10,59-59/2", [6, 16, 26, 59])],
)
def test_a_range_of_one_value_is_that_value_whatever_its_step(text: str, minutes: list[int]) -> None:
    ahead = Cron(f"{text} * * * *").instants(-1, UTC)
    assert [next(ahead) // 60_000 for _ in minutes] == minutes
    assert next(ahead) // 60_000 == 60 + minutes[0]


def test_names_are_read_in_ranges_of_one_value_too() -> None:
    ahead = Cron("0 0 * jan-JAN/2 sun-0/3").instants(-1, UTC)
    days = [datetime_of(next(ahead)) for _ in range(9)]
    assert {(day.month, day.isoweekday()) for day in days} == {(1, 7)}


def test_an_expression_that_names_no_day_is_refused() -> None:
    for text in ("0 0 30 2 *", "0 0 */31 * 1#5"):
        with pytest.raises(ValueError, match="no such day ever comes"):
            check_cron(text)


def test_the_platforms_next_launch_is_told_by_a_clock_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """At night, the hour that Paris skips does not lie between a launch and the next."""
    import time

    monkeypatch.setenv("TZ", "Europe/Paris")
    time.tzset()
    try:
        before = datetime(2025, 3, 30, 0, 30, tzinfo=UTC)  # 01:30, half an hour before the clock goes forward
        assert next_launches("0 3,4 * * *", before) == (1800, 5400)
        zone, paris = LocalZone(), ZoneInfo("Europe/Paris")
        for minutes in range(0, 366 * 24 * 60, 17):
            moment = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
            local, expected = moment.astimezone(zone), moment.astimezone(paris)
            assert (local.replace(tzinfo=None), local.fold) == (expected.replace(tzinfo=None), expected.fold)
            assert local.utcoffset() == expected.utcoffset()
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("name", "fields"), NICKNAMES.items())
def test_a_nickname_comes_when_its_five_fields_do(name: str, fields: str) -> None:
    for written in (name, f" {name.upper()} "):
        check_cron(written)
        assert five_fields(written) == fields
        assert [*itertools.islice(Cron(written).instants(0, UTC), 3)] == [
            *itertools.islice(Cron(fields).instants(0, UTC), 3)
        ]


@pytest.mark.parametrize("name", ["@reboot", "@every 5m", "@", "@daily @daily"])
def test_other_nicknames_are_refused(name: str) -> None:
    for read in (check_cron, Cron):
        with pytest.raises(ValueError, match="write five fields"):
            read(name)


HASHED = {"minute": (0, 59), "hour": (0, 23), "day": (1, 28), "month": (1, 12), "weekday": (0, 6)}


@st.composite
def hashed_terms(draw: st.DrawFn) -> tuple[str, int, int, int, int]:
    """A term with H, the index of its field, its first and last value, and its step, 0 for none."""
    index = draw(st.integers(0, 4))
    least, most = [*HASHED.values()][index]
    first, last = sorted((draw(st.integers(least, most)), draw(st.integers(least, most))))
    is_ranged = draw(st.booleans())
    if not is_ranged:
        first, last = least, most
    step = draw(st.integers(0, last - first + 1))
    return f"H{f'({first}-{last})' * is_ranged}{f'/{step}' * bool(step)}", index, first, last, step


@given(hashed_terms(), st.text(max_size=20))
def test_an_h_is_a_value_of_its_range_or_every_so_many_of_them_and_the_same_each_time(
    term: tuple[str, int, int, int, int], seed: str
) -> None:
    text, index, first, last, step = term
    fields = ["*"] * 5
    fields[index] = text
    found = spread(" ".join(fields), seed)
    assert found == spread(" ".join(fields), seed)
    Cron(found)
    chosen, *rest = found.split()[index].split("-")
    assert first <= int(chosen) <= (first + step - 1 if step else last)
    assert rest == ([f"{last}/{step}"] if step else [])
    assert [each for at, each in enumerate(found.split()) if at != index] == ["*"] * 4


def test_names_share_no_minute_more_than_by_chance() -> None:
    minutes = [int(spread("H * * * *", f"shop\ncheck:{n}").split()[0]) for n in range(6000)]
    assert {minutes.count(minute) // 50 for minute in range(60)} <= {1, 2}


def test_fields_have_values_of_their_own_and_terms_of_a_field_one_for_all() -> None:
    found = {tuple(spread("H H * * *", str(n)).split()[:2]) for n in range(500)}
    assert len(found) > 400
    first, second = spread("H(0-29),H(30-59) * * * *", "x").split()[0].split(",")
    assert int(second) - int(first) == 30


@pytest.mark.parametrize(
    "text", ["0 3 * * THU", "0 3 * MARCH *", "h * * * *", "H", "HH * * * *", "H-3 * * * *", "@daily"]
)
def test_what_has_no_h_stays_as_it_is(text: str) -> None:
    assert spread(text, "x") == text


@pytest.mark.parametrize(
    "text", ["H(0-60) * * * *", "H(9-8) * * * *", "H/0 * * * *", "H/61 * * * *", "* H(0-24) * * *", "* * H(29-31) * *"]
)
def test_an_h_of_no_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"stands for no value of \d+-\d+, field \d"):
        spread(text, "x")


def test_the_schedule_of_launches_knows_no_h() -> None:
    with pytest.raises(ValueError, match="minute must be 0-59"):
        check_cron("H * * * *")
