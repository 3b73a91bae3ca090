"""``pollconsumer move``: one bounded launch of the mover."""

from __future__ import annotations

from typing import Any

import click

from pollconsumer.core.choices import HandOff, LauncherRule
from pollconsumer.interface.assembly.launches import launch_mover
from pollconsumer.interface.cli.launching import settings_of_launch
from pollconsumer.interface.cli.types import CRON, Duration, Once, Word

positive = Duration(positive=True)


@click.command()
@click.option("--timeout", cls=Once, type=positive, help="Longest running time.")
@click.option("--schedule", cls=Once, type=CRON, help="When the platform launches: stop before the next time.")
@click.option("--idle-time", cls=Once, type=positive, help="Longest wait between looks at the schedule.")
@click.option("--min-margin", cls=Once, type=Duration(), help="Time for the exit. Unset: learned.")
@click.option("--batch-size", cls=Once, type=click.IntRange(1, 500), help="Messages promoted in one step.")
@click.option("--handoff", cls=Once, type=Word(HandOff), help="When to make way for the next launch.")
@click.option("--launcher", cls=Once, type=Word(LauncherRule), help="What the platform does while one runs.")
def move(**flags: Any) -> None:
    """One bounded launch of the mover."""
    launch_mover(settings_of_launch("mover", flags))
