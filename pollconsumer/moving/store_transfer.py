"""``pollconsumer store export``, ``import``, ``reopen`` and ``backup``: move a namespace, or copy a whole store."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, BinaryIO

import click

from pollconsumer.core.errors import (
    BadData,
    CannotCreate,
    PermissionDenied,
    StoreRefused,
    StoreUnreachable,
    UsageError,
    retelling,
)
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.opened import command_patience
from pollconsumer.interface.cli.output import (
    ask,
    print_line,
    print_notice,
    print_table,
    printed_as_json,
    progress_bar,
    telling_when_interrupted,
    wants_json,
    write_json,
)
from pollconsumer.interface.cli.types import JSON_OBJECT, NAMED_FILE
from pollconsumer.interface.configured_store import opener_of, server_program_of
from pollconsumer.interface.named_files import open_stream, refuse_to_replace, replacement
from pollconsumer.interface.settings.model import changed
from pollconsumer.moving.store_closer import StoreCloser, namespaces_of
from pollconsumer.moving.store_export import Import, check_header, count_of, export, opened_export
from pollconsumer.runtime.embedded.directory import AOF_DIRECTORY
from pollconsumer.runtime.embedded.server import EmbeddedServer
from pollconsumer.runtime.store_opener import StoreOpener
from pollconsumer.runtime.system.signals import raising_terminations
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.suitability import EXPORT

NOT_SERVED = "elements read, the store cannot be used before all are there: import the same file again"
OF_ONE = ", and no other one of the server"
LOOK_EVERY = 0.2
"""Seconds between two looks at which leases are held."""
SILENT_FOR = 60.0
"""A server that sends nothing for so many seconds is given up. It sends a line a second while it writes its file."""
READ_WITHIN = 3600.0
"""Seconds that our own server may take to read the copy."""
BASE = "appendonly.aof.1.base.rdb"
ANOTHER_WAY = "close it for an export: pollconsumer store export FILE; or use the provider's backups"


@click.command(name="export", epilog="pollconsumer store export store.ndjson\npollconsumer store export -")
@click.argument("file", type=NAMED_FILE, metavar="FILE")
@click.option("--yes", is_flag=True, help="Do not ask.")
@JSON_OBJECT
def export_(file: str, yes: bool) -> None:
    """Close this project's namespace, and write it to FILE.

    Other namespaces of the server are left out: to move them, too, export in each project. 'store backup' copies all of
    the embedded server.

    '-' writes to standard output. At a terminal the command asks first. It waits until running launches have ended, and
    lets no other start. Then the store refuses launches and producers of this namespace until it is reopened."""
    if wants_json() and file == "-":
        raise UsageError("--json", "-", "the last line of an export has its totals")
    if not yes:
        ask("This closes the store: launches and producers are refused until 'store reopen --yes'. Export?")
    closing, named = _closing(opener_of(current_settings())), list[str]()

    def pause(held: list[str]) -> None:
        if held != named:  # launches that it has not named yet
            named[:] = held
            print_notice(f"waiting until these launches have ended: {' '.join(held)}")
        time.sleep(LOOK_EVERY)

    closed = complete = False
    try:
        with raising_terminations(), _written(file, "export") as output:
            lines = export(closing, closing.close(os.urandom(8).hex(), pause))
            closed = True
            totals = _write_lines(lines, output)
        complete = True
    except KeyboardInterrupt:
        note = closing.note()  # the answer that the store is closed may have been lost
        closed = closed or (note is not None and note.for_ == EXPORT)
        raise
    finally:
        if closed and not complete:
            print_notice("the store stays closed: export it again, or reopen it: pollconsumer store reopen --yes")
    _report("exported", _totals({closing.keys.namespace: totals}), file=file)


@click.command(
    epilog="pollconsumer store backup /var/backups/queue.ndjson\n"
    "pollconsumer store backup --namespace shop /var/backups/shop.ndjson"
)
@click.argument("file", type=NAMED_FILE, metavar="FILE")
@JSON_OBJECT
def backup(file: str) -> None:
    """Write a copy of the store to FILE, while launches go on.

    '-' writes to standard output. Of the embedded server, all namespaces are backed up; of any other server, the
    namespace of the settings. --namespace chooses one.

    'store import' restores FILE. The login to the store needs the rights of a replica: +sync, +replconf, +client|info.
    The server sends all its databases; the directory of FILE (of a pipe or device: $TMPDIR) needs room for them until
    the backup is done."""
    if wants_json() and file == "-":
        raise UsageError("--json", "-", "the last line of a backup has its totals")
    settings = current_settings()
    directory = Path(gettempdir()) if _is_stream(file) else Path(file).absolute().parent
    found: dict[str, dict[str, Any]] = {}
    with (
        raising_terminations(),
        _written(file, "backup") as output,
        copied(opener_of(settings).keeper_wire(command_patience), directory, server_program_of(settings)) as copy,
    ):
        takes_all = settings.is_embedded and _namespace_given() is None
        names = (takes_all and namespaces_of(copy)) or [settings.namespace]
        for name in names:
            closing = StoreCloser(copy, name)
            note = closing.close(os.urandom(8).hex(), partial(_end_leases, closing))
            found[name] = _write_lines(export(closing, note, names), output)
    _report("backed up", _totals(found), "" if takes_all else OF_ONE, file)


def _namespace_given() -> str | None:
    """The value of ``--namespace``. None if the command line has none."""
    given: str | None = click.get_current_context().find_root().params["namespace"]
    return given


def _end_leases(closing: StoreCloser, held: list[str]) -> None:
    """Delete the leases ``held`` by launches from a copy, where no launch runs."""
    closing.wire.command("DEL", *(closing.keys.control(f"lease:{lease_name}") for lease_name in held))


def _totals(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The totals of one namespace, or the sums over several."""
    if len(found) == 1:
        ((name, totals),) = found.items()
        return {**totals, "namespace": name}
    sums = {what: sum(each[what] for each in found.values()) for what in ("messages", "elements", "keys")}
    digest = sum(int(each["digest"], 16) for each in found.values()) % (1 << 128)
    return {**sums, "digest": f"{digest:032x}", "namespaces": [*found]}


