"""``pollconsumer launches``: the ledger, in the form of the article's log."""

from __future__ import annotations

from typing import Any

import click

from pollconsumer.core.notation.instants import ago, iso
from pollconsumer.core.notation.timespan import running_time
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import print_json, print_table, span
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
    "launch_offset_seconds",
    "exit_seconds",
    "platform",
    "launcher",
    "run_id",
    "host",
    "pid",
    "config",
)


@click.command(epilog="pollconsumer launches --limit 60")
@click.option(
    "--limit", cls=Once, type=click.IntRange(1, 5000), default=20, show_default=True, help="Launches to show."
)
@JSON_ARRAY
def launches(limit: int, as_json: bool) -> None:
    """The ledger: what every launch that held a lease did, newest first."""
    reading = opened(Inspector)
    entries = reading.launches(limit)
    if as_json:
        print_json([launch_as_json(entry) for entry in entries])
    else:
        ledger_table(entries, reading.now())


def launch_as_json(entry: dict[str, Any]) -> dict[str, Any]:
    started = entry.get("started_ms")
    times = {"started_at": None if started is None else iso(started), "fence": entry.get("fence")}
    return {name: entry[name] for name in NAMES} | times | {"queues": entry["queues"]}


def ledger_table(entries: list[dict[str, Any]], now: int) -> None:
    """Print the ledger like the log of the article: ``1 minute ago (55 seconds running time)``, then why each launch
    stopped and what it did; on which host, if there are several. ``now``: epoch ms of the server's clock, as in the
    entries."""
    several = len({entry["host"] for entry in entries}) > 1
    headers = (
        *(("host",) if several else ()),
        "launch",
        "role",
        "stopped",
        "handled",
        "failed",
        "released",
        "average",
        "margin",
        "gap",
        "offset",
        "exit",
    )
    print_table(headers, [((entry["host"],) if several else ()) + _row(entry, now) for entry in entries])


def _row(entry: dict[str, Any], now: int) -> tuple[object, ...]:
    unknown = "starting" if entry["stop_reason"] is None else "start unknown"
    started = ago(entry["started_ms"], now) if "started_ms" in entry else unknown
    consumer = entry["role"] == "consumer"
    return (
        f"{started} ({running_time(entry['running_seconds'], entry['waited_seconds'])})",
        entry["role"],
        (entry["stop_reason"] or "running").replace("_", " "),
        entry["handled"],
        entry["failed"] if consumer else None,
        entry["released"] if consumer else None,
        span(entry["average_seconds"] or None),
        span(entry["margin_seconds"]) if consumer else None,
        span(entry["gap_seconds"]),
        span(entry["launch_offset_seconds"]),  # negative for a launch that came a little before its tick
        span(entry["exit_seconds"]),
    )
