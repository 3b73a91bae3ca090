"""``pollconsumer run``: one bounded launch of the consumer."""

from __future__ import annotations

from typing import Any

import click

from pollconsumer.core.choices import HandOff, LauncherRule, Loop
from pollconsumer.interface.assembly.launches import launch_consumer
from pollconsumer.interface.cli.launching import settings_of_launch
from pollconsumer.interface.cli.types import CRON, MEMORY_SIZE, QUEUE_NAME, Duration, Once, Word

positive = Duration(positive=True)


@click.command()
@click.option(
    "--queue",
    "queues",
    type=QUEUE_NAME,
    multiple=True,
    help="Queue to serve, in this order; repeatable. Without it those of the handlers.",
)
@click.option("--timeout", cls=Once, type=positive, help="Longest running time.")
@click.option("--schedule", cls=Once, type=CRON, help="When the platform launches: stop before the next time.")
@click.option("--idle-time", cls=Once, type=positive, help="Longest wait between polls.")
@click.option(
    "--estimated-duration", cls=Once, type=Duration(), help="Handling duration assumed before any is measured."
)
@click.option("--tolerance-factor", cls=Once, type=float, help="Average duration times this is the margin.")
@click.option("--min-margin", cls=Once, type=Duration(), help="Least margin. Unset: learned.")
@click.option("--overrun-target", cls=Once, type=float, help="Share of launches that may outlast their window.")
@click.option("--concurrency", cls=Once, type=click.IntRange(1, 256), help="Messages handled at one time.")
@click.option("--grace", cls=Once, type=Duration(), help="The watchdog ends the process this long after its window.")
@click.option("--handoff", cls=Once, type=Word(HandOff), help="When to make way for the next launch.")
@click.option("--loop", cls=Once, type=Word(Loop), help="How the loop decides: as it is, or as in its source.")
@click.option("--launcher", cls=Once, type=Word(LauncherRule), help="What the platform does while one runs.")
@click.option("--instances", cls=Once, type=click.IntRange(1, 64), help="Launches that may share the queues.")
@click.option("--memory-limit", cls=Once, type=MEMORY_SIZE, help="Stop when resident memory exceeds it.")
@click.option("--until-empty", is_flag=True, help="Stop when there is nothing to handle.")
@click.option("--max-messages", cls=Once, type=click.IntRange(1), help="Stop after so many messages.")
@click.option(
    "--linger", cls=Once, type=Duration(), help="With --until-empty: stay until there was nothing for so long."
)
def run(until_empty: bool, max_messages: int | None, linger: float | None, **flags: Any) -> None:
    """One bounded launch of the consumer."""
    if linger is not None and not until_empty:
        raise click.UsageError("--linger needs --until-empty")
    settings = settings_of_launch("consumer", flags)
    launch_consumer(settings, until_empty=until_empty, linger=linger or 0.0, max_messages=max_messages)
