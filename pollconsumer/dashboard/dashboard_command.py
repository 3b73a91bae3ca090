"""``pollconsumer dashboard``: web pages about the installation, served or written as files."""

from __future__ import annotations

import secrets
from importlib.util import find_spec
from pathlib import Path

import click
from click.core import ParameterSource

from pollconsumer.core.errors import ConfigurationError, UsageError
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import print_line
from pollconsumer.interface.cli.types import NAMED_PATH, option
from pollconsumer.interface.settings.model import Settings


@click.command(epilog="pollconsumer dashboard\npollconsumer dashboard --static /var/www/queue")
@option("--host", "Address to listen at.", default="127.0.0.1", show_default=True)
@option("--port", "Port to listen at. 0: any free port.", click.IntRange(0, 65535), default=8080, show_default=True)
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Show forms and buttons that change something; the address then contains a token.",
)
@option(
    "--static",
    "Write the pages into this directory instead of serving them.",
    NAMED_PATH,
    name="directory",
    metavar="DIR",
)
def dashboard(host: str, port: int, allow_actions: bool, directory: Path | None) -> None:
    """Serve web pages about launches, queues, recurrences and dead letters, until Ctrl-C. Print their address.

    By default the pages are read-only and for this machine only. With --allow-actions, or with a --host that other
    machines can reach, the address contains a token, made anew at each start. POLLCONSUMER_DASHBOARD__TOKEN sets a
    token of your own, which is then always needed."""
    settings = current_settings()
    if find_spec("jinja2") is None:
        raise ConfigurationError("dashboard needs", "jinja2", "pip install 'pollconsumer[dashboard]'")
    if directory is None:
        _serve(settings, host, port, allow_actions)
    elif allow_actions:
        raise UsageError("--allow-actions", None, "files cannot act: give it without --static")
    elif ParameterSource.COMMANDLINE in map(click.get_current_context().get_parameter_source, ("host", "port")):
        raise UsageError("--host and --port", None, "files are not served: leave out --static")
    else:
        from pollconsumer.dashboard.files import write_pages
        from pollconsumer.dashboard.page_reader import reading_of

        write_pages(reading_of(settings, opened()), directory)


def _serve(settings: Settings, host: str, port: int, allow_actions: bool) -> None:
    from pollconsumer.dashboard.access import TokenAccess
    from pollconsumer.dashboard.page_server import guarded, is_loopback, listen, serve
    from pollconsumer.dashboard.server import command_dashboard

    token = settings.dashboard.token
    if token is None and (allow_actions or not is_loopback(host)):
        token = secrets.token_urlsafe(24)
    store = opened()
    listening = listen(host, port)
    bound = listening.getsockname()[1]
    access = TokenAccess(token, acts=allow_actions, port=bound)
    pages = command_dashboard(settings, store, access, acts=allow_actions)
    shown = f"[{host}]" if ":" in host else host
    given = "" if token is None or settings.dashboard.token else f"?token={token}"
    serve(guarded(pages.answer, host), listening, lambda: print_line(f"http://{shown}:{bound}/{given}"))
