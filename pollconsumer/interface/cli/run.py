"""``pollconsumer run``: one bounded launch of the consumer."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click

from pollconsumer.core.choices import HandOff
from pollconsumer.interface.assembly.launches import launch_consumer
from pollconsumer.interface.cli import current_settings
from pollconsumer.interface.cli.types import Cron, Duration, MemorySize, Once, QueueName, Word
from pollconsumer.interface.settings.load import with_flags

positive = Duration(positive=True)


@click.command()
@click.option(
    "--queue",
    "queues",
    type=QueueName(),
    multiple=True,
    help="Queue to serve, in this order; repeatable. Without it those of the handlers.",
)
@click.option("--timeout", cls=Once, type=positive, help="Longest running time.")
@click.option("--schedule", cls=Once, type=Cron(), help="When the platform launches: stop before the next time.")
@click.option("--idle-time", cls=Once, type=positive, help="Longest wait between polls.")
@click.option(
    "--estimated-duration", cls=Once, type=Duration(), help="Handling duration assumed before any is measured."
)
@click.option("--tolerance-factor", cls=Once, type=float, help="Average duration times this is the margin.")
@click.option("--min-margin", cls=Once, type=Duration(), help="Least margin.")
@click.option("--concurrency", cls=Once, type=click.IntRange(1, 256), help="Messages handled at one time.")
@click.option("--grace", cls=Once, type=Duration(), help="The watchdog ends the process this long after its window.")
@click.option("--handoff", cls=Once, type=Word(HandOff), help="When to make way for the next launch.")
@click.option("--instances", cls=Once, type=click.IntRange(1, 64), help="Launches that may share the queues.")
@click.option("--memory-limit", cls=Once, type=MemorySize(), help="Stop when resident memory exceeds it.")
@click.option("--until-empty", is_flag=True, help="Stop when there is nothing to handle.")
@click.option("--max-messages", cls=Once, type=click.IntRange(1), help="Stop after so many messages.")
@click.option("--with-mover", is_flag=True, help="Also run a launch of the mover.")
def run(until_empty: bool, max_messages: int | None, with_mover: bool, **flags: Any) -> None:
    """One bounded launch of the consumer."""
    settings = with_flags(current_settings(), "consumer", flags)
    with _companion(flags) if with_mover else nullcontext():
        launch_consumer(settings, until_empty=until_empty, max_messages=max_messages)


def _companion(flags: dict[str, Any]) -> AbstractContextManager[None]:
    from pollconsumer.runtime.launch.mover_process import companion  # few launches have one

    return companion(*_mover(flags))


def _mover(flags: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of a mover with our settings, and the window of our flags.

    The store is passed by the environment: a password must not be visible in the list of processes.
    """
    given = click.get_current_context().find_root().params
    arguments = ["--config", given["config"]] if given["config"] else []
    arguments += ["-" + "v" * given["verbosity"]] if given["verbosity"] else []
    arguments += ["-q"] if given["quiet"] else []
    arguments += ["move"]
    for name in ("timeout", "schedule"):
        if flags[name] is not None:
            arguments += [f"--{name}", str(flags[name])]
    environment = {f"POLLCONSUMER_{name.upper()}": given[name] for name in ("store", "namespace") if given[name]}
    return arguments, environment
