"""``pollconsumer queue``: the queues there are; pausing one, emptying it."""

from __future__ import annotations

import click

from pollconsumer.core.errors import suggestion
from pollconsumer.core.notation.instants import ceil_ms
from pollconsumer.interface.cli.installation.status import as_object, queues_table
from pollconsumer.interface.cli.messages.chosen import WHY_LEFT, each_queue, report, would
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import printed_as_json
from pollconsumer.interface.cli.types import JSON_ARRAY, JSON_OBJECT, QUEUE_NAME, Duration, Once
from pollconsumer.interface.logs.logs import log
from pollconsumer.store.reading.message_selector import Selection, dead_letters, unreserved
from pollconsumer.store.server import known_queues


@click.group()
def queue() -> None:
    """List, pause, resume or empty queues."""


@queue.command(name="list", epilog="pollconsumer queue list")
@JSON_ARRAY
def list_() -> None:
    """List queues, with the number of messages in each state."""
    queues = opened().inspector.overview().queues
    if not printed_as_json([as_object(each) for each in queues]):
        queues_table(queues)


@queue.command(epilog="pollconsumer queue pause mail\npollconsumer queue pause mail --for 2h")
@click.argument("name", type=QUEUE_NAME)
@click.option("--for", "lasts", cls=Once, type=Duration(positive=True), help="End the pause after this time.")
def pause(name: str, lasts: float | None) -> None:
    """Pause a queue: its messages wait until it is resumed.

    Running handlers go on. For a queue that is paused already, --for changes when the pause ends.
    """
    store = opened()
    known = known_queues(store.wire, store.keys)
    store.interventions.pause(name, paused=True, lasts_ms=0 if lasts is None else ceil_ms(lasts))
    if name not in known:
        others = f"queues are: {', '.join(known) or 'none yet'}"
        log.warning("queue %s: paused before its first message; %s", name, suggestion(name, known, others))


@queue.command(epilog="pollconsumer queue resume mail")
@click.argument("name", type=QUEUE_NAME)
def resume(name: str) -> None:
    """Resume a paused queue."""
    opened().interventions.pause(name, paused=False)


@queue.command(epilog="pollconsumer queue purge mail --yes")
@click.argument("name", type=QUEUE_NAME)
@click.option("--yes", is_flag=True, help="Purge the queue. Without --yes, only count its messages.")
@JSON_OBJECT
def purge(name: str, yes: bool) -> None:
    """Empty a queue: cancel waiting messages, delete dead letters.

    Scheduled and ready messages are cancelled. Running handlers go on.
    """
    store = opened()
    asked = unreserved(store.selector, Selection(queue=name))
    dead = dead_letters(store.selector, Selection(queue=name))
    if yes:
        done = each_queue("purged", (asked, store.interventions.cancel_all), (dead, store.interventions.purge))
        report("purged", done, [*asked, *dead], WHY_LEFT)
    else:
        would("purged", len(asked) + len(dead))
