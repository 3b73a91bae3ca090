"""``pollconsumer list``: messages by state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import click

from pollconsumer.core.lifecycle import State
from pollconsumer.core.notation.instants import iso
from pollconsumer.interface.cli.message_details import describe
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import note_more, print_table, printed_as_json
from pollconsumer.interface.cli.types import JSON_ARRAY, QUEUE_NAME, Once, WordType, header_option
from pollconsumer.store.reading.message_selector import Selection
from pollconsumer.store.reading.messages import Message

PAGE = 500
"""Messages in memory at a time."""
LEAST = ("attempts", "queue", "started", "at")
"""Columns that a narrow terminal does without, in this order."""


@click.command(name="list", epilog="pollconsumer list --state ready --queue mail")
@click.option("--state", cls=Once, type=WordType(State), help="Only messages in this state.")
@click.option("--queue", cls=Once, type=QUEUE_NAME, help="Only messages of this queue.")
@click.option("--handler", cls=Once, help="Only messages of this handler.")
@click.option("--recurrence", cls=Once, help="Only occurrences of this recurrence.")
@header_option("Only messages with this header. Repeatable: all must match.")
@click.option(
    "--limit", cls=Once, type=click.IntRange(1), default=100, show_default=True, help="Show at most this many."
)
@JSON_ARRAY
def list_(
    state: State | None,
    queue: str | None,
    handler: str | None,
    recurrence: str | None,
    headers: dict[str, str] | None,
    limit: int,
) -> None:
    """List messages by queue and state.

    Those next to be handled come first; of those that have ended, the oldest.
    """
    found = opened().selector.messages(Selection(state, queue, handler, recurrence, headers=headers))
    print_messages(islice(found, limit))
    note_more(found, limit)


def print_messages(messages: Iterator[Message]) -> None:
    """Print a line for each message, in pages whose columns have widths of their own; or one JSON array, as they are
    read."""
    if printed_as_json(map(describe, messages)):
        return
    page = [*islice(messages, PAGE)]
    reported = any(message.progress for message in page)  # most handlers do not tell
    began = any(_started(message) for message in page)
    told = [*(["started"] if began else []), *(["progress"] if reported else [])]
    columns: Sequence[int] | None = None
    head: list[list[object]] = [["id", "queue", "handler", "state", "attempts", "at", *told, "last error"]]
    while head or page:
        rows = [*head, *(_row(message, began=began, reported=reported) for message in page)]
        columns = print_table(rows[0], rows[1:], LEAST, columns)
        head, page = [], [*islice(messages, PAGE)]


def _started(message: Message) -> str | None:
    """When a handler began with a message that is reserved; None for any other message."""
    at = message.row.timestamps.started_at
    return iso(at) if at is not None and message.state is State.RESERVED else None


def _row(message: Message, *, began: bool, reported: bool) -> list[object]:
    row = message.row
    times = row.timestamps
    since = times.ended_at or times.reserved_at or times.enqueued_at
    at = since or times.next_attempt_at or times.due_at
    what = [message.id, message.queue, row.handler, message.state.value, row.attempts, at and iso(at)]
    what += [_started(message)] if began else []
    return [*what, *([message.progress] if reported else []), message.last_error]
