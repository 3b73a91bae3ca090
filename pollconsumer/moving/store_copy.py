"""A copy of a whole server at one instant, while it goes on: what it sends to a replica, on a server of our own.

Source: how a replica is filled, SYNC, of which redis-cli makes its ``--rdb``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from pollconsumer.core.errors import PermissionDenied, StoreRefused, StoreUnreachable, UsageError
from pollconsumer.runtime.embedded.directory import AOF_DIRECTORY
from pollconsumer.runtime.embedded.server import EmbeddedServer
from pollconsumer.store.client.server_wire import ServerWire
from pollconsumer.store.client.wire import Wire

SILENT_FOR = 60.0
"""Seconds without a byte after which the server is given up. While it writes its file, it sends a line each second."""
READ_WITHIN = 3600.0
"""Seconds for our own server to read the copy."""
BASE = "appendonly.aof.1.base.rdb"
ANOTHER_WAY = "close it for an export: pollconsumer store export FILE; or use the provider's backups"


@contextmanager
def copied(wire: Wire, directory: Path, program: Path | None) -> Iterator[Wire]:
    """A connection to a server of our own, run by ``program``, that has what the server of ``wire`` has now. Its files
    are in ``directory`` until the end.

    UsageError for a cluster, whose nodes have no instant in common; PermissionDenied and StoreRefused if the server
    gives no copy, or one that our server cannot read.
    """
    if not isinstance(wire, ServerWire):
        raise UsageError("a cluster", wire.address, ANOTHER_WAY)
    database = _database(wire)
    with TemporaryDirectory(prefix=".pollconsumer-", dir=directory) as folder:
        files = Path(folder) / AOF_DIRECTORY
        files.mkdir(mode=0o700)
        with (files / BASE).open("wb") as output:
            _receive(wire, output)
        (files / "appendonly.aof.manifest").write_text(f"file {BASE} seq 1 type b\n")
        server = EmbeddedServer(Path(folder), program=program)
        try:
            server.ensure_running(patience=READ_WITHIN)
            yield ServerWire(f"{server.url.partition('?')[0]}?db={database}", wire.patience)
        finally:
            server.stop()


def _database(wire: Wire) -> str:
    """The number of the database that the connection of ``wire`` uses."""
    said: bytes = wire.command("CLIENT", "INFO")
    return dict(field.partition("=")[::2] for field in said.decode().split())["db"]


def _receive(wire: ServerWire, output: BinaryIO) -> None:
    """Write the server's contents, an RDB file, to ``output``."""
    wire.command("REPLCONF", "rdb-only", "1")  # nothing follows the contents
    with closing(wire.raw(("SYNC",), SILENT_FOR)) as pieces:
        head = b""
        while b"\n" not in head:
            head = (head + _next(pieces)).lstrip(b"\n")  # lines that say that it lives
        line, _, rest = head.partition(b"\n")
        left = _announced(line)
        while left:
            left -= output.write(rest[:left])
            rest = _next(pieces) if left else b""


def _announced(line: bytes) -> int:
    """The length that the server announces."""
    said = line.strip().decode("utf-8", "replace")
    if said.startswith(("-NOPERM", "-NOAUTH")):
        raise PermissionDenied("no right to copy the store", said[1:], "give the user +sync, as a replica has it")
    if not said.startswith("$") or not said[1:].isdigit():
        raise StoreRefused("the server gives no copy", said.lstrip("-"), ANOTHER_WAY)
    return int(said[1:])


def _next(pieces: Iterator[bytes]) -> bytes:
    if (piece := next(pieces, None)) is None:
        raise StoreUnreachable("connection closed by the server", "within a copy", "try again")
    return piece
