"""``pollconsumer handler``: switching a handler off, and on again."""

from __future__ import annotations

import click

from pollconsumer.core.errors import BadData, ConfigurationError
from pollconsumer.interface.assembly.handlers import OwnDefaults
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.logs.logs import log


@click.group()
def handler() -> None:
    """Pause a handler, or resume it. Its messages are kept meanwhile."""


@handler.command(epilog="pollconsumer handler pause mail.send")
@click.argument("name")
def pause(name: str) -> None:
    """Pause a handler: its messages are kept until it is resumed.

    This holds for all queues and for the handler's aliases, within a second. Running handlers go on.
    """
    opened().handler_pauses.pause(name)
    try:
        OwnDefaults(current_settings()).function(name, fix="")
    except BadData as error:
        log.warning("handler %s is paused, and may be misspelt: %s", name, error)
    except ConfigurationError:
        pass  # that it cannot be imported may be why it is paused


@handler.command(epilog="pollconsumer handler resume mail.send")
@click.argument("name")
def resume(name: str) -> None:
    """Resume a paused handler: its messages are due at once."""
    opened().handler_pauses.resume(name)
