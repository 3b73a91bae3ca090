"""``pollconsumer cancel`` and ``reschedule``, for messages that are not reserved yet."""

from __future__ import annotations

import click

from pollconsumer.core.errors import UsageError
from pollconsumer.core.notation.instants import ceil_ms
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.types import DUE_TIME, QUEUE_NAME, Duration, Once
from pollconsumer.runtime.messages import LONGEST_DELAY
from pollconsumer.store.inspector import Inspector
from pollconsumer.store.interventions import Interventions


@click.command()
@click.argument("message_id", metavar="ID")
@click.option("--queue", cls=Once, type=QUEUE_NAME, help="Its queue, where two have a message of that id.")
def cancel(message_id: str, queue: str | None) -> None:
    """Cancel a message that is scheduled or ready."""
    opened(Interventions).cancel(opened(Inspector).message(message_id, queue).queue, message_id)


@click.command()
@click.argument("message_id", metavar="ID")
@click.option("--in", "in_", cls=Once, type=Duration(most=LONGEST_DELAY), help="Due after so long.")
@click.option("--at", cls=Once, type=DUE_TIME, help="Due at this time, ISO 8601 with an offset or Z.")
@click.option("--queue", cls=Once, type=QUEUE_NAME, help="Its queue, where two have a message of that id.")
def reschedule(message_id: str, in_: float | None, at: int | None, queue: str | None) -> None:
    """Change the due time of a message that is scheduled or ready; one in the past is due now."""
    if (in_ is None) == (at is None):
        raise UsageError("due time", "none" if in_ is None else "both", "give --in or --at")
    delay = None if in_ is None else ceil_ms(in_)
    opened(Interventions).reschedule(
        opened(Inspector).message(message_id, queue).queue, message_id, due=at, delay=delay
    )
