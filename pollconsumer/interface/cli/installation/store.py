"""``pollconsumer store``: the embedded server, which is found and stopped even if the settings name another store."""

from __future__ import annotations

import click

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.spans import format_duration
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.opened import command_patience
from pollconsumer.interface.cli.output import print_line, print_table, printed_as_json
from pollconsumer.interface.cli.types import JSON_OBJECT
from pollconsumer.interface.configured_store import opener_of, server_of
from pollconsumer.interface.settings.model import Settings
from pollconsumer.store.server import TIME


@click.group()
def store() -> None:
    """Control the embedded server; export, import, back up any store."""


@store.command(epilog="pollconsumer store start")
def start() -> None:
    """Start the server unless it runs already."""
    server_of(_embedded_settings()).ensure_running()


@store.command(epilog="pollconsumer store stop")
def stop() -> None:
    """Stop the server; it keeps its data."""
    server_of(current_settings()).stop()


@store.command(epilog="pollconsumer store status")
@JSON_OBJECT
def status() -> None:
    """Show the status of the server."""
    found = server_of(_embedded_settings()).status()
    details = {} if found is None else found._asdict()
    paths = {name: str(details[name]) for name in ("socket", "directory", "program") if name in details}
    if printed_as_json({"running": found is not None} | details | paths):
        return
    if found is None:
        print_line("stopped")
    else:
        print_table(
            ("running", found.version),
            (
                ("program", found.program),
                ("pid", found.pid),
                ("up", format_duration(found.uptime_seconds)),
                ("memory", f"{found.used_memory_bytes / 1e6:.1f} MB"),
                ("durability", found.durability if found.aof_enabled else "none: append-only file is off"),
                ("socket", found.socket),
                ("directory", found.directory),
            ),
        )


@store.command(epilog="pollconsumer store path")
@JSON_OBJECT
def path() -> None:
    """Print the data directory."""
    server = server_of(current_settings())
    if not printed_as_json({name: str(getattr(server, name)) for name in ("directory", "socket", "log", "url")}):
        print_line(server.directory)


@store.command(epilog="pollconsumer store adopt")
def adopt() -> None:
    """Accept a store whose data was replaced, emptied or rolled back.

    Until then, launches and commands of this user refuse it with exit code 78. If it was rolled back, they only warn,
    unless strict.on_rollback is refuse. What it has lost stays lost."""
    opened = opener_of(current_settings())
    opened.memo.forget()
    opened.wire(command_patience).command(*TIME)


def _embedded_settings() -> Settings:
    """The settings. ConfigurationError if launches do not use the embedded server."""
    settings = current_settings()
    if settings.is_embedded:
        return settings
    key, value = ("store", settings.shown_store) if settings.client is None else ("client", settings.client)
    fix = f"that server is yours to start: 'pollconsumer check' reads from it; without {key}, the embedded one is used"
    raise ConfigurationError(key, value, fix)
