"""The rules that yield due times, held against a scan of every minute."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.choices import After, Missed
from pollconsumer.core.notation.instants import datetime_of, epoch_ms, moment_of
from pollconsumer.core.recurrence import (
    MOST_CAUGHT_UP,
    MOST_LOOKED_AT,
    ON_TIME,
    Recurrence,
    Tick,
    offset_of,
    recurrence_from_json,
    tick,
    tick_after_end,
)

ZONES = [
    "UTC", "Europe/Paris", "Europe/London", "Europe/Dublin", "Europe/Moscow", "Europe/Istanbul", "Atlantic/Azores",
    "Africa/Casablanca", "Africa/Cairo", "Africa/Johannesburg", "America/New_York", "America/Chicago", "America/Denver",
    "America/Los_Angeles", "America/Anchorage", "America/Sao_Paulo", "America/Santiago", "America/St_Johns",
    "America/Havana", "America/Caracas", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Tehran", "Asia/Jerusalem",
    "Asia/Tokyo", "Asia/Pyongyang", "Australia/Sydney", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Chatham",
]  # fmt: skip
YEARS = 10
START = datetime(2016, 1, 1, tzinfo=ZoneInfo("UTC"))


def ms(moment: datetime) -> int:
    return epoch_ms(moment)


def scan(zone: ZoneInfo, hour: int, minute: int) -> list[int]:
    """Minute by minute, on each local day on which the clock changes: the first such minute of the day, or, where the
    clock skips it, the first minute after the gap."""
    found = []
    day = START.astimezone(zone).date()
    last = (START + timedelta(days=365 * YEARS)).astimezone(zone).date()
    while day < last:
        day += timedelta(days=1)
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=zone).astimezone(ZoneInfo("UTC"))
        around = {(noon + timedelta(hours=hours)).astimezone(zone).utcoffset() for hours in (-16, 0, 14)}
        if len(around) == 1:
            found.append(ms(datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)))
            continue
        for ahead in range(-16 * 60, 14 * 60):
            local = (noon + timedelta(minutes=ahead)).astimezone(zone)
            if local.date() == day and (local.hour, local.minute) >= (hour, minute):
                found.append(ms(local))
                break
    return found


@pytest.mark.parametrize("zone", ZONES)
def test_a_daily_time_occurs_once_a_day_through_ten_years_of_a_zone(zone: str) -> None:
    rule = Recurrence("x", "x", cron="30 2 * * *", timezone=zone)
    expected = scan(ZoneInfo(zone), 2, 30)
    instants = rule.instants(expected[0] - 1)
    assert [next(instants) for _ in expected] == expected


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York", "Australia/Lord_Howe"])
def test_every_quarter_of_an_hour_occurs_in_every_quarter_that_there_is(zone: str) -> None:
    rule = Recurrence("x", "x", cron="*/15 * * * *", timezone=zone)
    instants = rule.instants(ms(START) - 1)
    for n in range(4 * 24 * 365):
        assert next(instants) == ms(START + timedelta(minutes=15 * n))


@given(st.integers(1, 10**5), st.integers(0, 2 * 10**12))
def test_a_period_is_anchored_to_the_epoch_and_not_to_its_beginning(seconds: int, after: int) -> None:
    rule = Recurrence("x", "x", every=float(seconds))
    first = rule.next_after(after)
    assert first is not None
    assert first % (seconds * 1000) == 0
    assert after < first <= after + seconds * 1000


UNATTENDED = 1 << 60


@pytest.mark.parametrize(
    ("rule", "until"),
    [
        (Recurrence("x", "x", every=1.5), None),
        (Recurrence("x", "x", every=1.5, at_run_time=True), ms(START + timedelta(hours=45))),
    ],
)
def test_of_more_missed_than_are_looked_at_the_last_one_is_made_up_for(rule: Recurrence, until: int | None) -> None:
    step = round((rule.every or 0) * 1000)
    first, now = ms(START), ms(START) + (MOST_LOOKED_AT + 9000) * step + 100
    told = tick(replace(rule, until=moment_of(until)), first, now, now)
    last = (until or now) - ((until or now) - first) % step
    assert told.enqueue == (last,)
    assert told.skipped == MOST_LOOKED_AT - 1
    assert told.next == (None if until else last + step)


@given(st.sampled_from(Missed), st.integers(0, 980_000), st.integers(10, 3600), st.integers(0, 10**6))
def test_no_instant_since_a_launch_is_there_was_missed(
    missed: Missed, late_ms: int, seconds: int, since_ms: int
) -> None:
    rule = Recurrence("x", "x", every=float(seconds), missed=missed)
    due = seconds * 1000
    now, since = due + late_ms, due + since_ms
    told, unattended = tick(rule, due, now, since), tick(rule, due, now, UNATTENDED)
    passed = range(due, now + 1, due)
    attended = tuple(instant for instant in passed if instant > since)
    assert told.enqueue[len(told.enqueue) - len(attended) :] == attended
    assert len(told.enqueue) + told.skipped == len(passed)
    if since >= now:
        assert told == unattended


@pytest.mark.parametrize("missed", [Missed.ONCE, Missed.SKIP])
@pytest.mark.parametrize("late_ms", [0, 1, 20])
def test_a_launch_that_comes_at_an_instant_brings_that_one_alone(missed: Missed, late_ms: int) -> None:
    rule = Recurrence("x", "x", every=60.0, missed=missed)
    now = 600_000 + late_ms
    told = tick(rule, 300_000, now, now)
    assert (told.enqueue, told.skipped, told.next) == ((600_000,), 5, 660_000)


@given(st.sampled_from(Missed), st.integers(0, 10**7), st.integers(1, 3600))
def test_what_passed_is_enqueued_or_counted_and_nothing_twice(missed: Missed, late_ms: int, seconds: int) -> None:
    rule = Recurrence("x", "x", every=float(seconds), missed=missed)
    due = seconds * 1000
    now = due + late_ms
    told = tick(rule, due, now, UNATTENDED)
    passed = late_ms // due + 1
    assert len(told.enqueue) + told.skipped == passed
    assert told.next == (now // due + 1) * due
    assert all(due <= instant <= now for instant in told.enqueue)
    if missed is Missed.ALL:
        assert len(told.enqueue) == min(passed, MOST_CAUGHT_UP)
    elif missed is Missed.ONCE:
        assert told.enqueue == (now // due * due,)
    else:
        on_time = now - now // due * due <= ON_TIME * 1000
        assert told.enqueue == ((now // due * due,) if on_time else ())


@pytest.mark.parametrize("at_run_time", [False, True])
def test_a_definition_with_a_monitor_is_read_back_and_one_without_is_as_it_was_before_there_were_any(
    at_run_time: bool,
) -> None:
    def text(recurrence: Recurrence) -> str:
        return recurrence.as_put()[0] if at_run_time else recurrence.as_json()

    plain = Recurrence("n", "h", every=60, at_run_time=at_run_time)
    watched = replace(plain, ping="https://h/SECRET")
    assert "ping" not in text(plain)
    assert recurrence_from_json(text(watched), "n") == watched
    assert "SECRET" not in repr(watched)
    with pytest.raises(ValueError, match="write https://HOST"):
        recurrence_from_json(text(replace(plain, ping="ftp://h/SECRET")), "n")


AFTER_END = Recurrence("x", "x", every=60.0, after=After.END)


@given(
    spans=st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 50_000)), min_size=1, max_size=20),
    begin=st.integers(0, 10**12),
)
def test_each_is_due_a_period_after_the_end_before_as_long_as_instants_are_looked_at(
    spans: list[tuple[int, int]], begin: int
) -> None:
    """Of each occurrence: how long it waits and takes, and how late the launch is that looks at the instant."""
    look, ended, due, now = begin, 0, begin, begin
    for took, late in spans:
        while not (plan := tick_after_end(AFTER_END, look, now, 0, ended if ended <= now else None)).enqueue:
            assert plan.next is not None
            assert plan.next > now
            look = plan.next
            now = max(now, look) + (late if look == due else 0)
        assert plan.enqueue == (due,)
        assert plan.skipped == 0
        assert plan.next == now + 60_000
        ended = now + took
        look, due = plan.next, ended + 60_000
        now = look


def test_what_ends_late_is_missed_as_others_are() -> None:
    for missed, enqueued in ((Missed.SKIP, ()), (Missed.ONCE, (160_000,)), (Missed.ALL, (160_000,))):
        rule = replace(AFTER_END, missed=missed)
        skipped = 1 - len(enqueued)
        assert tick_after_end(rule, 60_000, 9_000_000, 9_000_000, 100_000) == Tick(enqueued, skipped, 9_060_000)
        assert tick_after_end(rule, 60_000, 9_000_000, 0, 100_000) == Tick((160_000,), 0, 9_060_000)


def test_an_end_to_come_lets_none_stand_still() -> None:
    assert tick_after_end(AFTER_END, 60_000, 70_000, 0, 130_001) == Tick((60_000,), 0, 130_000)


@pytest.mark.parametrize("ahead", [0, 2, 60_000])
def test_a_period_counts_from_an_end_that_a_fast_clock_has_reckoned(ahead: int) -> None:
    assert tick_after_end(AFTER_END, 60_000, 70_000, 0, 70_000 + ahead) == Tick((), 0, 130_000 + ahead)


def test_none_is_looked_for_after_the_latest_instant() -> None:
    rule = replace(AFTER_END, until=datetime_of(200_000), at_run_time=True)
    assert tick_after_end(rule, 60_000, 100_000, 0, None) == Tick((), 0, 160_000)
    assert tick_after_end(rule, 60_000, 150_000, 0, None) == Tick((), 0, None)
    assert tick_after_end(rule, 60_000, 150_000, 0, 145_000) == Tick((), 0, None)
    assert tick_after_end(rule, 60_000, 170_000, 0, 100_000) == Tick((160_000,), 0, None)


def test_from_when_a_period_counts_is_part_of_the_rule_and_told_to_no_version_that_knows_no_other() -> None:
    for put in (False, True):
        plain = replace(AFTER_END, after=After.DUE, at_run_time=put)
        of_end = replace(AFTER_END, at_run_time=put)
        stored = [each.as_put()[0] if put else each.as_json() for each in (plain, of_end)]
        assert ["after" in each for each in stored] == [False, True]
        assert [recurrence_from_json(each, "x") for each in stored] == [plain, of_end]
    assert plain.as_put()[1] != of_end.as_put()[1]
    with pytest.raises(ValueError, match="after is end, which needs every"):
        recurrence_from_json(replace(AFTER_END, every=None, cron="* * * * *").as_json())
    with pytest.raises(ValueError, match="after is 'start'"):
        recurrence_from_json(AFTER_END.as_json().replace('"end"', '"start"'))


@given(
    st.sampled_from([{"cron": "*/7 3-5 * * *"}, {"every": 420.0}, {"cron": "30 2 * * *"}]),
    st.sampled_from(["UTC", "Europe/Paris"]),
    st.integers(0, 86_399_000),
    st.integers(10**12, 2 * 10**12),
)
def test_an_offset_moves_each_instant_and_nothing_else(
    rule: dict[str, Any], zone: str, offset: int, after: int
) -> None:
    plain = Recurrence("x", "x", timezone=zone, **rule)
    later = replace(plain, offset=offset)
    assert [*islice(later.instants(after + offset), 20)] == [at + offset for at in islice(plain.instants(after), 20)]
    first = later.next_after(after)
    assert first is not None
    assert first > after
    assert later.due(first, first) == [first]


@given(st.integers(0, 86_399_000), st.integers(0, 10**7), st.sampled_from(["now", "next", 10**12, 10**12 + 10**9]))
def test_one_that_is_put_begins_by_its_offset_later_and_goes_on_by_its_period(
    offset: int, now: int, first: Any
) -> None:
    plain = Recurrence("x", "x", every=90.0, at_run_time=True)
    later = replace(plain, offset=offset)
    now += 10**12
    begun = later.begins(first, now)
    assert begun is not None
    assert begun >= now
    if first == "now":
        assert begun == now + offset
    elif first == "next":
        assert (begun - offset) % 90_000 == 0
    else:
        assert (begun - offset - first) % 90_000 == 0
        assert begun >= first
    assert [*islice(later.instants(begun, begun), 3)] == [begun + 90_000 * n for n in (1, 2, 3)]


def test_an_offset_is_less_than_the_jitter_the_same_each_time_and_not_that_of_another_namespace() -> None:
    found = [offset_of(300.0, "shop", f"check:{n}") for n in range(1000)]
    assert found == [offset_of(300.0, "shop", f"check:{n}") for n in range(1000)]
    assert {at % 1000 for at in found} == {0}
    assert (min(found) < 5000, max(found) > 290_000, max(found) < 300_000) == (True, True, True)
    assert found != [offset_of(300.0, "other", f"check:{n}") for n in range(1000)]
    assert offset_of(1.5, "shop", "x") == 0


def test_an_offset_is_part_of_the_rule_and_told_to_no_version_that_knows_none() -> None:
    for put in (False, True):
        plain = Recurrence("x", "x", every=60.0, at_run_time=put)
        later = replace(plain, offset=3000)
        stored = [each.as_put()[0] if put else each.as_json() for each in (plain, later)]
        assert ["offset" in each for each in stored] == [False, True]
        assert [recurrence_from_json(each, "x") for each in stored] == [plain, later]
    assert plain.as_put()[1] != later.as_put()[1]
    assert (plain.rule, later.rule) == ("every 1m", "every 1m, 3s later")
    for wrong in ('"3"', "-1", "1.5", "86400000", "true"):
        with pytest.raises(ValueError, match="offset is"):
            recurrence_from_json(later.as_put()[0].replace("3000", wrong), "x")


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "expires": st.floats(0.001, 1e9) | st.integers(1, 10**9),
        "timeout": st.floats(0.001, 1e6),
        "max_attempts": st.integers(1, 10_000),
        "retry": st.sampled_from(["patient", "ä"]),
        "concurrency_key": st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=50),
        "concurrency_limit": st.integers(1, 255),
        "order_key": st.sampled_from(["o", "ä"]),
    },
)


@given(OPTIONS, st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["", "1"])), st.booleans())
def test_options_of_messages_come_back_from_a_definition_and_reach_each_message(
    options: dict[str, Any], headers: dict[str, str], put: bool
) -> None:
    rule = Recurrence("x", "x", every=60.0, options=options, headers=headers, at_run_time=put)
    stored = rule.as_put()[0] if put else rule.as_json()
    assert recurrence_from_json(stored, "x") == rule
    assert [name in stored for name in ("options", "headers")] == [bool(options), bool(headers)]
    message = rule.message(b"{}")
    assert message.lifetime == round(options.get("expires", 0) * 1000)
    assert message.headers == (headers or None)
    for name in options.keys() - {"expires"}:
        assert getattr(message, name) == options[name]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("[]", "options is"),
        ('{"order":1}', "unknown keys \\(order\\), perhaps of a newer version"),
        ('{"expires":0}', "expires is 0"),
        ('{"expires":"1m"}', "expires is '1m'"),
        ('{"expires":true}', "expires is True"),
        ('{"timeout":-1}', "timeout"),
        ('{"max_attempts":1.5}', "max_attempts"),
        ('{"retry":3}', "retry"),
        ('{"concurrency_key":"\\u0000"}', "concurrency key"),
        ('{"concurrency_key":"a","concurrency_limit":256}', "concurrency limit"),
    ],
)
def test_options_that_cannot_be_meant_make_a_definition_unreadable(options: str, said: str) -> None:
    for rule in (Recurrence("x", "x", every=60.0), Recurrence("x", "x", every=60.0, at_run_time=True)):
        stored = rule.as_put()[0] if rule.at_run_time else rule.as_json()
        with pytest.raises(ValueError, match=said):
            recurrence_from_json(f'{stored[:-1]},"options":{options}}}', "x")
