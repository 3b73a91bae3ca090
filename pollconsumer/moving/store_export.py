"""The export of a closed store: objects, each a line of JSON where it is written.

The first names the format, the store with its namespace, and how many elements follow. Then come the pages of each key,
and what the key has: its type, the number of its elements, their digest, and the milliseconds after which it expires.
The last has the totals, so that an export that was cut off is none. A backup of several namespaces has all of this for
each; the first line of each names them all.

In text, a byte is the character of the same number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pollconsumer.core.errors import StoreRefused
from pollconsumer.moving.contents import ContentsDigest, ContentsTotals, digest_of, length_of, pages
from pollconsumer.moving.store_closer import Place, StoreCloser
from pollconsumer.store.safety.closing_note import ClosingNote

FORMAT = "pollconsumer store"
VERSION = 1
VERSION_OF_SEVERAL = 2
"""That of an export with several namespaces, of which an earlier version would have read the first."""
ASKED = 1000
"""Keys whose types are asked for in a round trip."""


def as_text(value: bytes) -> str:
    return value.decode("latin-1")


def as_bytes(text: str) -> bytes:
    return text.encode("latin-1")


def export(closing: StoreCloser, note: ClosingNote, namespaces: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the lines of the store that was closed with ``note``: the same each time, except for the order of hashes
    and sets. ``namespaces``: those of a backup that has several.

    StoreRefused if the store is opened meanwhile, or is another one by now: a replica that was promoted.
    """
    kinds = _kinds(closing)
    elements = sum(length_of(closing.wire, closing.closed_key(place), kind) for place, kind in kinds.items())
    several = {"version": VERSION_OF_SEVERAL, "namespaces": list(namespaces)} if len(namespaces) > 1 else {}
    header = {"format": FORMAT, "version": VERSION, "export": note.id, "closed_ms": note.at, "elements": elements}
    yield header | {"namespace": closing.keys.namespace} | several
    totals = ContentsTotals()
    for place, kind in kinds.items():
        key = closing.closed_key(place)
        names = {"queue": place.queue, "key": place.word}
        summing = ContentsDigest(kind)
        for page in pages(closing.wire, key, kind):
            summing.add(page)
            yield names | {"type": kind, "at": page.at, "values": [as_text(value) for value in page.values]}
        found = summing.digest()
        if found.elements != length_of(closing.wire, key, kind):
            found = digest_of(closing.wire, key, kind)  # some elements came twice
        if found.elements == 0:
            raise StoreRefused("store changed during its export", key, "export it again")
        expires_in_ms = closing.wire.command("PTTL", key)
        totals.add(place.queue, place.word, kind, found)
        yield names | {"type": kind, "count": found.elements, "digest": found.digest, "expires_in_ms": expires_in_ms}
    if closing.note() != note:
        raise StoreRefused("store changed during its export", note.id, "export it again")
    yield {"end": totals.as_json()}


def _kinds(closing: StoreCloser) -> dict[Place, str]:
    found: dict[Place, str] = {}
    possible = closing.closed_places()
    for first in range(0, len(possible), ASKED):
        places = possible[first : first + ASKED]
        kinds = closing.wire.all([("TYPE", closing.closed_key(place)) for place in places])
        found |= {place: kind.decode() for place, kind in zip(places, kinds, strict=True) if kind != b"none"}
    return found
