"""``pollconsumer signal``: a value for a message that waits for it, or will."""

from __future__ import annotations

import sys

import click

from pollconsumer.core.errors import BadData
from pollconsumer.core.json_values import parse
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import is_terminal, print_notice
from pollconsumer.interface.cli.types import QUEUE_NAME, Once


@click.command(epilog='pollconsumer signal ID approved \'{"by":"admin"}\'')
@click.argument("message_id", metavar="ID")
@click.argument("name", metavar="NAME")
@click.argument("value", metavar="[VALUE]", default="true")
@click.option("--queue", cls=Once, type=QUEUE_NAME, help="Queue of the message, if two queues have its id.")
def signal(message_id: str, name: str, value: str, queue: str | None) -> None:
    """Send the signal NAME with VALUE to a message whose handler waits for it.

    VALUE is JSON. Default: true. A signal sent before the handler waits is kept. A second signal of the same name is
    refused.
    """
    try:
        given = parse(value)
    except (ValueError, RecursionError):
        raise BadData("VALUE", value, 'JSON, as in true or \'{"by":"admin"}\'') from None
    store = opened()
    message = store.inspector.message(message_id, queue)
    awaited = store.inspector.recorded(message)[1].awaited
    if not store.interventions.signal(message.queue, message_id, name, given):
        raise BadData("signal sent before", name, "the first value counts; use another name")
    if awaited != name and is_terminal(sys.stderr):
        waits = f"waits for {awaited}" if awaited else "waits for no signal"
        print_notice(f"{message_id} {waits} now; {name} is kept until it asks")
