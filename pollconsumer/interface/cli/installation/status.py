"""``pollconsumer status``, of one message or an overview."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import click

from pollconsumer.core.errors import UsageError
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.codec import shown_value
from pollconsumer.core.messages.message_steps import Recorded
from pollconsumer.core.news.progress import Progress
from pollconsumer.core.notation.instants import iso
from pollconsumer.core.notation.text import printable
from pollconsumer.interface.cli.installation.launches import launch_as_json, launches_table
from pollconsumer.interface.cli.installation.lease import leases_as_json, leases_table
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import (
    given_row,
    is_terminal,
    json_text,
    print_line,
    print_quoted,
    print_table,
    printed_as_json,
    span,
    wants_json,
)
from pollconsumer.interface.cli.types import QUEUE_NAME, Once, json_option
from pollconsumer.runtime.system.watchdog import lift
from pollconsumer.store.reading.inspector import Inspector, Overview, QueueCounts
from pollconsumer.store.reading.messages import Message

DURATIONS = {"waited_seconds": "waited", "handled_seconds": "duration"}
LEAST = ("late", "waited", "skipped", "expired", "cancelled", "started", "per minute", "duration", "parked")
"""Columns that a narrow terminal does without, in this order."""
LAUNCHES_SHOWN = 5
LOOK_EVERY = 0.5
"""Seconds after which ``--watch`` reads a message again."""
OVERVIEW_EVERY = 2.0
"""Seconds after which ``--watch`` reads the overview again."""
MOVER_MISSING_AFTER = 5.0
"""Seconds that a message may be overdue before a missing mover is reported."""


@click.command(epilog="pollconsumer status\npollconsumer status ID --watch")
@click.argument("message_id", metavar="[ID]", required=False)
@click.option("--queue", cls=Once, type=QUEUE_NAME, help="Queue of the message, if two queues have its id.")
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
    oldest ready  how long the oldest ready message has waited
    waited        mean time that recent messages were ready before they started
    duration      mean duration of the handler of recent messages
    late          longest time from when a recent message was due until it was ready
    """
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
            print_message(describe(message) | kept)
        return
    _show_overview(reading)
    while watch:
        time.sleep(OVERVIEW_EVERY)
        _show_overview(reading, again=True)


def _show_overview(reading: Inspector, *, again: bool = False) -> None:
    """Print the overview; ``again``: in place of the one before."""
    overview, launches = reading.overview(), reading.launches(LAUNCHES_SHOWN)
    if printed_as_json(_as_json(overview) | {"launches": [launch_as_json(entry) for entry in launches]}):
        return
    if again:
        click.clear()
    _print_overview(overview, launches)


def _changes(inspector: Inspector, message_id: str, queue: str | None) -> Iterator[tuple[Message, Any, Recorded]]:
    """The message with its checkpoint and its steps, and again whenever they have changed, until it has ended."""
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


def describe(message: Message) -> dict[str, Any]:
    """A message as ``--json`` shows it."""
    row = message.row
    return {
        "id": message.id,
        "queue": message.queue,
        "handler": row.handler,
        "state": message.state.value,
        "priority": row.priority,
        "attempts": row.attempts,
        "generation": row.generation,
        "payload": shown_value(message.payload),
        "headers": dict(message.headers),
        "expires_at": None if message.expires_at is None else iso(message.expires_at),
        "last_error": message.last_error,
        "traceback": message.traceback,
        "waits_for_concurrency_key": row.waiting,
        "waits_for_rate_key": row.booked,
        "result": shown_value(message.result),
        "stop_asked_at": message.stop_asked_at and iso(message.stop_asked_at),
        "progress": message.progress and progress_as_json(message.progress),
        "timestamps": {name: None if at is None else iso(at) for name, at in row.timestamps._asdict().items()},
        "durations": message.durations,
    }


def recorded_as_json(recorded: Recorded) -> dict[str, Any]:
    """The steps of a message, the signal that it awaits, and those sent to it, as ``--json`` shows them."""
    return {
        "steps": [
            {"name": name, "at": iso(at), "result": shown_value(result), "until": until and iso(until)}
            for name, at, result, until in recorded.steps
        ],
        "awaits": recorded.awaited or None,
        "signals": [{"name": name, "at": iso(at), "value": shown_value(value)} for name, at, value in recorded.signals],
    }


