"""``init cron --install`` and ``--uninstall``: the lines of a configuration in the crontab of this user."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import click

from pollconsumer.core.errors import ConfigurationError, PollConsumerError
from pollconsumer.interface.cli.output import print_line, print_lines, print_notice
from pollconsumer.interface.settings.config_search import NAME
from pollconsumer.interface.settings.load import absolute, find_config
from pollconsumer.interface.settings.names import CONFIG_VARIABLE
from pollconsumer.platform_files.file_text import crontab
from pollconsumer.platform_files.installation import Installation
from pollconsumer.platform_files.platforms.cron import entries
from pollconsumer.platform_files.users_crontab import UsersCrontab, block_of, with_block


def install(installation: Installation) -> None:
    """Add the lines of the configuration to the crontab, in the place of those that it has there."""
    config = installation.settings.config
    if config is None:
        where = installation.settings.directory
        raise ConfigurationError("no configuration file in", where, "launches of cron need one: name it by --config")
    table = UsersCrontab()
    content = table.read()
    block = block_of(config, entries(installation))
    changed, former = with_block(content, config, block)
    if changed != content:
        table.replace(changed)
    said = "unchanged in" if changed == content else "renewed in" if former else "added to"
    _show(f"{said} the crontab of {installation.user}:", block)
    for line in map(os.fsdecode, with_block(content, config, b"")[0].splitlines()):
        if f" run --config {crontab([str(config)])}" in line and not line.lstrip().startswith("#"):
            print_notice(f"another line launches this configuration, too; remove it with crontab -e: {line}")


def installed_apart(config: Path) -> list[list[str]]:
    """The queues of each launch of ``config`` that the crontab has besides the first, which serves the rest."""
    return installed_queues(config)[1:]


def installed_queues(config: Path) -> list[list[str]]:
    """The queues that each launch of ``config`` in the crontab names; none if the crontab cannot be read."""
    with suppress(PollConsumerError):
        return [re.findall(r" --queue[ =](\S+)", line) for line in _installed_launches(config)]
    return []


def installed_schedule(config: Path) -> str | None:
    """The schedule that the crontab gives to launches of ``config``; None if it has no line for them, or cannot be
    read."""
    with suppress(PollConsumerError):
        for line in _installed_launches(config):
            if given := re.search(r" --schedule '([^']+)'", line):
                return given[1]
    return None


def _installed_launches(config: Path) -> list[str]:
    lines = map(os.fsdecode, with_block(UsersCrontab().read(), config, b"")[1].splitlines())
    return [line for line in lines if " run " in line and not line.lstrip().startswith("#")]


def uninstall(user: str) -> None:
    """Take out the lines of the configuration, which need not be valid, nor be there any more."""
    named = click.get_current_context().find_root().params["config"] or os.environ.get(CONFIG_VARIABLE)
    config = absolute(Path(named or NAME))
    table = UsersCrontab()
    content = table.read()
    changed, former = with_block(content, config, b"")
    if not (named or former or config.exists()) and (above := find_config(None, None)) is not None:
        config = above
        changed, former = with_block(content, config, b"")
    if not former:
        print_line(f"the crontab of {user} has no lines of {config}")
        return
    table.replace(changed)
    _show(f"taken out of the crontab of {user}:", former)


def _show(heading: str, block: bytes) -> None:
    print_lines([heading, *map(os.fsdecode, block.splitlines())])
