"""Shows queues, messages and launches: ``pollconsumer status``, ``launches``, ``lease`` and ``audit``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import click

from pollconsumer.core.coverage import Hole, holes_of, working_on
from pollconsumer.core.errors import NotFound, UsageError
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.codec import shown_value
from pollconsumer.core.messages.message_steps import Recorded
from pollconsumer.core.notation import instants
from pollconsumer.core.notation.instants import LAST_MILLISECOND, iso
from pollconsumer.core.notation.text import counted
from pollconsumer.core.window import why_stopped
from pollconsumer.interface.api.described import describe, log_as_json, recorded_as_json
from pollconsumer.interface.cli.message_details import print_message
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import (
    is_terminal,
    print_line,
    print_lines,
    print_table,
    printed_as_json,
    span,
    wants_json,
)
from pollconsumer.interface.cli.types import JSON_ARRAY, PAST, QUEUE_NAME, WordType, json_option, limit_option, option
from pollconsumer.runtime.system.watchdog import lift
from pollconsumer.store.audit_log import MOST_NOTED
from pollconsumer.store.leases import MOST_LAUNCHES_KEPT
from pollconsumer.store.reading.inspector import Inspector, Overview, QueueCounts
from pollconsumer.store.reading.messages import Message

LEAST = ("late", "waited", "skipped", "expired", "cancelled", "started", "per minute", "duration", "parked")
"""Columns to leave out on a narrow terminal, the first one first."""
LAUNCHES_SHOWN = 5
LOOK_EVERY = 0.5
"""Seconds after which ``--watch`` reads a message again."""
OVERVIEW_EVERY = 2.0
"""Seconds after which ``--watch`` reads the overview again."""
MOVER_MISSING_AFTER = 5.0
"""If messages are overdue, and no mover was seen for so many seconds, the overview says that no launch is running."""
USUAL = 20
"""Number of launches shown by default."""
BEFORE = 50
"""Number of older launches that are read besides the shown ones, to find the ticks at which launches were due."""
LEAST_OF_LAUNCHES = ("released", "exit", "offset", "average", "margin", "waited", "role")
"""Columns to leave out on a narrow terminal, the first one first."""
LAUNCH_FIELDS = (
    *("launch_id", "role", "running_seconds", "stop_reason", "exit_code", "handled", "failed", "released", "yielded"),
    *("longer_than_window", "average_seconds", "margin_seconds", "gap_seconds", "waited_seconds", "missed_ticks"),
    *("skipped", "launch_offset_seconds", "exit_seconds", "platform", "launcher", "run_id", "host", "pid", "config"),
)
LEASE_FIELDS = ("role", "slot", "queues", "holder", "host", "pid", "fence")
SHOWN = 3
"""Number of names shown in a row of the table."""


@click.command(epilog="pollconsumer status\npollconsumer status ID --watch")
@click.argument("message_id", metavar="[ID]", required=False)
@option("--queue", "Queue of the message, if two queues have its id.", QUEUE_NAME)
@click.option(
    "--watch",
    is_flag=True,
    help="Print the message at each change until it ends. Without ID: the overview every 2 s.",
)
@json_option("Print one JSON object, with --watch one per line.")
def status(message_id: str | None, queue: str | None, watch: bool) -> None:
    """Show the message with this ID. Without an ID, show the queues, the leases and the last launches.

    \b
    reserved      messages that a launch has taken
    started       reserved messages whose handler is running
    parked        scheduled messages whose handler is paused, or unknown to all launches
    per minute    messages completed in the last minute
    oldest ready  how long the oldest ready message has waited; messages in line
                  for a key do not count
    waited        mean time that recent messages were ready before they started
    duration      mean duration of the handler of recent messages
    late          longest time from when a recent message was due until it was ready"""
    if message_id is None and queue is not None:
        raise UsageError("--queue", queue, "give the id of a message, too")
    if message_id is None and watch and not is_terminal(sys.stdout):
        raise UsageError("--watch", None, "give the id of a message, too: the overview is watched on a terminal only")
    reading = opened().inspector
    if watch:
        lift()
    if message_id is not None:
        changes = _changes(reading, message_id, queue)
        for number, (message, checkpoint, recorded) in enumerate(changes if watch else islice(changes, 1)):
            if number and not wants_json():
                print_line()
            kept = {"checkpoint": shown_value(checkpoint), **recorded_as_json(recorded)}
            print_message(describe(message) | kept | {"log": log_as_json(message)})
        return
    _show_overview(reading)
    while watch:
        time.sleep(OVERVIEW_EVERY)
        _show_overview(reading, again=True)


def _show_overview(reading: Inspector, *, again: bool = False) -> None:
    """Print the overview. ``again``: replace the previous one on the terminal."""
    overview, launches = reading.overview(), reading.launches(LAUNCHES_SHOWN)
    printed = {
        "queues": [as_object(queue) for queue in overview.queues],
        "overdue": overview.overdue,
        "mover_seen_seconds_ago": overview.mover_seen_seconds_ago,
        "leases": leases_as_json(overview.leases, ("role", "slot", "queues", "holder", "fence")),
        "unreachable": overview.unreachable,
        "paused_handlers": [*overview.paused_handlers],
        "launches": [launch_as_json(entry) for entry in launches],
    }
    if printed_as_json(printed):
        return
    if again:
        click.clear()
    _print_overview(overview, launches)


def _print_overview(overview: Overview, launches: list[dict[str, Any]]) -> None:
    queues_table(overview.queues)
    served = {queue for lease in overview.leases for queue in lease["queues"]}
    overdue = [f"{each.overdue} in {each.name}" for each in overview.queues if each.overdue and each.name not in served]
    seen = overview.mover_seen_seconds_ago
    if overdue and (seen is None or seen > MOVER_MISSING_AFTER):
        start = "start 'pollconsumer run' every minute"
        print_lines(["", f"overdue, and no launch is running: {', '.join(overdue)}; {start}"])
    if overview.paused_handlers:
        print_lines(["", f"paused handlers: {', '.join(overview.paused_handlers)}"])
    if overview.unreachable:
        print_lines(["", f"not shown, since their node of the cluster is lost: {', '.join(overview.unreachable)}"])
    if overview.leases:
        print_line()
        shown = [
            lease | {"lease": lease["role"], "holder": f"{lease['host']}:{lease['pid']}"} for lease in overview.leases
        ]
        leases_table(shown, ("lease", "slot", "queues", "holder", "fence"), overview.now)
    if launches:
        print_line()
        launches_table([each | {"working_on": []} for each in launches], overview.now)  # the leases show it


def _changes(inspector: Inspector, message_id: str, queue: str | None) -> Iterator[tuple[Message, Any, Recorded]]:
    """The message with its checkpoint and its steps: now, and after each change, until the message has ended."""
    before = None
    while True:
        message = inspector.message(message_id, queue)
        seen, queue = (message, *inspector.recorded(message)), message.queue
        if seen != before:
            yield seen
        if message.state.has_ended:
            return
        before = seen
        time.sleep(LOOK_EVERY)


def as_object(queue: QueueCounts) -> dict[str, Any]:
    """A queue as ``--json`` shows it."""
    counts = queue._asdict() | queue.load._asdict()
    del counts["load"]
    return counts


def queues_table(queues: Sequence[QueueCounts]) -> None:
    counts = [*State, "parked"]
    counts.insert(counts.index(State.RESERVED) + 1, "started")
    counts += ["skipped"] if any(queue.skipped for queue in queues) else []
    rows = []
    for queue in queues:
        load = queue.load
        spans = (queue.oldest_ready_seconds, load.waited_seconds, load.handled_seconds, load.late_seconds)
        left = "" if queue.resumes_in_seconds is None else f" for {span(queue.resumes_in_seconds)}"
        name = f"{queue.name} (paused{left})" if queue.paused else queue.name
        rows.append((name, *(getattr(queue, count) for count in counts), load.completed_per_minute, *map(span, spans)))
    print_table(("queue", *counts, "per minute", "oldest ready", "waited", "duration", "late"), rows, LEAST)


@click.command(
    epilog="pollconsumer launches --limit 60\n"
    "pollconsumer launches --since 26h --until 2h\n"
    "pollconsumer launches --since 2026-11-28T03:00\n"
    "pollconsumer launches --gaps"
)
@option(
    "--limit",
    "Launches to show. Default: 20, or all with --since, --until or --gaps.",
    click.IntRange(1, MOST_LAUNCHES_KEPT),
)
@option("--since", "Only launches that started then or later: a time, or how long ago.", PAST)
@option("--until", "Only launches that started before: a time, or how long ago.", PAST)
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
    queues     queues that it served; shown only if launches serve different ones"""
    if gaps and ago:
        raise UsageError("--gaps and --ago", None, "give one of the two")
    reading = opened().inspector
    now = reading.now()
    begin, end = since(now) if since else 0, until(now) if until else LAST_MILLISECOND
    all_of_them = bool(since or until or gaps)
    kept = reading.launches(MOST_LAUNCHES_KEPT if all_of_them else (limit or USUAL) + BEFORE)
    limit = limit or (MOST_LAUNCHES_KEPT if all_of_them else USUAL)
    found = [each for each in kept if begin <= each.get("started_ms", now) < end]
    entries = found[:limit]
    if entries and (not all_of_them or (len(found) > limit and not gaps)):
        begin = entries[-1].get("started_ms", now) + 1
    holes = [hole for hole in holes_of(kept, now) if begin <= hole.last_ms and hole.first_ms < end]
    if gaps:
        if not printed_as_json([*map(_hole_as_json, holes[:limit])]):
            lines = [_hole_line(hole, now, utc) for hole in holes[:limit]]
            print_lines(lines or ["no gaps: no tick of a schedule was without a launch"])
    elif printed_as_json([*map(launch_as_json, entries)]):
        return
    elif all_of_them and not entries and not holes:
        print_line("no launches in that time")
    else:
        launches_table(entries, now, holes, ago=ago, utc=utc)


