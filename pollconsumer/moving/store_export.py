"""The export of a closed store. It consists of objects; in a file, each is a line of JSON.

The first object names the format, the store and its namespace, and says how many elements follow. Then come, for each
key, pages of its elements, and an object with its type, the number of its elements, their digest, and the milliseconds
until it expires. The last object has the totals; without it, the export was interrupted. A backup of several namespaces
has all of this for each, and the first object of each names them all.

Bytes are text in which each character has the number of a byte."""

from __future__ import annotations

import io
import os
import select
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core import json_values
from pollconsumer.core.errors import BadData, StoreRefused
from pollconsumer.core.spans import format_duration
from pollconsumer.interface.cli.messages.enqueue import refuse_closed_input
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.named_files import open_incoming
from pollconsumer.interface.settings.values import NAME
from pollconsumer.moving.store_closer import KeyName, StoreCloser
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.suitability import IMPORT, ClosingNote

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


FORMAT = "pollconsumer store"
VERSION = 1
VERSION_OF_SEVERAL = 2
"""The version of an export with several namespaces. Earlier programs, which would read only the first, refuse it."""
ASKED = 1000
"""Number of keys whose types are read in one round trip."""
FEWEST, MOST = 10, 1000
"""Least and greatest number of elements that are read in one call."""
PAGE_BYTES = 1 << 18
"""Intended size of a page, in bytes of its values. Reading a page takes the server a few milliseconds."""
ATTEMPTS = 10
_MODULUS = 1 << 128
_LENGTH = {"list": ("LLEN",), "hash": ("HLEN",), "zset": ("ZCARD",), "set": ("SCARD",), "string": ("EXISTS",)}
KINDS = tuple(_LENGTH)
_SCANS = {"hash": ("HSCAN",), "set": ("SSCAN",)}
_WIDTH = {"hash": 2, "zset": 2}
"""Type of a key → number of values of one element. For other types it is one."""
FIRST_WITHIN = 3600.0
"""Seconds to wait for the first byte, since an export waits until running launches have ended."""
REPORTED_AFTER = 3.0
"""If no byte has come after so many seconds, a line says so, since perhaps nobody writes to the pipe."""
REST_WITHIN = 60.0
"""Seconds to wait for all other bytes, and a further second for each `SLOWEST` bytes."""
SLOWEST = 16 * 1024
LONGEST_LINE = 1 << 28
"""Maximum length of a line in bytes. A page has some 256 KiB of values, or ten elements if these are long."""
TRIP_BYTES = 1 << 18
"""Bytes of values sent in one round trip."""
TRIP_VALUES = 2 * MOST
"""Number of values in one call. Lua takes some eight thousand; for a small hash a server may return more than asked."""
AGAIN = "import again, with --restart; if that fails too, export again"


