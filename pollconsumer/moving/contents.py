"""The elements of a key, in pages of bounded size, and their digest, by which two stores are compared.

An element is the position and value of a list's, field and value of a hash's, score and member of a sorted set's, the
member of a set's. The digest of a key is the sum of theirs: so it is independent of the order in which a server shows
hashes and sets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from pollconsumer.core.errors import StoreRefused
from pollconsumer.store.client.wire import Wire

FEWEST, MOST = 10, 1000
"""Elements asked for at once."""
PAGE_BYTES = 1 << 18
"""Bytes of the values of a page, which then takes the server a few milliseconds."""
ATTEMPTS = 10
_MODULUS = 1 << 128
_LENGTH = {"list": ("LLEN",), "hash": ("HLEN",), "zset": ("ZCARD",), "set": ("SCARD",), "string": ("EXISTS",)}
KINDS = tuple(_LENGTH)
_SCANS = {"hash": ("HSCAN",), "set": ("SSCAN",)}
_WIDTH = {"hash": 2, "zset": 2}
"""The number of values for an element, by the type of a key; one for other types."""


class ContentsPage(NamedTuple):
    at: int
    """The number of elements in the pages before this one."""
    values: list[bytes]
    """Fields and values of a hash, scores and members of a sorted set, values of any other key."""


def count_of(kind: str, values: Sequence[object]) -> int:
    """The number of elements that a page's ``values`` are."""
    return len(values) // _WIDTH.get(kind, 1)


def check_values(kind: str, values: Sequence[bytes]) -> None:
    """Raise ValueError if ``values`` cannot be a page of a key of this ``kind``: an element is incomplete, or a score
    is not written as an export has it."""
    if not values or len(values) % _WIDTH.get(kind, 1):
        raise ValueError("elements are not whole")
    if kind == "zset" and any(score == b"nan" or _score(score) != score for score in values[::2]):
        raise ValueError("a score is not as it is exported")


class Digest(NamedTuple):
    elements: int
    digest: str
    """The sum of the elements' digests, as 32 hexadecimal digits."""


def length_of(wire: Wire, key: str, kind: str) -> int:
    return int(wire.command(*_LENGTH[kind], key))


def pages(wire: Wire, key: str, kind: str) -> Iterator[ContentsPage]:
    """The elements of a key that does not change. Of a hash or set, some may come twice."""
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
    """A score in one form, since servers write the same score differently."""
    return repr(float(text)).encode()


class ContentsDigest:
    """The digest of pages."""

    def __init__(self, kind: str) -> None:
        self._kind, self._sum, self.count = kind, 0, 0

    def add(self, page: ContentsPage) -> None:
        for element in _elements(self._kind, page):
            self._sum += int.from_bytes(blake2b(element, digest_size=16).digest(), "big")
        self.count += count_of(self._kind, page.values)

    def digest(self) -> Digest:
        return Digest(self.count, f"{self._sum % _MODULUS:032x}")


def digest_of(wire: Wire, key: str, kind: str) -> Digest:
    """The digest of all elements, each counted once."""
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
    """What a store has: its keys, their elements, the messages among these, and a digest of all of them."""

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
