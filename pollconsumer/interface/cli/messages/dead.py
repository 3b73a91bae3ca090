"""``pollconsumer list`` lists messages; ``dead`` lists, shows, redrives, purges dead letters and unreadable entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click

from pollconsumer.core.errors import NotFound, PermissionDenied, UsageError
from pollconsumer.core.lifecycle import State
from pollconsumer.core.notation.instants import iso
from pollconsumer.core.notation.text import counted
from pollconsumer.interface.api.described import describe, log_as_json
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.message_details import print_message
from pollconsumer.interface.cli.messages.actions import each_queue, report, report_counts
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import note_more, print_table, printed_as_json
from pollconsumer.interface.cli.types import (
    JSON_ARRAY,
    JSON_OBJECT,
    QUEUE_NAME,
    WordType,
    label_options,
    limit_option,
    option,
)
from pollconsumer.interface.configured_store import spool_of
from pollconsumer.store.audit_log import demand_noting, note
from pollconsumer.store.queues.outbox import read_entry
from pollconsumer.store.reading.inspector import Chosen, Selection, dead_letters
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.records.rows import id_text
from pollconsumer.store.rights import OPERATOR, demand
from pollconsumer.store.store import Store

PAGE = 500
"""Number of messages held in memory at a time."""
LEAST = ("attempts", "queue", "started", "created by", "at")
"""Columns to leave out on a narrow terminal, the first one first."""
WHY_LEFT = "no dead letter any more, record lost, or another message has the unique key"
UNREADABLE = click.option(
    "--unreadable",
    is_flag=True,
    help="Instead of dead letters: unreadable messages in outboxes (sent from queue to queue), and without --queue in "
    "this host's spool.",
)
PURGED = "purge unreadable"
"""What the audit log notes."""
SHOWN = 160
"""Maximum length of an entry's content, in characters."""


