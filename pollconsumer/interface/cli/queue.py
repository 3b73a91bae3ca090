"""``pollconsumer queue``: pausing one."""

from __future__ import annotations

import click

from pollconsumer.interface.cli.opened import interventions
from pollconsumer.interface.cli.types import QueueName


@click.group(no_args_is_help=False)
def queue() -> None:
    """Pause a queue, resume it."""


@queue.command()
@click.argument("name", type=QueueName())
def pause(name: str) -> None:
    """Stop the queue from handing out messages; reserved ones are finished."""
    interventions().pause(name, paused=True)


@queue.command()
@click.argument("name", type=QueueName())
def resume(name: str) -> None:
    """Resume a paused queue."""
    interventions().pause(name, paused=False)
