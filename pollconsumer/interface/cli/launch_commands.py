"""``pollconsumer run`` and ``pollconsumer move``: one bounded launch of the consumer, or of the mover."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any, Literal

import click

from pollconsumer.core.errors import UsageError
from pollconsumer.interface.assembly.launch_roles import launch_consumer, launch_mover
from pollconsumer.interface.assembly.log_outputs import direct_log
from pollconsumer.interface.cli.group import current_settings, name_configuration
from pollconsumer.interface.cli.output import is_terminal
from pollconsumer.interface.cli.types import Duration, option, settings_of_section
from pollconsumer.interface.logs import logs
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.settings.load import refuse_nowhere, warn_of_former_names, with_flags
from pollconsumer.interface.settings.model import Settings, changed
from pollconsumer.runtime.system.standard_error import outlast_readers
from pollconsumer.runtime.system.watchdog import before_exit


@click.command(
    epilog="pollconsumer run\npollconsumer run --queue mail --timeout 55s\npollconsumer -v run --until-empty"
)
@settings_of_section("consumer")
@click.option("--if-free", is_flag=True, help="End at once if another launch holds the lease.")
@click.option("--until-empty", is_flag=True, help="End when the queues are empty, or when the window is over.")
@option("--max-messages", "End after this many messages.", click.IntRange(1))
@option("--linger", "With --until-empty: end when the queues have been empty for this long.", Duration())
def run(if_free: bool, until_empty: bool, max_messages: int | None, linger: float | None, **flags: Any) -> None:
    """Handle messages until just before the next launch starts.

    An option overrides the variable and the setting of the same name."""
    settings = current_settings()
    if linger is not None and not until_empty:
        raise UsageError("--linger needs --until-empty", fix="see 'pollconsumer run --help'")
    settings = _settings_of_launch(settings, "consumer", flags)
    problems = outlast_readers()
    before_exit(lambda _: logs.warn_of_lost_output(problems()))
    logs.keep_lines(settings.logs.keep)
    launch_consumer(
        settings,
        if_free=if_free,
        until_empty=until_empty,
        linger=linger or 0.0,
        max_messages=max_messages,
        reports_completed=logs.shows_completed(),
    )


@click.command(epilog="pollconsumer move")
@settings_of_section("mover")
def move(**flags: Any) -> None:
    """Move due messages from the schedule to their queues, until just before the next launch.

    'run' does this too, for the queues that it serves. 'move' does it for all queues: it is for setups with many
    consumers. An option overrides the variable and the setting of the same name."""
    settings = current_settings()
    refuse_nowhere(settings)
    launch_mover(_settings_of_launch(settings, "mover", flags))


def _settings_of_launch(
    settings: Settings, section: Literal["consumer", "mover"], flags: Mapping[str, object]
) -> Settings:
    """``settings``, overridden by the flags of ``run`` or ``move``. At a terminal the log shows what happens.

    At a terminal a schedule counts only if it is a flag. The configured one says when cron starts launches."""
    settings, attended = with_flags(settings, section, flags), is_terminal(sys.stdin) and is_terminal(sys.stderr)
    is_verbose = log.isEnabledFor(logging.INFO)
    if attended and log.isEnabledFor(logging.WARNING):
        logs.speak()
    direct_log(settings)
    if is_verbose:  # a person at a terminal wants to see what happens, not which configuration is used
        name_configuration(settings)
    warn_of_former_names(settings)
    if attended and flags["schedule"] is None:
        settings = changed(settings, **{section: changed(getattr(settings, section), schedule=None)})
    return settings
