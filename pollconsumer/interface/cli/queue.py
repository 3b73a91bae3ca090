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
    """Have the queue hand out nothing from now on, messages yet to come included; what is reserved is finished."""
    interventions().pause(name, paused=True)


@queue.command()
@click.argument("name", type=QueueName())
def resume(name: str) -> None:
    """Let the queue go on."""
    interventions().pause(name, paused=False)