def launch_as_json(entry: dict[str, Any]) -> dict[str, Any]:
    started = entry.get("started_ms")
    times = {"started_at": None if started is None else instants.iso(started), "fence": entry.get("fence")}
    work = [each.as_json() for each in entry["working_on"]]
    return {name: entry[name] for name in LAUNCH_FIELDS} | times | {"queues": entry["queues"], "working_on": work}


def _hole_as_json(hole: Hole) -> dict[str, Any]:
    first, last = instants.iso(hole.first_ms), instants.iso(hole.last_ms)
    return {"role": hole.role, "queues": hole.queues, "ticks": hole.ticks, "first_at": first, "last_at": last}


def _hole_line(hole: Hole, now: int, utc: bool) -> str:
    return f"{hole.text(now, utc=utc)} ({hole.role} {','.join(hole.queues)}".rstrip() + ")"


def launches_table(
    entries: list[dict[str, Any]], now: int, holes: Sequence[Hole] = (), *, ago: bool = False, utc: bool = False
) -> None:
    """Print launches, with their hosts if there are several, and their queues if these differ. Further lines say what a
    launch works on beyond its window, and at which ticks no launch came (``holes``). Launches and holes are sorted
    newest first. ``now``: the server's clock in epoch ms. ``ago``: show ages as the article does, ``1 minute ago (55
    seconds running time)``, instead of times, which are local or in ``utc``."""
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
        row = host | _row(entry, now, ago=ago, utc=utc)
        row |= {"skipped": entry["skipped"] or None} if skipped else {}
        row |= {"queues": ", ".join(entry["queues"]) or None} if by_queues else {}
        names = [*row]
        table.append([*row.values()])
        table += [working_on(entry["working_on"], now, utc=utc)] if entry["working_on"] else []
    table += [_hole_line(hole, now, utc) for hole in left]
    print_table(names or ["started"], table, LEAST_OF_LAUNCHES)


