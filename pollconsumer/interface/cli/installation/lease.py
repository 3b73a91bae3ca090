"""``pollconsumer lease``: show and break leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from pollconsumer.core.errors import NotFound, UsageError
from pollconsumer.core.launcher.work_beyond import working_on
from pollconsumer.core.notation.instants import iso
from pollconsumer.core.notation.text import counted
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import print_line, print_table, printed_as_json
from pollconsumer.interface.cli.types import JSON_ARRAY, Once, WordType

NAMES = ("role", "slot", "queues", "holder", "host", "pid", "fence")


@click.group()
def lease() -> None:
    """Show or break leases."""


@lease.command(epilog="pollconsumer lease show")
@JSON_ARRAY
def show() -> None:
    """Show which launch holds which lease, since when.

    \b
    fence  number of the lease's holder; the store refuses writes of earlier holders
    """
    reading = opened().inspector
    held = reading.leases()
    if printed_as_json(leases_as_json(held, NAMES)):
        return
    if held:
        leases_table(held, NAMES, reading.now())
    else:
        print_line("no lease is held")


@lease.command(name="break", epilog="pollconsumer lease break --role mover --yes")
@click.option(
    "--role",
    cls=Once,
    type=WordType(["consumer", "mover"]),
    default="consumer",
    show_default=True,
    help="Whose lease: consumer is 'run', mover is 'move'.",
)
@click.option("--slot", cls=Once, type=click.IntRange(0, 63), help="Only this slot: the number of an instance, from 0.")
@click.option("--yes", is_flag=True, help="Break it. Without --yes, only show it.")
def break_(role: str, slot: int | None, yes: bool) -> None:
    """Take the lease away from the launch that holds it.

    That launch ends with exit code 75 when it next renews the lease. The next launch takes over.
    """
    store = opened()
    held = [each for each in store.inspector.leases() if each["role"] == role and slot in (None, each["slot"])]
    if not held:
        raise NotFound("no such lease", role, "lease show lists those that are held")
    if not yes:
        leases_table(held, NAMES, store.inspector.now())
        raise UsageError("nothing broken", f"{counted(len(held), 'lease')} would be broken", "give --yes")
    if left := [each["lineage"] for each in held if not store.leases.break_(each["lineage"], str(each["fence"]))]:
        raise NotFound("lease not broken", ", ".join(left), "another launch holds it by now, or nobody")


def leases_as_json(leases: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The fields ``names`` of each lease, since when it is held, and what its launch works on beyond its window."""
    return [
        {name: lease[name] for name in names}
        | {"since": iso(lease["since_ms"]), "working_on": [each.as_json() for each in lease["working_on"]]}
        for lease in leases
    ]


def leases_table(leases: Sequence[dict[str, Any]], names: Sequence[str], now: int) -> None:
    """Print leases, each with a line about what its launch works on beyond its window. ``now``: epoch ms of the
    server's clock."""
    rows: list[Sequence[object] | str] = []
    for lease in leases:
        shown = lease | {"queues": ",".join(lease["queues"]) or None}
        rows.append([*(shown[name] for name in names), iso(lease["since_ms"])])
        rows += [working_on(lease["working_on"], now)] if lease["working_on"] else []
    print_table([*names, "since"], rows)
