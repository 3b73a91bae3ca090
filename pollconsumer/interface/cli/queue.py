"""``pollconsumer queue``: pausing one."""

from __future__ import annotations

import click

from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.types import QUEUE_NAME
from pollconsumer.store.interventions import Interventions


@click.group(no_args_is_help=False)
def queue() -> None:
    """Pause a queue, resume it."""


@queue.command()
@click.argument("name", type=QUEUE_NAME)
def pause(name: str) -> None:
    """Stop the queue from handing out messages; reserved ones are finished."""
    opened(Interventions).pause(name, paused=True)


@queue.command()
@click.argument("name", type=QUEUE_NAME)
def resume(name: str) -> None:
    """Resume a paused queue."""
    opened(Interventions).pause(name, paused=False)
