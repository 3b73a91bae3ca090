"""``pollconsumer run``: one bounded launch of the consumer."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import click

from pollconsumer.core.choices import HandOff, LauncherRule, Loop
from pollconsumer.interface.assembly.launches import launch_consumer
from pollconsumer.interface.cli.launching import settings_of_launch
from pollconsumer.interface.cli.types import CRON, MEMORY_SIZE, QUEUE_NAME, Duration, Once, Word

positive = Duration(positive=True)
PATIENCE = 5.0
"""Seconds for the mover to exit after SIGTERM; it holds nothing that could be lost."""


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
@click.option("--concurrency", cls=Once, type=click.IntRange(1, 256), help="Messages handled at one time.")
@click.option("--grace", cls=Once, type=Duration(), help="The watchdog ends the process this long after its window.")
@click.option("--handoff", cls=Once, type=Word(HandOff), help="When to make way for the next launch.")
@click.option("--loop", cls=Once, type=Word(Loop), help="How the loop decides: as it is, or as in its source.")
@click.option("--launcher", cls=Once, type=Word(LauncherRule), help="What the platform does while one runs.")
@click.option("--instances", cls=Once, type=click.IntRange(1, 64), help="Launches that may share the queues.")
@click.option("--memory-limit", cls=Once, type=MEMORY_SIZE, help="Stop when resident memory exceeds it.")
@click.option("--until-empty", is_flag=True, help="Stop when there is nothing to handle.")
@click.option("--max-messages", cls=Once, type=click.IntRange(1), help="Stop after so many messages.")
@click.option("--with-mover", is_flag=True, help="Also run a launch of the mover.")
def run(until_empty: bool, max_messages: int | None, with_mover: bool, **flags: Any) -> None:
    """One bounded launch of the consumer."""
    settings = settings_of_launch("consumer", flags)
    with _mover(flags) if with_mover else nullcontext():
        launch_consumer(settings, until_empty=until_empty, max_messages=max_messages)


@contextmanager
def _mover(flags: dict[str, Any]) -> Iterator[None]:
    """Run a mover with our settings, the window of our flags, and our standard output and error, until the block ends:
    a separate process with a separate lease, which no handler can block.

    The store is passed by the environment: a password must not be visible in the list of processes.
    """
    import subprocess  # few launches have one

    given = click.get_current_context().find_root().params
    command = [sys.executable, "-m", "pollconsumer"]
    command += ["--config", given["config"]] if given["config"] else []
    command += ["-" + "v" * given["verbosity"]] if given["verbosity"] else []
    command += ["-q"] if given["quiet"] else []
    command += ["move"]
    for name in ("timeout", "schedule"):
        if flags[name] is not None:
            command += [f"--{name}", str(flags[name])]
    environment = {f"POLLCONSUMER_{name.upper()}": given[name] for name in ("store", "namespace") if given[name]}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, **environment})
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
