"""``pollconsumer metrics``: metrics as Prometheus text."""

from __future__ import annotations

from pathlib import Path

import click

from pollconsumer.core.errors import CannotCreate, PermissionDenied
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import print_lines
from pollconsumer.interface.cli.types import NAMED_PATH, Once
from pollconsumer.interface.named_files import refuse_to_replace, replacement
from pollconsumer.watching.metrics import lines_of, metrics_of

READABLE = 0o644
"""The text file's mode: its collector is another user."""


@click.command(epilog="pollconsumer metrics\npollconsumer metrics --textfile /var/lib/node_exporter/pollconsumer.prom")
@click.option("--textfile", cls=Once, type=NAMED_PATH, help="Write the metrics to this file, atomically.")
def metrics(textfile: Path | None) -> None:
    """Print metrics as Prometheus text: totals of all launches, and the state of queues and launches."""
    lines = lines_of(metrics_of(opened().inspector))
    if textfile is None:
        print_lines(lines)
    else:
        _write(textfile, "".join(f"{line}\n" for line in lines))


def _write(path: Path, text: str) -> None:
    """Replace the file: a collector reads it whole, before or after. CannotCreate, PermissionDenied."""
    try:
        refuse_to_replace(path)
        with replacement(path, READABLE) as written:
            written.write(text.encode())
    except PermissionError:
        raise PermissionDenied("text file", path, "permission denied: let this user write its directory") from None
    except OSError as error:
        raise CannotCreate("text file", path, f"{error.strerror}: name a file in a directory that exists") from None
