"""``pollconsumer launches``: what each launch did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from pollconsumer.core.launcher.holes import Hole, holes_of
from pollconsumer.core.launcher.work_beyond import working_on
from pollconsumer.core.notation import instants
from pollconsumer.core.notation.instants import LAST_MILLISECOND
from pollconsumer.core.notation.text import counted
from pollconsumer.core.window import why_stopped
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import print_line, print_lines, print_table, printed_as_json, span
from pollconsumer.interface.cli.types import JSON_ARRAY, PAST, Once
from pollconsumer.store.leases import MOST_LAUNCHES_KEPT

USUAL = 20
"""Launches that are shown by default."""
BEFORE = 50
"""Launches before those that are shown: what they were like tells the ticks of these."""
LEAST = ("released", "exit", "offset", "average", "margin", "waited", "role")
"""Columns that a narrow terminal does without, in this order."""
NAMES = (
    "launch_id",
    "role",
    "running_seconds",
    "stop_reason",
    "exit_code",
    "handled",
    "failed",
    "released",
    "yielded",
    "longer_than_window",
    "average_seconds",
    "margin_seconds",
    "gap_seconds",
    "waited_seconds",
    "missed_ticks",
    "skipped",
    "launch_offset_seconds",
    "exit_seconds",
    "platform",
    "launcher",
    "run_id",
    "host",
    "pid",
    "config",
)


@click.command(
    epilog="pollconsumer launches --limit 60\n"
    "pollconsumer launches --since 26h --until 2h\n"
    "pollconsumer launches --since 2026-11-28T03:00\n"
    "pollconsumer launches --gaps"
)
@click.option(
    "--limit",
    cls=Once,
    type=click.IntRange(1, MOST_LAUNCHES_KEPT),
    help="Launches to show. Default: 20, or all with --since, --until or --gaps.",
)
@click.option(
    "--since",
    cls=Once,
    type=PAST,
    help="Only launches that started then or later: a time, or how long ago.",
)
@click.option("--until", cls=Once, type=PAST, help="Only launches that started before: a time, or how long ago.")
@click.option("--gaps", is_flag=True, help="Show only the ticks of the schedule at which no launch came.")
@click.option("--ago", is_flag=True, help="Show the age of each launch: 1 minute ago (55 seconds running time).")
@click.option("--utc", is_flag=True, help="Show times in UTC, not in this machine's time zone.")
@JSON_ARRAY
def launches(
    limit: int | None,
    since: Callable[[int], int] | None,
    until: Callable[[int], int] | None,
    gaps: bool,
    ago: bool,
    utc: bool,
) -> None:
    """Show what each launch did, newest first, and at which ticks of the schedule no launch came.

    A launch that finds the lease taken has no line: the launch that has the lease counts it as skipped. Launches are
    kept for two days, and at least 5,000 of them.

    \b
    started    when it was started
    ran        how long it ran
    waited     how long it waited for the launch before it to end
    stopped    why it ended; "window over": it ended in time for the next launch
    completed  messages that it completed
    failed     attempts that failed; each is tried again, or is dead
    released   messages that it took from the queue and returned unhandled
    average    mean duration of a handler
    margin     how long before the end of its window it stopped taking messages
    gap        time without a launch before this one
    offset     how long after the full minute (the tick) it began
    exit       how long its process took to exit
    skipped    launches that did no work, since this one had the lease
    queues     queues that it served; shown only if launches serve different ones
    """
    reading = opened().inspector
    now = reading.now()
    begin, end = since(now) if since else 0, until(now) if until else LAST_MILLISECOND
    all_of_them = bool(since or until or gaps)
    kept = reading.launches(MOST_LAUNCHES_KEPT if all_of_them else (limit or USUAL) + BEFORE)
    limit = limit or (MOST_LAUNCHES_KEPT if all_of_them else USUAL)
    entries = [each for each in kept if begin <= each.get("started_ms", now) < end][:limit]
    holes = [hole for hole in holes_of(kept, now) if begin <= hole.last_ms and hole.first_ms < end]
    if entries and not all_of_them:
        holes = [hole for hole in holes if hole.last_ms > entries[-1].get("started_ms", now)]
    told = map(_hole_as_json, holes[:limit]) if gaps else map(launch_as_json, entries)
    if printed_as_json([*told]):
        return
    if gaps:
        print_lines(
            [_hole_line(hole, now, utc) for hole in holes[:limit]]
            or ["no gaps: no tick of a schedule was without a launch"]
        )
    elif all_of_them and not entries and not holes:
        print_line("no launches in that time")
    else:
        launches_table(entries, now, holes, ago=ago, utc=utc)


def launch_as_json(entry: dict[str, Any]) -> dict[str, Any]:
    started = entry.get("started_ms")
    times = {"started_at": None if started is None else instants.iso(started), "fence": entry.get("fence")}
    work = [each.as_json() for each in entry["working_on"]]
    return {name: entry[name] for name in NAMES} | times | {"queues": entry["queues"], "working_on": work}


def _hole_as_json(hole: Hole) -> dict[str, Any]:
    first, last = instants.iso(hole.first_ms), instants.iso(hole.last_ms)
    return {"role": hole.role, "queues": hole.queues, "ticks": hole.ticks, "first_at": first, "last_at": last}


def _hole_line(hole: Hole, now: int, utc: bool) -> str:
    return f"{hole.text(now, utc=utc)} ({hole.role} {','.join(hole.queues)}".rstrip() + ")"


def launches_table(
    entries: list[dict[str, Any]], now: int, holes: Sequence[Hole] = (), *, ago: bool = False, utc: bool = False
) -> None:
    """Print launches, with their host if there are several hosts, with their queues if these differ, a line about what
    each works on beyond its window, and one for each of ``holes``, which are newest first, too. ``now``: epoch ms of
    the server's clock, as in the entries. ``ago``: in the form of the article's log, ``1 minute ago (55 seconds running
    time)``; otherwise with the time, local or ``utc``."""
    if not entries and not holes:
        print_line("no launches yet; cron starts one each minute once `pollconsumer init cron --install` was called")
        return
    several = len({entry["host"] for entry in entries}) > 1
    skipped = any(entry["skipped"] for entry in entries)
    by_queues = len({tuple(entry["queues"]) for entry in entries if entry["role"] == "consumer"}) > 1
    table: list[str | list[object]] = []
    names: list[str] = []
    left = [*holes]
    for entry in entries:
        while left and left[0].last_ms > entry.get("started_ms", now):
            table.append(_hole_line(left.pop(0), now, utc))
        host = {"host": entry["host"]} if several else {}
        row = host | (_age(entry, now) if ago else _times(entry, now, utc)) | _row(entry)
        row |= {"skipped": entry["skipped"] or None} if skipped else {}
        row |= {"queues": ", ".join(entry["queues"]) or None} if by_queues else {}
        names = [*row]
        table.append([*row.values()])
        table += [working_on(entry["working_on"], now, utc=utc)] if entry["working_on"] else []
    table += [_hole_line(hole, now, utc) for hole in left]
    print_table(names or ["started"], table, LEAST)


def _age(entry: dict[str, Any], now: int) -> dict[str, object]:
    started = instants.ago(entry["started_ms"], now) if "started_ms" in entry else "unknown"
    return {"launch": f"{started} ({counted(round(entry['running_seconds']), 'second')} running time)"}


def _times(entry: dict[str, Any], now: int, utc: bool) -> dict[str, object]:
    started = instants.clock(entry["started_ms"], now, utc=utc) if "started_ms" in entry else None
    return {"started": started, "ran": span(entry["running_seconds"]), "waited": span(entry["waited_seconds"])}


def _row(entry: dict[str, Any]) -> dict[str, object]:
    consumer = entry["role"] == "consumer"
    return {
        "role": entry["role"],
        "stopped": why_stopped(entry["stop_reason"]),
        "completed": entry["handled"] if consumer else f"{entry['handled']} moved",
        "failed": entry["failed"] if consumer else None,
        "released": entry["released"] if consumer else None,
        "average": span(entry["average_seconds"] or None),
        "margin": span(entry["margin_seconds"]) if consumer else None,
        "gap": span(entry["gap_seconds"]),
        "offset": span(entry["launch_offset_seconds"]),  # negative for a launch that came a little before its tick
        "exit": span(entry["exit_seconds"]),
    }
