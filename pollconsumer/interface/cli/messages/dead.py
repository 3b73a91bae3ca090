"""``pollconsumer dead``: list, show, redrive and purge dead letters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from itertools import islice
from typing import Any

import click

from pollconsumer.core.errors import NotFound, UsageError
from pollconsumer.core.lifecycle import State
from pollconsumer.core.notation.text import counted
from pollconsumer.interface.cli.message_details import describe, print_message
from pollconsumer.interface.cli.messages.chosen import each_queue, report
from pollconsumer.interface.cli.messages.list import print_messages
from pollconsumer.interface.cli.messages.unreadable import print_unreadable, purge_unreadable
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import note_more
from pollconsumer.interface.cli.types import JSON_ARRAY, JSON_OBJECT, QUEUE_NAME, Once, header_option
from pollconsumer.store.reading.message_selector import Chosen, Selection, dead_letters

WHY_LEFT = "no dead letter any more, record lost, or another message has the unique key"


def chosen(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that select dead letters, and call it with queue and id of each as ``letters``."""

    @wraps(command)
    def call(
        ids: tuple[str, ...],
        every: bool,
        queue: str | None,
        handler: str | None,
        headers: dict[str, str] | None,
        **others: Any,
    ) -> None:
        selection = Selection(queue=queue, handler=handler, headers=headers)
        letters = [] if others.get("unreadable") else _chosen(ids, every, selection)
        command(letters=letters, **others)

    for option in (
        click.option("--queue", cls=Once, type=QUEUE_NAME, help="Only dead letters of this queue."),
        click.option("--handler", cls=Once, help="Only dead letters of this handler."),
        header_option("Only dead letters with this header. Repeatable: all must match."),
        click.option("--all", "every", is_flag=True, help="All dead letters."),
        click.argument("ids", metavar="ID...", nargs=-1),
    ):
        call = option(call)
    return call


UNREADABLE = click.option(
    "--unreadable",
    is_flag=True,
    help="Instead of dead letters: unreadable messages in outboxes (sent from queue to queue) and this host's spool.",
)


@click.group()
def dead() -> None:
    """Dead letters: messages that failed in their last attempt, or that cannot be read."""


@dead.command(name="list", epilog="pollconsumer dead list --handler mail.send")
@click.option("--queue", cls=Once, type=QUEUE_NAME, help="Only dead letters of this queue.")
@click.option("--handler", cls=Once, help="Only dead letters of this handler.")
@header_option("Only dead letters with this header. Repeatable: all must match.")
@click.option(
    "--limit", cls=Once, type=click.IntRange(1), default=100, show_default=True, help="Show at most this many."
)
@UNREADABLE
@JSON_ARRAY
def list_(
    queue: str | None,
    handler: str | None,
    headers: dict[str, str] | None,
    limit: int,
    unreadable: bool,
) -> None:
    """List dead letters, oldest first."""
    if unreadable:
        print_unreadable()
        return
    letters = opened().selector.messages(Selection(State.DEAD, queue, handler, headers=headers))
    print_messages(islice(letters, limit))
    note_more(letters, limit)


@dead.command(epilog="pollconsumer dead show ID")
@click.argument("message_id", metavar="ID")
@click.option("--queue", cls=Once, type=QUEUE_NAME, help="Queue of the message, if two queues have its id.")
@JSON_OBJECT
def show(message_id: str, queue: str | None) -> None:
    """Show one dead letter, with its stored bytes if it is malformed."""
    letter = opened().inspector.message(message_id, queue)
    if letter.state is not State.DEAD:
        raise NotFound("no such dead letter", message_id, f"the message is {letter.state}")
    print_message(describe(letter) | {"raw": letter.raw})


@dead.command(epilog="pollconsumer dead redrive ID\npollconsumer dead redrive --header customer=7")
@chosen
@click.option("--from-start", is_flag=True, help="Delete their checkpoints, steps and signals first.")
@JSON_OBJECT
def redrive(letters: Chosen, from_start: bool) -> None:
    """Return dead letters to their queue, with attempts reset to zero."""
    act = partial(opened().interventions.redrive, from_start=from_start)
    returned = each_queue("redriven", (letters, act))
    report("redriven", returned, letters, WHY_LEFT)


@dead.command(epilog="pollconsumer dead purge --handler mail.send --yes\npollconsumer dead purge --unreadable --yes")
@chosen
@UNREADABLE
@click.option("--yes", is_flag=True, help="Delete them. Without --yes, only count them.")
@JSON_OBJECT
def purge(letters: Chosen, unreadable: bool, yes: bool) -> None:
    """Delete dead letters."""
    if unreadable:
        purge_unreadable(yes=yes)
        return
    if not yes:
        raise UsageError("nothing purged", f"{counted(len(letters), 'dead letter')} would be purged", "give --yes")
    forgotten = each_queue("purged", (letters, opened().interventions.purge))
    report("purged", forgotten, letters, WHY_LEFT)


def _chosen(ids: tuple[str, ...], every: bool, selection: Selection) -> Chosen:
    """Queue and id of each selected dead letter, before anything changes."""
    queue, narrowed = selection.queue, bool(selection.handler or selection.headers)
    if bool(ids) == (every or narrowed) and (ids or not queue):
        if ids:
            raise UsageError("ids and a selection", None, "give one of the two")
        raise UsageError("no dead letters chosen", None, "give ids or --all, --handler, --header or --queue")
    if not ids:
        return dead_letters(opened().selector, selection)
    inspector = opened().inspector
    letters = [inspector.message(message_id, queue) for message_id in ids]
    for letter in letters:
        if letter.state is not State.DEAD:
            raise NotFound("no such dead letter", letter.id, f"the message is {letter.state}")
    return [(letter.queue, letter.id) for letter in letters]