def _row(entry: dict[str, Any], now: int, *, ago: bool, utc: bool) -> dict[str, object]:
    consumer, at, ran = entry["role"] == "consumer", entry.get("started_ms"), entry["running_seconds"]
    if ago:
        began = "unknown" if at is None else instants.ago(at, now)
        times: dict[str, object] = {"launch": f"{began} ({counted(round(ran), 'second')} running time)"}
    else:
        started = None if at is None else instants.clock(at, now, utc=utc)
        times = {"started": started, "ran": span(ran), "waited": span(entry["waited_seconds"])}
    return times | {
        "role": entry["role"],
        "stopped": why_stopped(entry["stop_reason"]),
        "completed": entry["handled"] if consumer else f"{entry['handled']} moved",
        "failed": entry["failed"] if consumer else None,
        "released": entry["released"] if consumer else None,
        "average": span(entry["average_seconds"] or None),
        "margin": span(entry["margin_seconds"]) if consumer else None,
        "gap": span(entry["gap_seconds"]),
        "offset": span(entry["launch_offset_seconds"]),  # negative for a launch that came a little early
        "exit": span(entry["exit_seconds"]),
    }


@click.group()
def lease() -> None:
    """Show or break leases."""


@lease.command(epilog="pollconsumer lease show")
@JSON_ARRAY
def show() -> None:
    """Show which launch holds which lease, since when.

    \b
    fence  number of the lease's holder; the store refuses writes of earlier holders"""
    reading = opened().inspector
    held = reading.leases()
    if printed_as_json(leases_as_json(held, LEASE_FIELDS)):
        return
    if held:
        leases_table(held, LEASE_FIELDS, reading.now())
    else:
        print_line("no lease is held")


