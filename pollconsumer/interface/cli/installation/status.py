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
from pollconsumer.core.notation.text import printable
from pollconsumer.interface.cli.installation.launches import launch_as_json, launches_table
from pollconsumer.interface.cli.installation.lease import leases_as_json, leases_table
from pollconsumer.interface.cli.message_details import describe, print_message, recorded_as_json
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import (
    is_terminal,
    print_line,
    print_table,
    printed_as_json,
    span,
    wants_json,
)
from pollconsumer.interface.cli.types import QUEUE_NAME, Once, json_option
from pollconsumer.runtime.system.watchdog import lift
from pollconsumer.store.reading.inspector import Inspector, Overview, QueueCounts
from pollconsumer.store.reading.messages import Message

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
