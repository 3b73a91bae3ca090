"""``pollconsumer recurrences``: recurring messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from pollconsumer.core.message import NewMessage, encode_payload
from pollconsumer.core.notation.instants import datetime_of, epoch_ms, iso
from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.core.recurrence import Recurrence, zone_of
from pollconsumer.interface.cli.enqueue import Report
from pollconsumer.interface.cli.opened import opened, redis_store
from pollconsumer.interface.cli.output import print_json, print_table
from pollconsumer.interface.event_log import listener
from pollconsumer.runtime.messages import new_id
from pollconsumer.store.recurring import RecurrenceStatus, Recurring, occurrence_payload, readable

NAME = click.argument("name")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(no_args_is_help=False)
def recurrences() -> None:
    """Recurring messages, as the last launches defined them."""


@recurrences.command(name="list")
@AS_JSON
def list_(as_json: bool) -> None:
    """List recurrences with their next due time, and counts of enqueued and skipped occurrences."""
    entries = [_describe(standing) for standing in opened(Recurring).standing(listener())]
    if as_json:
        print_json(entries)
        return
    names = ["name", "rule", "timezone", "handler", "queue", "next", "missed", "overlap", "enqueued", "skipped", "last"]
    names += ["error"] if any(entry["error"] for entry in entries) else []
    rows = [[entry[name] for name in names] for entry in entries]
    print_table(names, rows)


@recurrences.command(name="next")
@NAME
@click.option("-n", "count", type=click.IntRange(1, 1000), default=5, show_default=True, help="Instants to show.")
@click.option("--dst", is_flag=True, help="Show the days of the next year on which the clock changes.")
@AS_JSON
def next_(name: str, count: int, dst: bool, as_json: bool) -> None:
    """Preview when a recurrence is due next."""
    rule = readable(opened(Recurring).find(name))
    now = _now_ms()
    instants = _odd_days(rule, now) if dst else [at for at, _ in zip(rule.instants(now), range(count), strict=False)]
    moments = [datetime_of(at).astimezone(zone_of(rule.timezone)) for at in instants]
    if as_json:
        print_json([iso(at) for at in instants])
    else:
        print_table(
            (f"{name}, {rule.timezone}", "in"),
            [(m.strftime("%a %Y-%m-%d %H:%M:%S %Z"), _ahead(m, now)) for m in moments],
        )


@recurrences.command()
@NAME
def pause(name: str) -> None:
    """Enqueue no occurrences until it is resumed; those in between are not made up for."""
    store = opened(Recurring)
    store.pause(store.find(name))


@recurrences.command()
@NAME
def resume(name: str) -> None:
    """Resume with the next occurrence."""
    store = opened(Recurring)
    store.resume(store.find(name))


@recurrences.command()
@NAME
def remove(name: str) -> None:
    """Remove a recurrence. If it is still defined, the next launch adds it again; its enqueued occurrences stay."""
    opened(Recurring).remove(name)


@recurrences.command()
@NAME
@AS_JSON
def trigger(name: str, as_json: bool) -> None:
    """Enqueue an extra occurrence now, and print its id."""
    rule = readable(opened(Recurring).find(name))
    payload = encode_payload(occurrence_payload(rule, _now_ms()))
    message = NewMessage(new_id(), rule.queue, rule.handler, payload, rule.priority)
    Report(as_json).show(redis_store().enqueue([message]))


def _describe(standing: RecurrenceStatus) -> dict[str, Any]:
    """The same keys for each; those of its definition are None if that is unreadable."""
    rule = standing.recurrence
    return {
        "name": standing.name,
        "rule": rule and (rule.cron if rule.every is None else f"every {format_duration(rule.every)}"),
        "timezone": rule and rule.timezone,
        "handler": rule and rule.handler,
        "queue": standing.queue,
        "payload": rule and rule.payload,
        "enabled": rule and rule.enabled,
        "next": _next(standing),
        "missed": rule and rule.missed,
        "overlap": rule and rule.overlap,
        "enqueued": standing.enqueued,
        "skipped": standing.skipped,
        "last": standing.last,
        "owners": list(standing.owners),
        "error": standing.error,
    }


def _next(standing: RecurrenceStatus) -> str | None:
    if standing.recurrence is not None and not standing.recurrence.enabled:
        return "disabled"
    if standing.paused:
        return "paused"
    return None if standing.next is None else iso(standing.next)


def _odd_days(rule: Recurrence, now: int) -> list[int]:
    """Instants on the days of the next year whose offset from UTC changes."""
    zone = zone_of(rule.timezone)
    today = datetime_of(now).astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    odd = []
    for ahead in range(366):
        midnight, next_midnight = (today + timedelta(days=days) for days in (ahead, ahead + 1))
        if midnight.utcoffset() != next_midnight.utcoffset():
            first, end = (epoch_ms(moment) for moment in (midnight, next_midnight))
            for instant in rule.instants(max(now, first - 1)):
                if instant >= end:
                    break
                odd.append(instant)
    return odd


def _now_ms() -> int:
    return epoch_ms(datetime.now(UTC))


def _ahead(moment: datetime, now: int) -> str:
    return format_duration(moment.timestamp() - now / 1000)
