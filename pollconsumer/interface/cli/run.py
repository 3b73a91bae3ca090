"""``pollconsumer run``: one bounded launch of the consumer."""

from __future__ import annotations

from typing import Any

import click

from pollconsumer.interface.cli import launch_command
from pollconsumer.interface.cli.flags import flags_of
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.types import declared


@click.command(
    epilog="pollconsumer run\npollconsumer run --queue mail --timeout 55s\npollconsumer -v run --until-empty"
)
@declared(flags_of("run"))
def run(**flags: Any) -> None:
    """Handle messages until just before the next launch starts.

    An option overrides the variable and the setting of the same name.
    """
    launch_command.run(current_settings(), **flags)