def _shown_step(step: dict[str, Any]) -> str:
    ends = f"until {step['until']}" if step["until"] else json_text(step["result"])
    return f"{step['name']}: {ends}, at {step['at']}"


def progress_as_json(progress: Progress) -> dict[str, Any]:
    return progress._asdict() | {"at": iso(progress.at)}


def _stop(details: dict[str, Any]) -> str:
    """When the message was asked to stop, and what becomes of the request."""
    if details["state"] != State.RESERVED:
        return f"at {details['stop_asked_at']}, without effect: the handler ended by itself"
    return f"at {details['stop_asked_at']}; the handler is interrupted 5s later, unless it blocks in a thread"


def _shown(progress: dict[str, Any]) -> str:
    return f"{Progress(progress['done'], progress['total'], progress['note'])}, at {progress['at']}"


def print_message(details: dict[str, Any]) -> None:
    """Print one message: one JSON object, or one property a line."""
    if printed_as_json(details):
        return
    durations = details["durations"].items()
    rows: list[tuple[str, object]] = [
        *((name, details[name]) for name in ("queue", "handler", "state", "priority", "attempts")),
        ("payload", _json(details["payload"])),
        *(("header", f"{name}: {value}") for name, value in details["headers"].items()),
        *given_row("expires", details["expires_at"]),
        *given_row("last error", details["last_error"]),
        *given_row("result", _json(details["result"])),
        *given_row("progress", details["progress"] and _shown(details["progress"])),
        *given_row("checkpoint", _json(details.get("checkpoint"))),
        *(("step", _shown_step(each)) for each in details.get("steps", ())),
        *given_row("waits for", details.get("awaits") and f"signal {details['awaits']}"),
        *(
            ("signal", f"{each['name']}: {json_text(each['value'])}, at {each['at']}")
            for each in details.get("signals", ())
        ),
        *given_row("stop asked", details["stop_asked_at"] and _stop(details)),
        *given_row("waits for", details["waits_for_concurrency_key"] and "messages with its concurrency key"),
        *given_row("waits for", details["waits_for_rate_key"] and "the rate limit of its key, until its next attempt"),
        *given_row("raw", details.get("raw")),
        *((name, at) for name, at in details["timestamps"].items() if at),
        *(row for name, seconds in durations for row in given_row(DURATIONS[name], span(seconds))),
    ]
    print_table(("id", details["id"]), rows)
    if details["traceback"]:
        print_quoted(details["traceback"])


def _json(value: object) -> str | None:
    return None if value is None else json_text(value)


def _as_json(overview: Overview) -> dict[str, Any]:
    return {
        "queues": [as_object(queue) for queue in overview.queues],
        "overdue": overview.overdue,
        "mover_seen_seconds_ago": overview.mover_seen_seconds_ago,
        "leases": leases_as_json(overview.leases, ("role", "slot", "queues", "holder", "fence")),
        "unreachable": overview.unreachable,
        "paused_handlers": overview.paused_handlers,
    }


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


def _print_overview(overview: Overview, launches: list[dict[str, Any]]) -> None:
    queues_table(overview.queues)
    if overdue := _unattended(overview):
        print_line()
        print_line(f"overdue, and no launch is running: {', '.join(overdue)}; start 'pollconsumer run' every minute")
    if overview.paused_handlers:
        print_line()
        print_line(f"paused handlers: {', '.join(map(printable, overview.paused_handlers))}")
    if overview.unreachable:
        print_line()
        print_line(f"not shown, since their node of the cluster is lost: {', '.join(overview.unreachable)}")
    if overview.leases:
        print_line()
        shown = [
            lease | {"lease": lease["role"], "holder": f"{lease['host']}:{lease['pid']}"} for lease in overview.leases
        ]
        leases_table(shown, ("lease", "slot", "queues", "holder", "fence"), overview.now)
    if launches:
        print_line()
        launches_table([each | {"working_on": []} for each in launches], overview.now)  # the leases say it


def _unattended(overview: Overview) -> list[str]:
    """Queues with overdue messages that nobody promotes, each with their number; none if a mover is or lately was
    there."""
    seen = overview.mover_seen_seconds_ago
    if seen is not None and seen <= MOVER_MISSING_AFTER:
        return []
    served = {queue for lease in overview.leases for queue in lease["queues"]}
    return [f"{each.overdue} in {each.name}" for each in overview.queues if each.overdue and each.name not in served]