@click.command(name="list", epilog="pollconsumer list --state ready --queue mail")
@option("--state", "Only messages in this state.", WordType(State))
@option("--queue", "Only messages of this queue.", QUEUE_NAME)
@option("--handler", "Only messages of this handler.")
@option("--recurrence", "Only occurrences of this recurrence.")
@label_options("Only messages")
@limit_option()
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

    Those next to be handled come first; of those that have ended, the oldest."""
    print_messages(opened().selector.messages(Selection(state, queue, handler, recurrence, headers=headers)), limit)


def print_messages(found: Iterator[Message], limit: int) -> None:
    """Print the first ``limit`` messages while they are read: a line each, in pages with their own column widths, or
    with ``--json`` one array. A person is told whether there are more messages."""
    messages = islice(found, limit)
    if not printed_as_json(map(describe, messages)):
        _print_pages(messages)
    note_more(found, limit)


def _print_pages(messages: Iterator[Message]) -> None:
    page = [*islice(messages, PAGE)]
    filled_columns = [(title, of) for title, of in COLUMNS.items() if any(map(of, page))]
    columns: Sequence[int] | None = None
    head: list[list[object]] = [
        ["id", "queue", "handler", "state", "attempts", "at", *(title for title, _ in filled_columns), "last error"]
    ]
    while head or page:
        rows = [*head, *(_row(message, [of(message) for _, of in filled_columns]) for message in page)]
        columns = print_table(rows[0], rows[1:], LEAST, columns)
        head, page = [], [*islice(messages, PAGE)]


def _started(message: Message) -> str | None:
    """When the handler of a reserved message started. None for any other message."""
    at = message.row.timestamps.started_at
    return iso(at) if at is not None and message.state is State.RESERVED else None


COLUMNS: dict[str, Callable[[Message], object]] = {
    "started": _started,
    "progress": lambda message: message.progress,
    "created by": lambda message: message.created_by,
}
"""Columns that are shown only if a message of the first page has a value in them."""


def _row(message: Message, filled_columns: list[object]) -> list[object]:
    row = message.row
    times = row.timestamps
    since = times.ended_at or times.reserved_at or times.enqueued_at
    at = since or times.next_attempt_at or times.due_at
    what = [message.id, message.queue, row.handler, message.state.value, row.attempts, at and iso(at)]
    return [*what, *filled_columns, message.last_error]


def chosen(command: Callable[..., None]) -> Callable[..., None]:
    """A decorator that adds options which select dead letters. ``command`` gets queues and ids as ``letters``; with
    ``--unreadable`` it gets the `Quarantine` as ``unreadable`` instead."""

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
        letters: Chosen = []
        if others.get("unreadable"):
            others["unreadable"] = _quarantine(selection, by_more=bool(ids) or every)
        else:
            letters = _chosen(ids, every, selection)
        command(letters=letters, **others)

    for give in (
        option("--queue", "Only dead letters of this queue.", QUEUE_NAME),
        option("--handler", "Only dead letters of this handler."),
        label_options("Only dead letters"),
        click.option("--all", "every", is_flag=True, help="All dead letters."),
        click.argument("ids", metavar="ID...", nargs=-1),
    ):
        call = give(call)
    return call


@click.group()
def dead() -> None:
    """Dead letters: messages that failed in their last attempt, or that cannot be read."""


@dead.command(name="list", epilog="pollconsumer dead list --handler mail.send")
@option("--queue", "Only dead letters of this queue.", QUEUE_NAME)
@option("--handler", "Only dead letters of this handler.")
@label_options("Only dead letters")
@limit_option()
@UNREADABLE
@JSON_ARRAY
def list_dead(
    queue: str | None,
    handler: str | None,
    headers: dict[str, str] | None,
    limit: int,
    unreadable: bool,
) -> None:
    """List dead letters, oldest first."""
    selection = Selection(State.DEAD, queue, handler, headers=headers)
    if unreadable:
        entries = _quarantine(selection).entries()
        found = [*islice(entries, limit)]
        if not printed_as_json(each._asdict() for each in found):
            print_table(Quarantined._fields, found)
        note_more(entries, limit)
        return
    print_messages(opened().selector.messages(selection), limit)


@dead.command(epilog="pollconsumer dead show ID")
@click.argument("message_id", metavar="ID")
@option("--queue", "Queue of the message, if two queues have its id.", QUEUE_NAME)
@JSON_OBJECT
def show(message_id: str, queue: str | None) -> None:
    """Show one dead letter, with its stored bytes if it is malformed."""
    letter = opened().inspector.message(message_id, queue)
    if letter.state is not State.DEAD:
        raise NotFound("no such dead letter", message_id, f"the message is {letter.state}")
    print_message(describe(letter) | {"raw": letter.raw, "log": log_as_json(letter)})


@dead.command(epilog="pollconsumer dead redrive ID\npollconsumer dead redrive --header customer=7")
@chosen
@click.option("--from-start", is_flag=True, help="Delete their checkpoints, steps and signals first.")
@JSON_OBJECT
def redrive(letters: Chosen, from_start: bool) -> None:
    """Return dead letters to their queue, with attempts reset to zero."""
    act = partial(opened().actions.redrive, from_start=from_start)
    returned = each_queue("redriven", (letters, act))
    report("redriven", returned, letters, WHY_LEFT)


@dead.command(epilog="pollconsumer dead purge --handler mail.send --yes\npollconsumer dead purge --unreadable --yes")
@chosen
@UNREADABLE
@click.option("--yes", is_flag=True, help="Delete them. Without --yes, only count them.")
@JSON_OBJECT
def purge(letters: Chosen, unreadable: Quarantine | None, yes: bool) -> None:
    """Delete dead letters."""
    if unreadable:
        if not yes:
            count = len([*unreadable.entries()])
            raise UsageError("nothing purged", f"{counted(count, 'unreadable message')} would be purged", "give --yes")
        report_counts("purged", unreadable.remove(), [], "")
        return
    if not yes:
        raise UsageError("nothing purged", f"{counted(len(letters), 'dead letter')} would be purged", "give --yes")
    forgotten = each_queue("purged", (letters, opened().actions.purge))
    report("purged", forgotten, letters, WHY_LEFT)


def _quarantine(selection: Selection, *, by_more: bool = False) -> Quarantine:
    """The unreadable messages of the selected queue, or of all queues and the spool. UsageError if anything but
    a queue is given. ``by_more``: ids or --all are given."""
    if by_more or (selection.handler, selection.headers) != (None, None):
        raise UsageError("--unreadable and a selection of dead letters", None, "--unreadable takes --queue alone")
    return Quarantine(opened(), selection.queue)


def _chosen(ids: tuple[str, ...], every: bool, selection: Selection) -> Chosen:
    """Queue and id of each selected dead letter. All are read before the first one is changed."""
    queue, narrowed = selection.queue, bool(selection.handler or selection.headers)
    if bool(ids) == (every or narrowed) and (ids or not queue):
        if ids:
            raise UsageError("ids and a selection", None, "give one of the two")
        raise UsageError(
            "no dead letters chosen", None, "give ids, --all, --handler, --header, --created-by or --queue"
        )
    if not ids:
        return dead_letters(opened().selector, selection)
    inspector = opened().inspector
    letters = [inspector.message(message_id, queue) for message_id in ids]
    for letter in letters:
        if letter.state is not State.DEAD:
            again = f"; 'pollconsumer rerun {letter.id}' runs it again" if letter.state.has_ended else ""
            raise NotFound("no such dead letter", letter.id, f"the message is {letter.state}{again}")
    return [(letter.queue, letter.id) for letter in letters]


class Quarantined(NamedTuple):
    """An entry that no launch could read. ``place``: the key, or the file, where it is."""

    place: str
    reason: str
    content: str


class Quarantine:
    """The entries of outboxes and of this host's spool that no launch could read. With a ``queue``, only those of its
    outbox."""

    def __init__(self, store: Store, queue: str | None) -> None:
        self._wire, self._store_keys = store.wire, store.keys
        queues = store.inspector.queues() if queue is None else [queue]
        self._keys = {store.keys.queue(each, "quarantine"): each for each in queues}
        self._files = [*_files()] if queue is None else []

    def entries(self) -> Iterator[Quarantined]:
        for key, queue in self._keys.items():
            for stored in self._wire.command("LRANGE", key, 0, -1):
                entry = read_entry(queue, stored)
                reason = "a newer version can read it" if entry is None else entry.problem or "it can be read now"
                yield Quarantined(key, reason, id_text(stored[:SHOWN]))
        yield from self._files

    def remove(self) -> int:
        """Delete all entries, and note that. Returns their number."""
        removed = 0
        demand_noting(self._wire, self._store_keys)  # a spool alone needs it, too
        for key, queue in self._keys.items():
            demand(self._wire, OPERATOR, key)
            count, _ = self._wire.all([("LLEN", key), ("DEL", key)])
            if count:
                note(self._wire, self._store_keys, PURGED, queue)
            removed += count
        return removed + self._remove_files()

    def _remove_files(self) -> int:
        names = list[str]()
        try:
            for path in (Path(each.place) for each in self._files):
                path.unlink(missing_ok=True)
                names.append(path.name)
        except OSError as error:
            raise PermissionDenied("cannot remove", path, error.strerror or str(error)) from None
        finally:
            if names:
                note(self._wire, self._store_keys, PURGED, "", names)
        return len(names)


def _files() -> Iterator[Quarantined]:
    settings = current_settings()
    if settings.spool is None:
        return
    for path, content, unreadable in spool_of(settings).refused():
        entry = read_entry("", content)
        reason = unreadable or (entry and entry.problem) or "a launch could not enqueue it"
        yield Quarantined(str(path), reason, id_text(content[:SHOWN]))
