"""``pollconsumer move``: one bounded launch of the mover."""

from __future__ import annotations

from typing import Any

import click

from pollconsumer.interface.cli import launching
from pollconsumer.interface.cli.flags import MOVE
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.types import declared


@click.command()
@declared(MOVE)
def move(**flags: Any) -> None:
    """One bounded launch of the mover."""
    launching.move(current_settings(), **flags)
