"""``pollconsumer lease``: show and break leases."""

from __future__ import annotations

from typing import Any

import click

from pollconsumer.core.errors import NotFound, UsageError
from pollconsumer.core.instants import iso
from pollconsumer.interface.cli.opened import inspector, leases
from pollconsumer.interface.cli.output import print_json, print_line, print_table
from pollconsumer.interface.cli.types import Once


@click.group(no_args_is_help=False)
def lease() -> None:
    """Show or break leases."""


@lease.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def show(as_json: bool) -> None:
    """Show who holds which lease, since when, under which fence."""
    held = inspector().leases()
    if as_json:
        names = ("role", "slot", "queues", "holder", "host", "pid", "fence")
        print_json([{name: lease[name] for name in names} | {"since": iso(lease["since_ms"])} for lease in held])
    elif held:
        print_table(
            ("role", "slot", "queues", "holder", "host", "pid", "fence", "since"),
            [_row(lease) for lease in held],
        )
    else:
        print_line("no lease is held")


@lease.command(name="break")
@click.option("--role", cls=Once, type=click.Choice(["consumer", "mover"]), default="consumer", show_default=True)
@click.option("--slot", cls=Once, type=click.IntRange(0, 63), help="Only this slot.")
@click.option("--yes", is_flag=True, help="Do it.")
def break_(role: str, slot: int | None, yes: bool) -> None:
    """Take the lease from its holder, which ends with exit code 75 at its next renewal; the next launch takes over."""
    held = [lease for lease in inspector().leases() if lease["role"] == role and slot in (None, lease["slot"])]
    if not held:
        raise NotFound("no such lease", role, "lease show lists those that are held")
    if not yes:
        print_table(
            ("role", "slot", "queues", "holder", "host", "pid", "fence", "since"), [_row(lease) for lease in held]
        )
        raise UsageError("nothing broken", f"{len(held)} lease{'' if len(held) == 1 else 's'} would be", "give --yes")
    for lease in held:
        leases().break_(lease["lineage"], str(lease["fence"]))


def _row(lease: dict[str, Any]) -> tuple[object, ...]:
    queues = ",".join(lease["queues"]) or None
    return (
        *(lease[name] for name in ("role", "slot")),
        queues,
        *(lease[n] for n in ("holder", "host", "pid", "fence")),
        iso(lease["since_ms"]),
    )
