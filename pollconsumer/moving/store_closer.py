"""Closes a store, so that nothing in it changes, before its export and during its import.

In a closed store the keys have other names, in the same slots. A string, the note, stands in place of each key. Since a
string has the wrong type, the server refuses every script and command of a connected program before anything changes. A
program that connects reads the note. So an open store needs no extra check when messages are enqueued or handled.

A store is closed when running launches have ended. Until then no other launch gets a lease, and producers go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import NamedTuple

from pollconsumer.core.errors import BadData, NotFound, StoreRefused
from pollconsumer.core.messages.message import check_queue
from pollconsumer.core.notation.text import counted
from pollconsumer.interface.settings.values import NAME
from pollconsumer.store.client.wire import MARKER, Wire
from pollconsumer.store.keyspace import CLOSED, CONTROL_SUFFIXES, QUEUE_KEYS, TRIAL, Keys
from pollconsumer.store.leases import GENERATIONS, Leases
from pollconsumer.store.records.rows import id_text
from pollconsumer.store.rights import KEEPER, demand
from pollconsumer.store.server import now_ms, queue_names
from pollconsumer.store.suitability import EXPORT, IMPORT, ClosingNote

NO_LEASE_FOR_MS = 30_000
"""Milliseconds for which the store gives no lease after each look at the held ones. If an export is killed, launches
soon start again."""
CONTROL = (
    "store-id", "fences", "leases", "launches", "ledger", "queues", "queues_marker", "totals", "histograms", "seen",
    "recurring", "audit", "interventions", "paused_handlers", "findings",
)  # fmt: skip
"""Keys of the namespace. In a closed store each is replaced by a note, even if it did not exist before."""
_TRANSIENT = (
    "lease:",
    "next:",
    "baton:",
    "wanted:",
    "telling",
    *(f"{CONTROL_SUFFIXES[word]}:" for word in ("successor_waits", "answered")),
)
_OF_CALLS = ("successor_waits", "stop_marker", "answered", "last_answer")
_TRANSIENT_OF_QUEUES = (*(f"{QUEUE_KEYS[word].suffix}:" for word in _OF_CALLS), MARKER)
"""Prefixes of queues' keys that are of no use when no lease is held."""
_OWN = ("closing", "imported", MARKER)
SCANNED = 1000


class KeyName(NamedTuple):
    """A key in parts. ``queue``: empty for a key of the namespace. ``suffix``: the rest of the key."""

    queue: str
    suffix: str

    @property
    def word(self) -> str:
        """The word that stands for the key in an export file."""
        words = _WORDS if self.queue else _CONTROL_WORDS
        return words.get(self.suffix, self.suffix)

    @staticmethod
    def of(queue: object, word: object) -> KeyName | None:
        """The key that ``queue`` and ``word`` stand for in an export. None if this version has no such key."""
        name = str(word)
        if not queue:
            key_name = KeyName("", CONTROL_SUFFIXES.get(name, name))
            return key_name if is_known(key_name) else None
        return KeyName(check_queue(queue), QUEUE_KEYS[name].suffix) if name in QUEUE_KEYS else None


_WORDS = {key.suffix: word for word, key in QUEUE_KEYS.items()}
_CONTROL_WORDS = {suffix: word for word, suffix in CONTROL_SUFFIXES.items()}
_CONTROL_KEY_NAMES = tuple(KeyName("", CONTROL_SUFFIXES.get(name, name)) for name in CONTROL)
STORE_ID = _CONTROL_KEY_NAMES[0]


def is_known(key_name: KeyName) -> bool:
    """Whether this version has such a key. Not to be called for keys that mean nothing without leases."""
    if key_name.queue:
        return key_name.suffix in _WORDS
    return key_name in _CONTROL_KEY_NAMES or key_name.suffix.startswith(tuple(f"{each}:" for each in GENERATIONS))


def namespaces_of(wire: Wire) -> list[str]:
    """The namespaces on a server: those with a key ``store-id``."""
    found = {id_text(key)[1:].partition("}:")[0] for key in _keys_like(wire, "{*}:store-id")}
    return sorted(name for name in found if NAME.fullmatch(name))


def _keys_like(wire: Wire, pattern: str) -> Iterator[bytes]:
    """The keys of a server that match a pattern. Some may come twice."""
    cursor = b""
    while cursor != b"0":
        cursor, keys = wire.command("SCAN", cursor or b"0", "MATCH", pattern, "COUNT", SCANNED)
        yield from keys


