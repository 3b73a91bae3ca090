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
    """One bounded launch of the mover.

    An option overrides the variable and the key of the configuration file of its name; defaults are shown.
    """
    launch_command.move(current_settings(), **flags)