@lease.command(name="break", epilog="pollconsumer lease break --role mover --yes")
@option(
    "--role",
    "Whose lease: consumer is 'run', mover is 'move'.",
    WordType(["consumer", "mover"]),
    default="consumer",
    show_default=True,
)
@option("--slot", "Only this slot: the number of an instance, from 0.", click.IntRange(0, 63))
@click.option("--yes", is_flag=True, help="Break it. Without --yes, only show it.")
def break_(role: str, slot: int | None, yes: bool) -> None:
    """Take the lease away from the launch that holds it.

    That launch ends with exit code 75 when it next renews the lease. The next launch takes over."""
    store = opened()
    held = [each for each in store.inspector.leases() if each["role"] == role and slot in (None, each["slot"])]
    if not held:
        raise NotFound("no such lease", role, "lease show lists those that are held")
    if not yes:
        leases_table(held, LEASE_FIELDS, store.inspector.now())
        raise UsageError("nothing broken", f"{counted(len(held), 'lease')} would be broken", "give --yes")
    if left := [each["lineage"] for each in held if not store.leases.break_(each["lineage"], str(each["fence"]))]:
        raise NotFound("lease not broken", ", ".join(left), "another launch holds it by now, or nobody")


def leases_as_json(leases: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The fields ``names`` of each lease, since when it is held, and what its launch works on beyond the window."""
    return [
        {name: lease[name] for name in names}
        | {"since": iso(lease["since_ms"]), "working_on": [each.as_json() for each in lease["working_on"]]}
        for lease in leases
    ]


def leases_table(leases: Sequence[dict[str, Any]], names: Sequence[str], now: int) -> None:
    """Print leases, and what a launch works on beyond its window. ``now``: the server's clock in epoch ms."""
    rows: list[Sequence[object] | str] = []
    for lease in leases:
        shown = lease | {"queues": ",".join(lease["queues"]) or None}
        rows.append([*(shown[name] for name in names), iso(lease["since_ms"])])
        rows += [working_on(lease["working_on"], now)] if lease["working_on"] else []
    print_table([*names, "since"], rows)


@click.command(epilog="pollconsumer audit --limit 20")
@limit_option(most=MOST_NOTED)
@JSON_ARRAY
def audit(limit: int) -> None:
    """Show what people did, newest first: who cancelled, paused, redrove or removed what.

    The last 10,000 entries are kept. "(unverified)" marks entries that an earlier version of pollconsumer wrote:
    anybody with a producer's login to the store could have forged them."""
    found = opened().audit(limit)
    if not printed_as_json([each._asdict() | {"at": iso(each.at)} for each in found]):
        rows = []
        for each in found:
            more = each.number - len(names := each.names[:SHOWN])
            shortened = ", ".join(names) + (f" and {more:,} more" if more else "")
            rows.append([iso(each.at), each.shown_who, each.what, each.queue, shortened])
        print_table(["at", "who", "what", "queue", "names"], rows)
