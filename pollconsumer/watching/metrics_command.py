"""``pollconsumer metrics``: metrics as Prometheus text."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click

from pollconsumer.core.errors import UsageError
from pollconsumer.interface.cli.kinds import Text
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import print_lines
from pollconsumer.interface.cli.types import NAMED_PATH, Once, Value
from pollconsumer.runtime.system.start_limit import lift
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.watching.metrics.exposition import lines_of
from pollconsumer.watching.metrics.store_metrics import metrics_of
from pollconsumer.watching.metrics.textfile import write_textfile

LOOPBACK = "127.0.0.1"


class ListenAddress(NamedTuple):
    host: str
    port: int


def _address(text: str) -> ListenAddress:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535):
        raise ValueError("write HOST:PORT, or a port, from 1 to 65535")
    return ListenAddress(host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port))


@click.command(epilog="pollconsumer metrics\npollconsumer metrics --textfile /var/lib/node_exporter/pollconsumer.prom")
@click.option("--textfile", cls=Once, type=NAMED_PATH, help="Write the metrics to this file, atomically.")
@click.option(
    "--serve",
    cls=Once,
    type=Value(Text("address", _address)),
    metavar="HOST:PORT",
    help="Serve the metrics over HTTP. A port without a host: for this machine only.",
)
def metrics(textfile: Path | None, serve: ListenAddress | None) -> None:
    """Print metrics as Prometheus text: totals of all launches, and the state of queues and launches."""
    if textfile is not None and serve is not None:
        raise UsageError("--textfile", "--serve", "give one of them")
    inspector = opened(Inspector)
    if serve is not None:
        _serve(serve, inspector)
    elif textfile is None:
        print_lines(lines_of(metrics_of(inspector)))
    else:
        write_textfile(textfile, _text(inspector))


def _text(inspector: Inspector) -> str:
    return "".join(f"{line}\n" for line in lines_of(metrics_of(inspector)))


def _serve(address: ListenAddress, inspector: Inspector) -> None:
    from pollconsumer.watching.metrics.metrics_server import server_of

    server = server_of(*address, lambda: _text(inspector))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    lift()
    signal.signal(signal.SIGTERM, stop)
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()
