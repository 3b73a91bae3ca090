"""Finds the configuration file where none is named: in a directory, or in the nearest one above it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pollconsumer.core.errors import ConfigurationError, StoreUnreachable
from pollconsumer.core.notation.text import printable
from pollconsumer.interface.named_files import open_plain
from pollconsumer.interface.settings.fields import declared_fields
from pollconsumer.interface.settings.model import SECTIONS, TABLES, Settings
from pollconsumer.interface.settings.names import variable
from pollconsumer.runtime.system.own_files import modes_mean_nothing

NAME = "config.toml"
MOST_BYTES = 1 << 20
NAMED_BY = "--config names one, 'pollconsumer init project' begins one"


class Beside(NamedTuple):
    """Where the search of an application begins. ``owner``: the user id of the module there, whose code runs anyway."""

    directories: tuple[Path, ...]
    owner: int


def beside_module(file: str | None) -> Beside | None:
    """The place of a module's file, and, if a link leads to it, that of the link first. An installed module stands in
    no project: for it the search goes on in the current directory. None where there is no such file: in a notebook, or
    an archive."""
    if file is None:
        return None
    module = Path(file)
    try:
        found = [module.parent, module.resolve().parent]
        if "-packages" in module.parent.as_posix():
            found.append(Path.cwd())
        return Beside(tuple(dict.fromkeys(found)), module.stat().st_uid)
    except OSError:
        return None


def name_file(error: Exception, config: Path | None, given: object = None) -> None:
    """Begin the text of an error about a setting with the file that has it. Leave other errors, and one about what a
    variable or a flag has set. ``given``: the flag ``--store``, if it is."""
    table = declared_fields()
    keys = "|".join(filter(None, (*table.section(""), *table.sections, *table.tables)))
    if config is None or type(error) is not ConfigurationError:
        return
    found = re.match(rf"unknown key\b|({keys})(\.\w+)?\b(?=[.:,])", str(error))
    if (
        found is None
        or (found[1] and os.environ.get(variable(found[0])))
        or (found[1] == "store" and given is not None)
    ):
        return
    error.args = (printable(f"{_shown(config)}: {error}"),)


def name_source(error: Exception, settings: Settings, given: object = None) -> None:
    """`name_file`; and end the text of an error about a server that was never reached, and that names no fix, with
    what names that server."""
    name_file(error, settings.config, given)
    if type(error) is not StoreUnreachable or error.sent or settings.is_embedded:
        return
    if not re.search(r"^store unreachable: .*; it says: [^;]*$", str(error)):
        return
    key, source = "store" if settings.client is None else "client", "--store"
    if given is None:
        source = variable(key) if os.environ.get(variable(key)) else f"{key} in {_shown(settings.config)}"
    error.args = (printable(f"{error}; see whether the server is started, and the address right: {source} names it"),)


def _shown(config: Path | None) -> Path | None:
    with suppress(OSError):  # the current directory is gone
        return config.relative_to(Path.cwd()) if config and config.parent == Path.cwd() else config
    return config


def candidates(directory: Path) -> Iterator[Path]:
    """Where the configuration of ``directory`` may be, nearest first."""
    yield directory / NAME
    if (above := found_above(directory)) is not None:
        yield above


def found_above(directory: Path) -> Path | None:
    """The nearest ``config.toml`` above ``directory`` that has a key of ours. None if none is found up to the root, or
    below the first directory that others may write: anybody could put a file there."""
    for parent in directory.parents:
        try:
            # GUARD no file is found in a directory that others may write, nor above it
            if parent.stat().st_mode & stat.S_IWOTH and not modes_mean_nothing(parent):
                return None
            if (path := parent / NAME).is_file() and _is_ours(path):
                return path
        except OSError:  # not ours to read
            continue
    return None


def _is_ours(path: Path) -> bool:
    """Whether a file has one of our keys at its top level. OSError if it cannot be read.

    The name is common: Hugo and others have a ``config.toml``, too. A file with an error in it is recognised as well,
    so that the error is reported.
    """
    with os.fdopen(open_plain(path), "rb") as file:
        text = file.read(MOST_BYTES).decode("utf-8-sig", "replace")
    keys = [key for key in declared_fields().section("") if key]
    tables = "|".join((*filter(None, SECTIONS), *TABLES))
    top, _, _ = f"\n{text}".partition("\n[")
    key = rf"^[ \t]*[\"']?({'|'.join(keys)})[\"']?[ \t]*=|^[ \t]*({tables})[ \t]*\.[^=]+="
    table = rf"^[ \t]*\[[ \t]*[\"']?({tables})[\"']?[ \t]*[\].]"
    return bool(re.search(key, top, re.MULTILINE) or re.search(table, text, re.MULTILINE))


def refuse_nowhere(settings: Settings) -> None:
    """Raise ConfigurationError if no configuration was found, and nothing else says which store is meant: what is sent
    there, nobody would look for."""
    # GUARD nothing is changed in a store that nobody named
    if settings.nowhere is not None:
        raise ConfigurationError(settings.nowhere, fix=NAMED_BY)


def other_config(other: Path, settings: Settings) -> str:
    """The line about an application that has another configuration outside of a command with these settings."""
    here = settings.config or "the environment"
    return (
        f"the application beside {other} reads that file where it enqueues; this command reads {here}: name one of both"
    )
