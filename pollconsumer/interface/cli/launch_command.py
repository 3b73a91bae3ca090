"""Runs ``run`` and ``move``, with or without click."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pollconsumer.core.errors import PollConsumerError, UsageError
from pollconsumer.interface.assembly.log_direction import direct_log
from pollconsumer.interface.cli.flags import Given
from pollconsumer.interface.logs import logs
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.settings.config_search import name_source, refuse_nowhere
from pollconsumer.interface.settings.former_names import warn_of_former_names
from pollconsumer.interface.settings.load import load_settings, with_flags
from pollconsumer.interface.settings.model import Settings, changed
from pollconsumer.runtime.launch.handlers_output import outlast_readers
from pollconsumer.runtime.system.process_exit import before_exit


def start(given: Given) -> None:
    """Run the launch that a command line gives."""
    set_verbosity(given.verbosity, quiet=given.quiet)
    settings = settings_of(**given.common)
    try:
        LAUNCHES[given.command](settings, **given.own)
    except PollConsumerError as error:
        name_source(error, settings, given.common["store"])
        raise


def run(
    settings: Settings,
    *,
    if_free: bool | None,
    until_empty: bool | None,
    max_messages: int | None,
    linger: float | None,
    **flags: Any,
) -> None:
    from pollconsumer.interface.assembly.launch_roles import launch_consumer

    if linger is not None and not until_empty:
        raise UsageError("--linger needs --until-empty", fix="see 'pollconsumer run --help'")
    settings = _settings_of_launch(settings, "consumer", flags)
    problems = outlast_readers()
    before_exit(lambda _: logs.warn_of_lost_output(problems()))
    launch_consumer(
        settings,
        if_free=bool(if_free),
        until_empty=bool(until_empty),
        linger=linger or 0.0,
        max_messages=max_messages,
        reports_completed=logs.shows_completed(),
    )


def move(settings: Settings, **flags: Any) -> None:
    from pollconsumer.interface.assembly.mover_launch import launch_mover

    refuse_nowhere(settings)
    launch_mover(_settings_of_launch(settings, "mover", flags))


LAUNCHES = {"run": run, "move": move}


def set_verbosity(verbosity: int, *, quiet: bool) -> None:
    logs.configure(verbosity, quiet=quiet)
    if verbosity:
        logs.damp(None)


def settings_of(config: str | None, store: str | None, namespace: str | None) -> Settings:
    """Settings of a command with these flags, before its own. Errors as in ``load_settings``."""
    settings = load_settings(None if config is None else Path(config), store=store, namespace=namespace)
    if (streaks := logs.damped_by()) is not None:
        streaks.files = settings.state_files()
    return settings


def name_configuration(settings: Settings) -> None:
    """Log which configuration a command has."""
    log.info("configuration: %s", settings.config or settings.nowhere or "none: the environment alone")


def _settings_of_launch(
    settings: Settings, section: Literal["consumer", "mover"], flags: Mapping[str, object]
) -> Settings:
    """``settings`` with the flags of ``run`` or ``move``. The log shows a person who watches what happens.

    The configured schedule is the platform's: it bounds a launch at a terminal only if the flag gives it.
    """
    settings, attended = with_flags(settings, section, flags), _at_terminal()
    is_verbose = log.isEnabledFor(logging.INFO)
    if attended and log.isEnabledFor(logging.WARNING):
        logs.speak()
    direct_log(settings)
    if is_verbose:  # a person at a terminal sees what happens, not where it is configured
        name_configuration(settings)
    warn_of_former_names(settings)
    if attended and flags["schedule"] is None:
        settings = changed(settings, **{section: changed(getattr(settings, section), schedule=None)})
    return settings


def _at_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