def export(closing: StoreCloser, note: ClosingNote, namespaces: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the lines of the store that was closed with ``note``: the same in each call, apart from the order within
    hashes and sets, and from keys that have expired. ``namespaces``: those of a backup, if it has several.

    StoreRefused if the store is opened meanwhile, or if a replica was promoted and another store answers."""
    kinds = _kinds(closing)
    elements = sum(length_of(closing.wire, closing.closed_key(key_name), kind) for key_name, kind in kinds.items())
    several = {"version": VERSION_OF_SEVERAL, "namespaces": list(namespaces)} if len(namespaces) > 1 else {}
    header = {"format": FORMAT, "version": VERSION, "export": note.id, "closed_ms": note.at, "elements": elements}
    yield header | {"namespace": closing.keys.namespace} | several
    totals = ContentsTotals()
    for key_name, kind in kinds.items():
        key = closing.closed_key(key_name)
        names = {"queue": key_name.queue, "key": key_name.word}
        expires_in_ms = closing.wire.command("PTTL", key)
        read, whole = pages(closing.wire, key, kind), None
        if expires_in_ms != -1:  # a key that may lapse at any time is read as a whole before its first line
            read, whole = iter([*read]), digest_of(closing.wire, key, kind)
            if expires_in_ms <= 0 or not whole.elements:
                continue
        summing = ContentsDigest(kind)
        for page in read:
            summing.add(page)
            yield names | {"type": kind, "at": page.at, "values": [value.decode("latin-1") for value in page.values]}
        found = whole or summing.digest()
        if whole is None and found.elements != length_of(closing.wire, key, kind):
            found = digest_of(closing.wire, key, kind)  # some elements came twice
        if found.elements == 0:
            raise StoreRefused("store changed during its export", key, "export it again")
        totals.add(key_name.queue, key_name.word, kind, found)
        yield names | {"type": kind, "count": found.elements, "digest": found.digest, "expires_in_ms": expires_in_ms}
    if closing.note() != note:
        raise StoreRefused("store changed during its export", note.id, "export it again")
    yield {"end": totals.as_json()}


def _kinds(closing: StoreCloser) -> dict[KeyName, str]:
    found: dict[KeyName, str] = {}
    possible = closing.closed_key_names()
    for first in range(0, len(possible), ASKED):
        key_names = possible[first : first + ASKED]
        kinds = closing.wire.all([("TYPE", closing.closed_key(key_name)) for key_name in key_names])
        found |= {key_name: kind.decode() for key_name, kind in zip(key_names, kinds, strict=True) if kind != b"none"}
    return found


class ContentsPage(NamedTuple):
    at: int
    """The number of elements in earlier pages of the key."""
    values: list[bytes]
    """Fields and values of a hash; scores and members of a sorted set; values of any other type."""


def count_of(kind: str, values: Sequence[object]) -> int:
    """The number of elements that the ``values`` of a page make up."""
    return len(values) // _WIDTH.get(kind, 1)


class Digest(NamedTuple):
    elements: int
    digest: str
    """The sum of all elements' digests, as 32 hexadecimal digits."""


def length_of(wire: Wire, key: str, kind: str) -> int:
    return int(wire.command(*_LENGTH[kind], key))


def pages(wire: Wire, key: str, kind: str) -> Iterator[ContentsPage]:
    """The elements of ``key``, which must not change meanwhile. Elements of a hash or a set may come twice."""
    at, asked, cursor = 0, FEWEST, b"0"
    while True:
        if kind in _SCANS:
            cursor, values = wire.command(*_SCANS[kind], key, cursor, "COUNT", asked)
            last = int(cursor) == 0
        elif kind == "string":
            values, last = [each for each in [wire.command("GET", key)] if each is not None], True
        else:
            scores = ["WITHSCORES"] if kind == "zset" else []
            values = wire.command("LRANGE" if kind == "list" else "ZRANGE", key, at, at + asked - 1, *scores)
            last = len(values) < asked * _WIDTH.get(kind, 1)
            if kind == "zset":
                values = [each for pair in zip(map(_score, values[1::2]), values[::2], strict=True) for each in pair]
        if values:
            yield ContentsPage(at, values)
        if last:
            return
        at += count_of(kind, values)
        large = sum(map(len, values)) > PAGE_BYTES
        asked = max(FEWEST, asked // 2) if large else min(MOST, asked * 2)


def _score(text: bytes) -> bytes:
    """A score as text in one form, since servers write the same score in several."""
    return repr(float(text)).encode()


class ContentsDigest:
    """Computes the digest of a key from its pages."""

    def __init__(self, kind: str) -> None:
        self._kind, self._sum, self.count = kind, 0, 0

    def add(self, page: ContentsPage) -> None:
        for element in _elements(self._kind, page):
            self._sum += int.from_bytes(blake2b(element, digest_size=16).digest(), "big")
        self.count += count_of(self._kind, page.values)

    def digest(self) -> Digest:
        return Digest(self.count, f"{self._sum % _MODULUS:032x}")


def digest_of(wire: Wire, key: str, kind: str) -> Digest:
    """The digest of all elements of ``key``, each counted once."""
    for _ in range(ATTEMPTS):
        summing = ContentsDigest(kind)
        for page in pages(wire, key, kind):
            summing.add(page)
        if summing.count == length_of(wire, key, kind):
            return summing.digest()
    raise StoreRefused("key changes while it is read", key, "end what writes to it")


def _elements(kind: str, page: ContentsPage) -> Iterator[bytes]:
    values = page.values
    if kind == "hash":
        for field, value in zip(values[::2], values[1::2], strict=True):
            yield len(field).to_bytes(4, "big") + field + value
    elif kind == "zset":
        for score, member in zip(values[::2], values[1::2], strict=True):
            yield struct.pack(">d", float(score)) + member
    elif kind == "list":
        for at, value in enumerate(values, page.at):
            yield at.to_bytes(8, "big") + value
    else:
        yield from values


class ContentsTotals:
    """The totals of a store: keys, elements, messages (which are among the elements), and a digest of all."""

    def __init__(self) -> None:
        self.keys, self.elements, self.messages = 0, 0, 0
        self._sum = 0

    def add(self, queue: str, word: str, kind: str, found: Digest) -> None:
        line = f"{queue} {word} {kind} {found.elements} {found.digest}"
        self._sum += int.from_bytes(blake2b(line.encode(), digest_size=16).digest(), "big")
        self.keys += 1
        self.elements += found.elements
        if queue and word == "records":
            self.messages += found.elements

    def as_json(self) -> dict[str, int | str]:
        digest = f"{self._sum % _MODULUS:032x}"
        return {"messages": self.messages, "elements": self.elements, "keys": self.keys, "digest": digest}


class IncomingExport(io.RawIOBase):
    """The bytes read from a descriptor. BadData if they do not come in time."""

    def __init__(self, name: str, descriptor: int) -> None:
        self._name, self._descriptor = name, descriptor
        self._received, self._waited = 0, 0.0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while True:
            began, limit = time.monotonic(), REST_WITHIN + self._received / SLOWEST if self._received else FIRST_WITHIN
            silent = not self._received and not self._waited
            ready = self._poll.poll(max(0.0, 1000 * ((min(REPORTED_AFTER, limit) if silent else limit) - self._waited)))
            self._waited += time.monotonic() - began
            if not ready and self._waited < limit:
                log.warning("%s has brought nothing yet; waiting up to %s", self._name, format_duration(round(limit)))
            elif not ready:
                received = f"brought {self._received} bytes within {format_duration(round(limit, 1))}"
                raise BadData("export", self._name, f"{received}: import it again")
            if not ready:
                continue
            try:
                read = os.readv(self._descriptor, [buffer])
            except BlockingIOError:
                continue
            if not self._received:
                self._waited = 0.0
            self._received += read
            return read


@contextmanager
def opened_export(name: str) -> Iterator[Iterator[tuple[int, dict[str, Any]]]]:
    """Yield the lines of an export, each with its number. ``-``: standard input. BadData if it is no export."""
    if name == "-":
        refuse_closed_input()
    descriptor = None
    try:
        descriptor = 0 if name == "-" else open_incoming(name)
        yield _parsed(io.BufferedReader(IncomingExport(name, descriptor), 1 << 16))
    except OSError as error:
        raise BadData("export", name, f"cannot be read: {error.strerror}") from None
    finally:
        if descriptor:
            os.close(descriptor)


def _parsed(lines: io.BufferedReader) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    while text := lines.readline(LONGEST_LINE):
        number += 1
        try:
            line = json_values.parse(text)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            raise BadData("export damaged or cut off", f"line {number}", "export again")
        yield number, line


def check_header(header: Mapping[str, Any]) -> list[str]:
    """The namespaces that an export's first line lists; empty if it lists none. BadData for another file or version."""
    if header.get("format") != FORMAT:
        raise BadData("not an export", None, "give what 'pollconsumer store export' wrote")
    if header.get("version") not in (VERSION, VERSION_OF_SEVERAL):
        raise BadData("export of another version", header.get("version"), f"this program reads {VERSION_OF_SEVERAL}")
    found = header.get("namespaces", [header["namespace"]] if "namespace" in header else [])
    if not isinstance(found, list) or not all(isinstance(each, str) and NAME.fullmatch(each) for each in found):
        raise BadData("export damaged", f"its namespaces are {found}", "export again")
    return found


class Import:
    """An import into a closed store. ``advance(n)`` is called for each page, with its number of elements."""

    def __init__(self, closing: StoreCloser, advance: Callable[[int], object]) -> None:
        self._closing, self._wire, self._advance = closing, closing.wire, advance
        self._imported = closing.keys.control("imported")
        self._complete: Mapping[bytes, bytes] = {}
        self._pages: list[tuple[Any, ...]] = []
        self._bytes = 0
        self.totals = ContentsTotals()

    def begin(self, header: Mapping[str, Any], *, restart: bool = False) -> None:
        """Close the store, which must be empty, or closed for this import. ``restart``: first delete what an import has
        left.

        BadData if ``header`` is not that of an export which this version can read. StoreRefused if the store has other
        contents."""
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
        """Import a line: a page of a key, or the end of a key. BadData for any other line. StoreRefused if the key
        differs from the export."""
        key_name, kind, rest = _read(line)
        key = self._closing.closed_key(key_name)
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
                seconds_text = f"{key} has {found.elements} of {stated.elements} elements, digest {found.digest}"
                raise StoreRefused("store differs from the export", seconds_text, AGAIN)
            if expires_in_ms != -1:
                self._wire.command("PEXPIRE", key, max(1, expires_in_ms))
            self._wire.command("HSET", self._imported, key, stated.digest)
        self.totals.add(key_name.queue, key_name.word, kind, stated)

    def check(self, stated: object) -> None:
        """Raise BadData if the totals of the import are not those ``stated``."""
        if self.totals.as_json() != stated:
            raise BadData("export damaged", "its totals differ from its content", "export again")

    def finish(self) -> None:
        """Open the store, after its totals were checked."""
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


def _read(line: Mapping[str, Any]) -> tuple[KeyName, str, ContentsPage | tuple[Digest, int]]:
    """The key of a line, its type, and what the line has: a page or, at the key's end, digest and expiry."""
    try:
        key_name, kind = KeyName.of(line["queue"], line["key"]), line["type"]
        if key_name is None or kind not in KINDS:
            raise BadData("unknown key", line["key"], "import with the version that wrote the export")
        if "values" in line:
            values = [each.encode("latin-1") for each in line["values"]]
            if not values or len(values) % _WIDTH.get(kind, 1):
                raise ValueError("elements are not whole")
            if kind == "zset" and any(score == b"nan" or _score(score) != score for score in values[::2]):
                raise ValueError("a score is not as it is exported")
            return key_name, kind, ContentsPage(int(line["at"]), values)
        expires_in_ms = int(line["expires_in_ms"])
        if expires_in_ms.bit_length() > 62:
            raise ValueError(expires_in_ms)
        return key_name, kind, (Digest(int(line["count"]), str(line["digest"])), expires_in_ms)
    except BadData:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise BadData("export damaged", str(line), "export again") from None
