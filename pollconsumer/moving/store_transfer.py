"""``pollconsumer store export``, ``import``, ``reopen`` and ``backup``: a whole store, moved to another server, or
kept."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any, BinaryIO

import click

from pollconsumer.core.errors import BadData, CannotCreate, UsageError
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.opened import command_patience
from pollconsumer.interface.cli.output import (
    ask,
    print_json,
    print_notice,
    print_table,
    progress_bar,
    telling_when_interrupted,
    write_json,
)
from pollconsumer.interface.cli.types import JSON_OBJECT, NAMED_FILE
from pollconsumer.interface.configured_store import opener_of, server_program_of
from pollconsumer.interface.named_files import open_passing, refuse_to_replace, replacement
from pollconsumer.moving.contents import count_of
from pollconsumer.moving.export_lines import opened_export
from pollconsumer.moving.store_closer import StoreCloser
from pollconsumer.moving.store_copy import copied
from pollconsumer.moving.store_export import export
from pollconsumer.moving.store_import import Import
from pollconsumer.runtime.store_opener import StoreOpener
from pollconsumer.runtime.system.signals import raising_terminations
from pollconsumer.store.client.wire import Wire

NOT_SERVED = "elements read, nothing is served before all are there: give the same export again"
LOOK_EVERY = 0.2
"""Seconds between looks at the leases that are held."""


@click.command(name="export", epilog="pollconsumer store export store.ndjson\npollconsumer store export -")
@click.argument("file", type=NAMED_FILE, metavar="FILE")
@click.option("--yes", is_flag=True, help="Do not ask.")
@JSON_OBJECT
def export_(file: str, yes: bool, as_json: bool) -> None:
    """Close the store, and write all of it to FILE, or to standard output for '-'. Asks a person at a terminal first.

    Waits until the launches that are under way have ended, and lets no other begin. From then on the store refuses
    whoever uses it, until it is reopened.
    """
    if as_json and file == "-":
        raise UsageError("--json", "-", "the last line of an export has its totals")
    if not yes:
        ask("This closes the store: launches and producers are refused until 'store reopen --yes'. Export?")
    closing, said = _closing(_opener()), _WaitNotice()
    closed = complete = False
    try:
        with raising_terminations(), _written(file, "export") as output:
            lines = export(closing, closing.close(os.urandom(8).hex(), said.pause))
            closed = True
            totals = _write_lines(lines, output)
        complete = True
    except KeyboardInterrupt:
        closed = closed or closing.is_exported()  # the answer that it is closed may not have been read
        raise
    finally:
        if closed and not complete:
            print_notice("the store stays closed: export it again, or reopen it: pollconsumer store reopen --yes")
    _report_written("exported", file, totals, as_json)


@click.command(epilog="pollconsumer store backup /var/backups/queue.ndjson")
@click.argument("file", type=NAMED_FILE, metavar="FILE")
@JSON_OBJECT
def backup(file: str, as_json: bool) -> None:
    """Write all of the store, as it is now, to FILE, or to standard output for '-', while everything goes on.

    FILE is an export: `store import` restores it. The server must give us what it gives a replica, the contents of all
    its databases; they are in the directory of FILE meanwhile.
    """
    if as_json and file == "-":
        raise UsageError("--json", "-", "the last line of a backup has its totals")
    settings = current_settings()
    directory = Path(gettempdir()) if file == "-" else Path(file).absolute().parent
    with (
        raising_terminations(),
        _written(file, "backup") as output,
        copied(_keeping(_opener()), directory, server_program_of(settings)) as copy,
    ):
        closing = StoreCloser(copy, settings.namespace)

        def end_leases(held: list[str]) -> None:
            """End the leases of launches, which do not use the copy."""
            copy.command("DEL", *(closing.keys.control(f"lease:{lineage}") for lineage in held))

        totals = _write_lines(export(closing, closing.close(os.urandom(8).hex(), end_leases)), output)
    _report_written("backed up", file, totals, as_json)


@click.command(name="import", epilog="pollconsumer --store redis://db.example store import store.ndjson")
@click.argument("file", type=NAMED_FILE, metavar="FILE")
@click.option("--restart", is_flag=True, help="Remove what an import that was broken off has left.")
@JSON_OBJECT
def import_(file: str, restart: bool, as_json: bool) -> None:
    """Read an export from FILE, or from standard input for '-', into an empty store.

    Nothing is served from the store until all of it is there, and was compared with the export. If this is broken off,
    give the same export again.
    """
    opener = _opener()
    closing = _closing(opener)
    taken = 0

    def advance(elements: int) -> None:
        nonlocal taken
        taken += elements
        bar.update(elements)

    with telling_when_interrupted(lambda: f"{taken} {NOT_SERVED}"), opened_export(file) as lines:
        _, header = next(lines, (0, {}))
        length = header.get("elements")
        with progress_bar(length if isinstance(length, int) else None, shown=True) as bar:
            importing = Import(closing, advance)
            importing.begin(header, restart=restart)
            end: object = None
            for number, line in lines:
                if "end" in line:
                    end = line["end"]
                    break
                try:
                    importing.take(line)
                except BadData as error:
                    raise BadData(f"line {number}: {error}") from None
        if end is None:
            raise BadData("export cut off", file, "export again; then import that, with --restart")
        importing.finish(end)
    opener.memo.forget()
    _report("imported", importing.totals.as_json(), as_json)


@click.command(epilog="pollconsumer store reopen --yes")
@click.option("--yes", is_flag=True, help="Do it.")
def reopen(yes: bool) -> None:
    """Open a store that was closed for its export, unless that was imported elsewhere."""
    if not yes:
        raise UsageError("nothing reopened", None, "give --yes, if its export was not imported elsewhere")
    _closing(_opener()).reopen()


class _WaitNotice:
    """Says for which launches an export waits, each time that these are other ones."""

    def __init__(self) -> None:
        self._said: list[str] = []

    def pause(self, held: list[str]) -> None:
        if held != self._said:
            self._said = held
            print_notice(f"waiting until these launches have ended: {' '.join(held)}")
        time.sleep(LOOK_EVERY)


def _write_lines(lines: Iterator[dict[str, Any]], output: BinaryIO) -> dict[str, Any]:
    """Write the lines of an export, and show how far it is. Returns its totals."""
    header = next(lines)
    write_json(output, header)
    with progress_bar(header["elements"], shown=True) as bar:
        for line in lines:
            write_json(output, line)
            if "values" in line:
                bar.update(count_of(line["type"], line["values"]))
    totals: dict[str, Any] = line["end"]
    return totals


def _opener() -> StoreOpener:
    return opener_of(current_settings())


def _closing(opener: StoreOpener) -> StoreCloser:
    return StoreCloser(_keeping(opener), opener.namespace)


def _keeping(opener: StoreOpener) -> Wire:
    return opener.keeper_wire(command_patience)


@contextmanager
def _written(file: str, what: str) -> Iterator[BinaryIO]:
    """A file that has its name once it is complete, for its owner alone; what is no file is written to as it is.
    CannotCreate if it cannot be written; ``what`` names it there."""
    try:
        if file == "-":
            if sys.stdout is None:
                raise CannotCreate("standard output", None, "is closed: redirect it to a file, or a pipe")
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        elif (descriptor := open_passing(Path(file))) is not None:
            with os.fdopen(descriptor, "wb") as output:
                yield output
        else:
            refuse_to_replace(Path(file))
            with replacement(Path(file)) as output:
                yield output
    except OSError as error:
        raise CannotCreate(what, f"{file}: {error.strerror}", "check where it goes") from None


def _report_written(what: str, file: str, totals: dict[str, Any], as_json: bool) -> None:
    if file == "-":
        print_notice(f"{what}: " + ", ".join(f"{name} {value}" for name, value in totals.items()))
    else:
        _report(what, totals, as_json)


def _report(what: str, totals: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(totals)
    else:
        print_table((what, ""), tuple(totals.items()))
