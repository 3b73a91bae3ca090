"""``pollconsumer audit``: what people did, newest first."""

from __future__ import annotations

import click

from pollconsumer.core.notation.instants import iso
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import print_table, printed_as_json
from pollconsumer.interface.cli.types import JSON_ARRAY, Once
from pollconsumer.store.audit_log import MOST_NOTED

SHOWN = 3
"""Names in a row of the table."""


@click.command(epilog="pollconsumer audit --limit 20")
@click.option(
    "--limit",
    cls=Once,
    type=click.IntRange(1, MOST_NOTED),
    default=100,
    show_default=True,
    help="Show at most this many.",
)
@JSON_ARRAY
def audit(limit: int) -> None:
    """Show what people did, newest first: who cancelled, paused, redrove or removed what.

    The last 10,000 entries are kept. "(unverified)" marks entries that an earlier version of pollconsumer wrote:
    anybody with a producer's login to the store could have forged them."""
    found = opened().audit(limit)
    if not printed_as_json([each._asdict() | {"at": iso(each.at)} for each in found]):
        rows = [
            [iso(each.at), each.shown_who, each.what, each.queue, in_brief(each.names, each.number)] for each in found
        ]
        print_table(["at", "who", "what", "queue", "names"], rows)


def in_brief(names: tuple[str, ...], count: int) -> str:
    more = count - len(names[:SHOWN])
    return ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more else "")