class StoreCloser:
    """Closes, inspects and reopens the store of a namespace. PermissionDenied if a right is missing."""

    def __init__(self, wire: Wire, namespace: str) -> None:
        self.wire, self.keys = wire, Keys(namespace)
        self._leases = Leases(wire, namespace)
        demand(wire, KEEPER, self.keys.control("fences"))

    def note(self) -> ClosingNote | None:
        """The note that is in a closed store. None for an open store."""
        held = self.wire.command("GET", self.keys.control("store-id")) or b""
        return ClosingNote.of(held.decode("utf-8", "replace"))

    def close(self, id: str, pause: Callable[[list[str]], object]) -> ClosingNote:  # noqa: A002
        """Close the store for the export ``id``, once no lease is held. Until then ``pause`` is called repeatedly with
        the names of the held leases. A closing that was interrupted, or that another export began, is continued.
        BadData names an unknown key.

        StoreRefused if the store is closed for its import."""
        if self.note() is None:
            self.key_names()
        while (note := self.note()) is None:
            try:
                self._await_leases(pause)
            except StoreRefused:
                if self.note() is None:  # otherwise another export has closed it
                    raise
            else:
                # This does nothing if a lease may be held again by now.
                key_names = sorted(
                    {*_CONTROL_KEY_NAMES, *(key_name for key_name in self.key_names() if not key_name.queue)}
                )
                keys = [self.keys.control("closing"), *self._pairs(key_names)]
                self.wire.call("close", keys, [str(ClosingNote(now_ms(self.wire), EXPORT, id))])
        if note.for_ == IMPORT:
            raise StoreRefused("store not imported", note.id, "finish that: pollconsumer store import FILE")
        for queue in self._queues():
            self.wire.call("close", self._pairs(_queue_key_names(queue)), [str(note)])
        self.wire.command("DEL", self.keys.control("closing"))
        return note

    def close_empty(self, id: str) -> None:  # noqa: A002
        """Close a store for the import ``id``. StoreRefused if it is not empty."""
        self.refuse_unless_empty()
        self.wire.call("close", self._pairs(_CONTROL_KEY_NAMES), [str(ClosingNote(now_ms(self.wire), IMPORT, id))])

    def refuse_unless_empty(self) -> None:
        """Raise StoreRefused if the namespace has anything but the store's id."""
        if key_names := [key_name for key_name in self.key_names() if key_name != STORE_ID]:
            named = f"{counted(len(key_names), 'key')}, as {self._name(key_names[0])}"
            raise StoreRefused("store not empty", named, "import into an empty one: another store or data directory")

    def reopen(self) -> None:
        """Open the store again. NotFound if it is not closed. StoreRefused if it is closed for its import."""
        note = self.note()
        if note is None:
            raise NotFound("store not closed", self.wire.address, "there is nothing to reopen")
        if note.for_ == IMPORT:
            raise StoreRefused("store not imported", note.id, "finish that: pollconsumer store import FILE")
        self.open()

    def open(self) -> None:
        """Open the store: queues, then the namespace, at last its id. Until then every connection is refused."""
        for queue in self._queues():
            self.wire.call("reopen", self._pairs(_queue_key_names(queue)), [])
        others = [key_name for key_name in self.closed_key_names() if not key_name.queue and key_name != STORE_ID]
        self.wire.call("reopen", self._pairs(others), [])
        self.wire.call("reopen", self._pairs([STORE_ID]), [])

    def empty(self) -> None:
        """Delete what an import has written, then open the store."""
        for key_name in self.closed_key_names():
            self.wire.command("UNLINK", self.closed_key(key_name))
        self.wire.command("DEL", self.keys.control("imported"))
        self.open()

    def closed_key_names(self) -> list[KeyName]:
        """The keys that a closed store may have, in a fixed order. Besides those that a scan finds, all possible ones
        are listed: a scan may miss keys of a slot that is being moved."""
        scanned = (key_name for key_name in self._scanned() if key_name.suffix.startswith(CLOSED))
        found = {KeyName(key_name.queue, key_name.suffix.removeprefix(CLOSED)) for key_name in scanned}
        queue_key_names = (key_name for queue in self._queues() for key_name in _queue_key_names(queue))
        return sorted({*found, *_CONTROL_KEY_NAMES, *queue_key_names})

    def key_names(self) -> list[KeyName]:
        """The keys of an open store. BadData names a key that this version does not know."""
        found = []
        for key_name in self._scanned():
            transient = _TRANSIENT_OF_QUEUES if key_name.queue else (*_TRANSIENT, *_OWN)
            if key_name.suffix.startswith((CLOSED, *transient)):
                continue
            if not is_known(key_name):
                fix = "export with the version that wrote it: a newer pollconsumer, if it is none of another program's"
                raise BadData("unknown key", self._name(key_name), fix)
            found.append(key_name)
        return sorted(found)

    def closed_key(self, key_name: KeyName) -> str:
        return self._name(key_name._replace(suffix=CLOSED + key_name.suffix))

    def _await_leases(self, pause: Callable[[list[str]], object]) -> None:
        """Let no launch get a lease from now on, and return when none is held. If ``pause`` raises, launches get leases
        again, and the exception is raised."""
        try:
            while True:
                self.wire.all([self.wire.mark(self.keys.control("closing"), NO_LEASE_FOR_MS)])
                if not (held := self._leases.held()):
                    return
                pause(held)
        except BaseException:
            self.wire.command("DEL", self.keys.control("closing"))
            raise

    def _queues(self) -> list[str]:
        """The registered queues, and all others that have keys."""
        found = self.wire.command("SMEMBERS", self.closed_key(KeyName("", "queues")))
        return queue_names({*found, *(key_name.queue.encode() for key_name in self._scanned())})

    def _scanned(self) -> Iterator[KeyName]:
        """All keys of the namespace, also unknown ones."""
        seen = set[bytes]()
        patterns = (f"{{{self.keys.namespace}}}:*", f"{{{self.keys.namespace}:*}}:*")
        for server, pattern in product(self.wire.servers(), patterns):
            for key in _keys_like(server, pattern):
                if key not in seen:
                    seen.add(key)
                    tag, _, suffix = id_text(key)[1:].partition("}:")
                    queue = tag.removeprefix(self.keys.namespace).removeprefix(":")
                    if not queue.startswith(TRIAL):  # GUARD what a killed trial of the server left
                        yield KeyName(queue, suffix)

    def _pairs(self, key_names: Iterable[KeyName]) -> list[str]:
        return [name for key_name in key_names for name in (self._name(key_name), self.closed_key(key_name))]

    def _name(self, key_name: KeyName) -> str:
        tag = f"{self.keys.namespace}:{key_name.queue}" if key_name.queue else self.keys.namespace
        return f"{{{tag}}}:{key_name.suffix}"


def _queue_key_names(queue: str) -> list[KeyName]:
    return [KeyName(queue, key.suffix) for key in QUEUE_KEYS.values()]