@click.command(
    name="import",
    epilog="pollconsumer --store redis://db.example store import store.ndjson\n"
    "pollconsumer store import backup.ndjson --namespace shop",
)
@click.argument("file", type=NAMED_FILE, metavar="FILE")
@click.option("--restart", is_flag=True, help="Remove what an interrupted import left behind, and begin anew.")
@JSON_OBJECT
def import_(file: str, restart: bool) -> None:
    """Read an export or a backup from FILE into an empty namespace.

    '-' reads from standard input. A backup of several namespaces restores each under its name. --namespace restores
    only that one.

    The store can be used once everything is there and has been compared with the export. If the import is interrupted,
    import the same file again."""
    current_settings()  # refused at once if nothing says in which store
    taken, imports = 0, list[tuple[StoreOpener, Import]]()

    def advance(elements: int) -> None:
        nonlocal taken
        taken += elements
        bar.update(elements)

    with telling_when_interrupted(lambda: f"{taken} {NOT_SERVED}"), opened_export(file) as lines:
        _, header = next(lines, (0, {}))
        targets = _targets(check_header(header), restart=restart)
        length = header.get("elements") if len(targets) == 1 else None
        with progress_bar(length if isinstance(length, int) else None, shown=True) as bar:
            for at, (name, opener) in enumerate(targets):
                if at and (header := next(lines, (0, {}))[1]).get("namespace") != name:
                    raise _cut_off(file)
                if opener is None:
                    _read_one(lines, None, file)
                    continue
                importing = Import(_closing(opener), advance)
                importing.begin(header, restart=restart)
                importing.check(_read_one(lines, importing, file))
                imports.append((opener, importing))
        for opener, importing in imports:
            importing.finish()
            opener.memo.forget()
    _report("imported", _totals({opener.namespace: each.totals.as_json() for opener, each in imports}))


def _targets(found: Sequence[str], *, restart: bool) -> list[tuple[str, StoreOpener | None]]:
    """The namespaces of an export, each with the opener of the store to import it into; None if it is not wanted.
    StoreRefused if one of several stores is not empty. Then none is changed."""
    settings, given = current_settings(), _namespace_given()
    if len(found) < 2:
        return [(settings.namespace, opener_of(settings))]
    if given not in (None, *found):
        raise BadData("namespace", given, f"the backup has {', '.join(found)}")
    chosen = {name: opener_of(changed(settings, namespace=name)) for name in found if given in (None, name)}
    for closing in map(_closing, chosen.values() if not restart else ()):
        if closing.note() is None:
            closing.refuse_unless_empty()
    return [(name, chosen.get(name)) for name in found]


def _read_one(lines: Iterator[tuple[int, dict[str, Any]]], importing: Import | None, file: str) -> object:
    """Import the lines of one namespace, or skip them. Returns the totals that its last line states."""
    for number, line in lines:
        if "end" in line:
            return line["end"]
        if importing is not None:
            with retelling(BadData, BadData, f"line {number}: "):
                importing.take(line)
    raise _cut_off(file)


def _cut_off(file: str) -> BadData:
    return BadData("export cut off", file, "export again; then import that, with --restart")


@click.command(epilog="pollconsumer store reopen --yes")
@click.option("--yes", is_flag=True, help="Reopen it.")
def reopen(yes: bool) -> None:
    """Open this project's namespace, which an export closed.

    Do this only if the export was not imported elsewhere."""
    if not yes:
        raise UsageError("not reopened", None, "make sure first that the export was not imported elsewhere, then --yes")
    closing = _closing(opener_of(current_settings()))
    closing.reopen()
    print_line(f"opened: {closing.wire.address}, namespace {current_settings().namespace}")


