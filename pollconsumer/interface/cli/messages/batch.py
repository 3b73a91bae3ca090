"""``pollconsumer batch``: list and show batches; cancel and redrive their members."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import click

from pollconsumer.core.lifecycle import State
from pollconsumer.core.notation.instants import iso
from pollconsumer.interface.cli.messages.actions import report_counts, would
from pollconsumer.interface.cli.messages.dead import WHY_LEFT, print_messages
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import (
    given_row,
    note_more,
    print_line,
    print_table,
    printed_as_json,
    progress_bar,
    telling_when_interrupted,
)
from pollconsumer.interface.cli.types import JSON_ARRAY, JSON_OBJECT, WordType, limit_option, option
from pollconsumer.store.actions import CancelledMembers, RedrivenMembers
from pollconsumer.store.reading.batch_reader import STATES, UNFINISHED, BatchReader, BatchStatus

ID = click.argument("batch_id", metavar="ID")
COUNTS = ("total", "outstanding", "completed", "dead", "cancelled", "expired")
LOOK_EVERY = 0.5
"""Seconds after which ``--watch`` reads a batch again."""


@click.group()
def batch() -> None:
    """Batches: messages that are counted together, with callbacks. A batch is kept for two days after its end."""


@batch.command(name="list", epilog="pollconsumer batch list --state closed")
@option("--state", "Only batches in this state.", WordType(STATES))
@limit_option()
@JSON_ARRAY
def list_(state: str | None, limit: int) -> None:
    """List batches with progress, next to expire or be deleted first.

    \b
    open       members can be added
    closed     all members have been added, and some have not ended
    ended      all members have ended
    abandoned  it was not closed: nothing was heard of its producer for an hour
    expired    its expiry came before all members had ended
    malformed  what the store has of it cannot be read"""
    reader = opened().batches
    wanted = (each for each in map(reader.with_redriven, reader.batches()) if state in (None, each.state))
    found = map(_describe, islice(wanted, limit))
    if not printed_as_json(found):
        names = ("id", "state", *COUNTS, "created_at", "ended_at")
        rows = [[(each | _counts(each))[name] for name in names] for each in found]
        print_table(("id", "state", *COUNTS, "created", "ended"), rows, ("created", "ended", "expired", "cancelled"))
    note_more(wanted, limit)


@batch.command(epilog="pollconsumer batch show import-42\npollconsumer batch show import-42 --watch")
@ID
@click.option("--watch", is_flag=True, help="Wait until the batch has ended. At a terminal, show a progress bar.")
@JSON_OBJECT
def show(batch_id: str, watch: bool) -> None:
    """Show one batch: its progress and its callbacks."""
    reader = opened().batches
    status = reader.status(batch_id)
    if watch:
        status = until_ended(reader, status)
    details = _describe(status) | {"callbacks": [each._asdict() for each in status.callbacks]}
    if printed_as_json(details):
        return
    rows: list[tuple[str, object]] = [
        ("state", details["state"]),
        *_counts(details, until="not known before it is closed").items(),
        *(
            (f"callback {each['name']}", f"{each['handler']}, {each['message_id']}: {each['state'] or 'not enqueued'}")
            for each in details["callbacks"]
        ),
        *given_row("created at", details["created_at"]),
        *given_row("ended at", details["ended_at"]),
        *given_row("expires at", details["expires_at"]),
    ]
    print_table(("id", details["id"]), rows)


@batch.command(epilog="pollconsumer batch members import-42 --state dead --json")
@ID
@option("--state", "Only members in this state.", WordType(State))
@limit_option()
@JSON_ARRAY
def members(batch_id: str, state: State | None, limit: int) -> None:
    """List the kept members of a batch, in the order they were added.

    With --json each has its payload and its last error."""
    reader = opened().batches
    kept = reader.members(reader.batch(batch_id), "dead" if state is State.DEAD else None)
    print_messages((each for each in kept if state in (None, each.state)), limit)


@batch.command(epilog="pollconsumer batch cancel import-42 --yes")
@ID
@click.option("--yes", is_flag=True, help="Cancel them. Without --yes, only count them.")
@JSON_OBJECT
def cancel(batch_id: str, yes: bool) -> None:
    """Cancel all members that have not ended.

    Members that are running are asked to stop. 'batch show' counts a cancelled member after the next launch of its
    queue has reported it. A batch that cannot be read is deleted."""
    store = opened()
    status = store.batches.batch(batch_id)
    if not yes:
        unended = store.batches.members(status, "unended")
        would("cancelled", sum(not each.state.has_ended for each in unended))
        return
    done = CancelledMembers(0, 0)
    with telling_when_interrupted(lambda: f"{done.cancelled} cancelled, and perhaps some more", lost=True):
        for each in store.batch_actions.cancel(status):
            done = each
    if not printed_as_json(done._asdict()):
        stopped = f", {done.asked_to_stop} running and asked to stop" if done.asked_to_stop else ""
        print_line(f"{done.cancelled} cancelled{stopped}")


@batch.command(epilog="pollconsumer batch redrive import-42")
@ID
@JSON_OBJECT
def redrive(batch_id: str) -> None:
    """Return dead members to their queues, with attempts reset to zero."""
    done = RedrivenMembers(0, [])
    with telling_when_interrupted(lambda: f"{done.redriven} redriven, and perhaps some more", lost=True):
        store = opened()
        for each in store.batch_actions.redrive(store.batches.batch(batch_id)):
            done = each
    report_counts("redriven", done.redriven, done.left, WHY_LEFT)


def until_ended(reader: BatchReader, status: BatchStatus) -> BatchStatus:
    """Wait until the batch has ended, is abandoned or has expired. Returns its status. A progress bar, full only then,
    shows how many members have ended. It estimates the remaining time by the members that end while it is shown."""
    seen = list[tuple[float, int]]()
    with progress_bar(status.total + 1, shown=True) as bar:
        bar.show_eta = False
        while status.state in UNFINISHED:
            ended = status.completed + status.dead + status.cancelled + status.expired
            bar.length = max(status.total, ended + 1)
            if not seen or ended > seen[-1][1]:
                seen.append((now := time.time(), ended))
                if len(seen) > 2:
                    since, before = seen[1]
                    each = (now - since) / (ended - before)
                    bar.show_eta, bar.avg, bar.start = True, [each], now - each * ended
            bar.update(max(0, ended - bar.pos))
            time.sleep(LOOK_EVERY)
            status = reader.status(status.id, status.queue)
        bar.update(bar.length - bar.pos)
    return status


def _counts(details: dict[str, Any], until: str | None = None) -> dict[str, Any]:
    """The counts of a batch, for people. In place of counts that are unknown while the batch is open: ``until``."""
    unknown = dict.fromkeys(("total", "outstanding"), until) if details["state"] == "open" else {}
    return {name: details[name] for name in COUNTS} | unknown


def _describe(status: BatchStatus) -> dict[str, Any]:
    """A batch as ``--json`` shows it."""
    return {
        "id": status.id,
        "state": status.state,
        **{name: getattr(status, name) for name in COUNTS},
        "created_at": iso(status.created_at) if status.created_at else None,
        "ended_at": status.ended_at and iso(status.ended_at),
        "expires_at": status.expires_at and iso(status.expires_at),
    }
