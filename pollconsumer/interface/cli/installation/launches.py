"""``pollconsumer launches``: what each launch did."""

from __future__ import annotations

from typing import Any

import click

from pollconsumer.core.notation import instants
from pollconsumer.core.notation.text import counted
from pollconsumer.core.window import why_stopped
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import print_json, print_line, print_table, span
from pollconsumer.interface.cli.types import JSON_ARRAY, Once
from pollconsumer.store.reading.inspector import Inspector

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


@click.command(epilog="pollconsumer launches --limit 60\npollconsumer launches --ago")
@click.option(
    "--limit", cls=Once, type=click.IntRange(1, 5000), default=20, show_default=True, help="Launches to show."
)
@click.option("--ago", is_flag=True, help="Show the age of each launch: 1 minute ago (55 seconds running time).")
@click.option("--utc", is_flag=True, help="Show times in UTC, not in this machine's time zone.")
@JSON_ARRAY
def launches(limit: int, ago: bool, utc: bool, as_json: bool) -> None:
    """What each launch did, newest first. Launches that found the lease taken are left out.

    \b
    started    when it was started
    ran        how long it ran
    waited     how long it waited for the launch before it to end
    stopped    why it ended; "window over": it ended in time for the next launch
    completed  messages that it completed
    failed     attempts that failed; each is tried again, or is dead
    released   messages that it took and gave back unhandled
    average    mean duration of a handler
    margin     how long before the window's end it took no new message
    gap        time without a launch before this one
    offset     how long after the full minute (the tick) it began
    exit       how long its process took to exit
    """
    reading = opened(Inspector)
    entries = reading.launches(limit)
    if as_json:
        print_json([launch_as_json(entry) for entry in entries])
    else:
        launches_table(entries, reading.now(), ago=ago, utc=utc)


def launch_as_json(entry: dict[str, Any]) -> dict[str, Any]:
    started = entry.get("started_ms")
    times = {"started_at": None if started is None else instants.iso(started), "fence": entry.get("fence")}
    return {name: entry[name] for name in NAMES} | times | {"queues": entry["queues"]}


def launches_table(entries: list[dict[str, Any]], now: int, *, ago: bool = False, utc: bool = False) -> None:
    """Print launches, with their host if there are several hosts. ``now``: epoch ms of the server's clock, as in the
    entries. ``ago``: in the form of the article's log, ``1 minute ago (55 seconds running time)``; otherwise with the
    time, local or ``utc``."""
    if not entries:
        print_line("no launches yet; cron starts one each minute once `pollconsumer init cron --install` was called")
        return
    several = len({entry["host"] for entry in entries}) > 1
    rows = [
        ({"host": entry["host"]} if several else {})
        | (_age(entry, now) if ago else _times(entry, now, utc))
        | _row(entry)
        for entry in entries
    ]
    print_table([*rows[0]], [[*row.values()] for row in rows])


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