def _write_lines(lines: Iterator[dict[str, Any]], output: BinaryIO) -> dict[str, Any]:
    """Write the lines of an export, and show the progress. Returns its totals."""
    header = next(lines)
    write_json(output, header)
    with progress_bar(header["elements"], shown=True) as bar:
        for line in lines:
            write_json(output, line)
            if "values" in line:
                bar.update(count_of(line["type"], line["values"]))
    totals: dict[str, Any] = line["end"]
    return totals


def _closing(opener: StoreOpener) -> StoreCloser:
    return StoreCloser(opener.keeper_wire(command_patience), opener.namespace)


@contextlib.contextmanager
def _written(file: str, what: str) -> Iterator[BinaryIO]:
    """A file that gets its name when complete, and that only its owner may read. A ``file`` that is no plain file is
    written directly. CannotCreate if it cannot be written. ``what``: its role, for the error."""
    try:
        if file == "-":
            if sys.stdout is None:
                raise CannotCreate("standard output", None, "is closed: redirect it to a file, or a pipe")
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        elif (descriptor := open_stream(Path(file))) is not None:
            with os.fdopen(descriptor, "wb") as output:
                yield output
        else:
            refuse_to_replace(Path(file))
            with replacement(Path(file)) as output:
                yield output
    except OSError as error:
        raise CannotCreate(what, f"{file}: {error.strerror}", "check where it goes") from None


def _is_stream(file: str) -> bool:
    """Whether ``file`` is standard output, a pipe or a device: it has no directory of its own."""
    exists, is_plain = os.path.exists(file), os.path.isfile(file)  # noqa: PTH110, PTH113  they never raise
    return file == "-" or (exists and not is_plain)


def _report(what: str, totals: dict[str, Any], note: str = "", file: str = "") -> None:
    if file and _is_stream(file) and not wants_json():  # standard output may be that stream
        print_notice(f"{what}: " + ", ".join(f"{name} {value}" for name, value in _shown(totals, note).items()))
    elif not printed_as_json(totals):
        print_table((what, ""), tuple(_shown(totals, note).items()))


def _shown(totals: dict[str, Any], note: str) -> dict[str, Any]:
    """The totals for people. ``note``: a text that is added if there is one namespace."""
    if "namespaces" in totals:
        return {**totals, "namespaces": ", ".join(totals["namespaces"])}
    return {**totals, "namespace": totals["namespace"] + note}


@contextlib.contextmanager
def copied(wire: Wire, directory: Path, program: Path | None) -> Iterator[Wire]:
    """A connection to a server of our own, run by ``program``, with everything that the server of ``wire`` has now. Its
    files are in ``directory`` until the block ends.

    UsageError for a cluster, since its nodes cannot be copied at one instant. PermissionDenied if the server refuses a
    copy. StoreRefused if it gives none, or one that our server cannot read."""
    if wire.is_cluster:
        raise UsageError("a cluster", wire.address, ANOTHER_WAY)
    named: bytes = wire.command("CLIENT", "INFO")
    database = dict(field.partition("=")[::2] for field in named.decode().split())["db"]  # of this connection
    with TemporaryDirectory(prefix=".pollconsumer-", dir=directory) as folder:
        files = Path(folder) / AOF_DIRECTORY
        files.mkdir(mode=0o700)
        with (files / BASE).open("wb") as output:
            _receive(wire, output)
        (files / "appendonly.aof.manifest").write_text(f"file {BASE} seq 1 type b\n")
        server = EmbeddedServer(Path(folder), program=program)
        try:
            server.ensure_running(patience=READ_WITHIN)
            yield Wire(f"{server.url.partition('?')[0]}?db={database}", wire.patience)
        finally:
            server.stop()


def _receive(wire: Wire, written: BinaryIO) -> None:
    """Write the server's contents, an RDB file, to ``written``."""
    wire.command("REPLCONF", "rdb-only", "1")  # nothing follows the contents
    with contextlib.closing(wire.raw(("SYNC",), SILENT_FOR)) as pieces:
        head = b""
        while b"\n" not in head:
            head = (head + _next(pieces)).lstrip(b"\n")  # lines that only show that it is alive
        line, _, rest = head.partition(b"\n")
        named = line.strip().decode("utf-8", "replace")
        if named.startswith(("-NOPERM", "-NOAUTH")):
            raise PermissionDenied("no right to copy the store", named[1:], "give the user +sync, as a replica has it")
        if not named.startswith("$") or not named[1:].isdigit():
            raise StoreRefused("the server gives no copy", named.lstrip("-"), ANOTHER_WAY)
        left = int(named[1:])  # the number of bytes, as the server announces it
        while left:
            left -= written.write(rest[:left])
            rest = _next(pieces) if left else b""


def _next(pieces: Iterator[bytes]) -> bytes:
    if (piece := next(pieces, None)) is None:
        raise StoreUnreachable("connection closed by the server", "within a copy", "try again")
    return piece
