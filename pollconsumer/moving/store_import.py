"""The import of a store: into the keys of a closed one, which is opened once everything is in it.

It can be repeated from its beginning whenever it was cut off; a key that is complete is then skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pollconsumer.core.errors import BadData, StoreRefused
from pollconsumer.interface.settings.values import NAME
from pollconsumer.moving.contents import (
    KINDS,
    MOST,
    ContentsPage,
    ContentsTotals,
    Digest,
    check_values,
    count_of,
    digest_of,
)
from pollconsumer.moving.store_closer import Place, StoreCloser
from pollconsumer.moving.store_export import FORMAT, VERSION, VERSION_OF_SEVERAL, as_bytes
from pollconsumer.store.safety.closing_note import IMPORT

TRIP_BYTES = 1 << 18
"""Bytes of values in one round trip."""
TRIP_VALUES = 2 * MOST
"""The number of values in one call: Lua takes some eight thousand, and a server may show more of a small hash at
once."""
AGAIN = "import again, with --restart; if that fails too, export again"


def check_header(header: Mapping[str, Any]) -> list[str]:
    """The namespaces that the first line of an export names, which may be none. BadData if the file is not an export,
    or has another version."""
    if header.get("format") != FORMAT:
        raise BadData("not an export", None, "give what 'pollconsumer store export' wrote")
    if header.get("version") not in (VERSION, VERSION_OF_SEVERAL):
        raise BadData("export of another version", header.get("version"), f"this program reads {VERSION_OF_SEVERAL}")
    found = header.get("namespaces", [header["namespace"]] if "namespace" in header else [])
    if not isinstance(found, list) or not all(isinstance(each, str) and NAME.fullmatch(each) for each in found):
        raise BadData("export damaged", f"its namespaces are {found}", "export again")
    return found


class Import:
    """An import into a closed store. ``advance`` is called with the number of elements of each page."""

    def __init__(self, closing: StoreCloser, advance: Callable[[int], object]) -> None:
        self._closing, self._wire, self._advance = closing, closing.wire, advance
        self._imported = closing.keys.control("imported")
        self._complete: Mapping[bytes, bytes] = {}
        self._pages: list[tuple[Any, ...]] = []
        self._bytes = 0
        self.totals = ContentsTotals()

    def begin(self, header: Mapping[str, Any], *, restart: bool = False) -> None:
        """Close the store, which must be empty, or closed for the same import. ``restart`` removes what an import has
        left.

        BadData if ``header`` is not that of an export of this version, StoreRefused if the store has something else.
        """
        check_header(header)
        id_ = header.get("export")
        if not isinstance(id_, str) or not (id_.isascii() and id_.isalnum()):
            raise BadData("export damaged", f"its id is {id_}", "export again")
        note = self._closing.note()
        if note is not None and note.for_ != IMPORT:
            raise StoreRefused("store closed for its export", note.id, "import into another one")
        if note is not None and restart:
            self._closing.empty()
            note = None
        if note is not None and note.id != id_:
            raise StoreRefused("store has a part of another export", note.id, "import that, or give --restart")
        if note is None:
            self._closing.close_empty(id_)
        found = self._wire.command("HGETALL", self._imported)
        self._complete = dict(zip(found[::2], found[1::2], strict=True))

    def take(self, line: Mapping[str, Any]) -> None:
        """Take a line: a page of a key, or the key's end. BadData if it is neither, StoreRefused if the store has
        something else."""
        place, kind, rest = _read(line)
        key = self._closing.closed_key(place)
        if isinstance(rest, ContentsPage):
            self._advance(count_of(kind, rest.values))
            if key.encode() not in self._complete:
                self._add(key, kind, rest)
            return
        stated, expires_in_ms = rest
        if key.encode() not in self._complete:
            self._send()
            found = digest_of(self._wire, key, kind)
            if found != stated:
                said = f"{key} has {found.elements} of {stated.elements} elements, digest {found.digest}"
                raise StoreRefused("store differs from the export", said, AGAIN)
            if expires_in_ms > 0:
                self._wire.command("PEXPIRE", key, expires_in_ms)
            self._wire.command("HSET", self._imported, key, stated.digest)
        self.totals.add(place.queue, place.word, kind, stated)

    def check(self, stated: object) -> None:
        """Raise BadData if the totals are not those ``stated``."""
        if self.totals.as_json() != stated:
            raise BadData("export damaged", "its totals differ from its content", "export again")

    def finish(self, stated: object) -> None:
        """Open the store. BadData if the totals are not those ``stated``."""
        self.check(stated)
        self._closing.open()
        self._wire.command("DEL", self._imported)

    def _add(self, key: str, kind: str, page: ContentsPage) -> None:
        for first in range(0, len(page.values), TRIP_VALUES):
            at, values = page.at + count_of(kind, page.values[:first]), page.values[first : first + TRIP_VALUES]
            self._pages.append(self._wire.script("fill", [key], [kind, at, *values]))
        self._bytes += sum(map(len, page.values))
        if self._bytes >= TRIP_BYTES:
            self._send()

    def _send(self) -> None:
        if self._pages and not all(self._wire.all(self._pages)):
            raise StoreRefused("store changed during its import", None, AGAIN)
        self._pages, self._bytes = [], 0


def _read(line: Mapping[str, Any]) -> tuple[Place, str, ContentsPage | tuple[Digest, int]]:
    """The key of a line, its type, and what the line says."""
    try:
        place, kind = Place.of(line["queue"], line["key"]), line["type"]
        if place is None or kind not in KINDS:
            raise BadData("unknown key", line["key"], "import with the version that wrote the export")
        if "values" in line:
            page = ContentsPage(int(line["at"]), [as_bytes(each) for each in line["values"]])
            check_values(kind, page.values)
            return place, kind, page
        expires_in_ms = int(line["expires_in_ms"])
        if expires_in_ms.bit_length() > 62:
            raise ValueError(expires_in_ms)
        return place, kind, (Digest(int(line["count"]), str(line["digest"])), expires_in_ms)
    except BadData:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise BadData("export damaged", str(line), "export again") from None
