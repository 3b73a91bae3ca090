"""``pollconsumer run``: one bounded launch of the consumer."""

from __future__ import annotations

from typing import Any

import click

from pollconsumer.interface.cli import launching
from pollconsumer.interface.cli.flags import RUN
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.types import declared


@click.command()
@declared(RUN)
def run(**flags: Any) -> None:
    """One bounded launch of the consumer."""
    launching.run(current_settings(), **flags)
