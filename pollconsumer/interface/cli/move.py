"""``pollconsumer move``: one bounded launch of the mover."""

from __future__ import annotations

from typing import Any

import click

from pollconsumer.interface.cli import launch_command
from pollconsumer.interface.cli.flags import flags_of
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.types import declared


@click.command(epilog="pollconsumer move")
@declared(flags_of("move"))
def move(**flags: Any) -> None:
    """Move due messages to their queues until just before the next launch.

    'run' does this too for its own queues; a mover is for setups with many consumers. An option overrides the variable
    and the setting of the same name.
    """
    launch_command.move(current_settings(), **flags)
