"""Checks a server at each new connection: it is recent enough, a primary, and does not evict keys. And it has the store
that this process knows, which is open and was not rolled back.

A store is rolled back if a replica without the last writes is promoted, if its file is cut, or if a backup is restored.
Its watermark rises whenever a lease is acquired, renewed or released. A process that has seen a higher watermark than
it finds now reports the rollback. A launch's heartbeat compares at each renewal; every process compares at each new
connection, also with what earlier processes of the same user have seen. Watermarks do not show the loss of writes after
the last renewal. The process that made such writes looks for the last one at its next connection."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol

from pollconsumer.core.errors import StoreRefused, StoreUnreachable, WentBack
from pollconsumer.core.notation.instants import iso
from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.replies import RESTORE, ErrorReply, Unanswered
from pollconsumer.store.client.wire import LastAcknowledged, Watermarks, Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.queues.producer import REPEAT_WITHIN_MS
from pollconsumer.store.records.rows import ENDING, id_text
from pollconsumer.store.server import count_of, info_fields

EXPORT, IMPORT = "export", "import"
LIMIT = 1 << 48
"""Watermarks and fences are less than this, since they have six bytes in a row."""
ACCEPT = "see what is missing, then accept it: pollconsumer store adopt"
_REFUSED = "refused: "
OLDEST = (7, 0)
OLDEST_WITH_WAITAOF = (7, 2)
CLOSED = "closed "
"""How a closed store's id begins: see ``moving/store_closer.py``."""


class ClosingNote(NamedTuple):
    """Why a store is closed. ``for_``: EXPORT or IMPORT. ``id``: that of the export or import."""

    at: int
    """When it was closed, in epoch ms of the server's clock."""
    for_: str
    id: str

    def __str__(self) -> str:
        return f"closed {self.at} {self.for_} {self.id}"

    @staticmethod
    def of(text: str) -> ClosingNote | None:
        words = text.split(" ")
        if len(words) != 4 or words[0] != "closed" or not words[1].isdecimal() or words[2] not in (EXPORT, IMPORT):
            return None
        return ClosingNote(int(words[1]), *words[2:])


def refusal(text: str) -> StoreUnreachable:
    """The error for a process that connects to a closed store. ``text``: the note that the store has as its id."""
    note = ClosingNote.of(text)
    if note is None:
        return StoreUnreachable("store closed", None, "a newer version did that")
    if note.for_ == EXPORT:
        fix = "connect to the store that it moved to; or open it again: pollconsumer store reopen --yes"
        return StoreUnreachable("store closed", f"for its export, at {iso(note.at)}", fix)
    fix = "finish that: pollconsumer store import"
    return StoreUnreachable("store closed", f"its import, begun at {iso(note.at)}, is not finished", fix)


class WatermarkMemo(Protocol):
    """Keeps the watermarks that were seen, as text in a file outside the store."""

    def read_watermarks(self) -> str: ...

    def write_watermarks(self, text: str) -> None: ...


class Rollback:
    """Finds out, for one process, that a store was rolled back, and reports it."""

    def __init__(
        self, namespace: str, memo: WatermarkMemo, warn: Callable[[str], None], *, refuse: bool, confirmed: bool = False
    ) -> None:
        """``refuse``: raise WentBack instead of warning, in this process and in later ones. ``confirmed``: writes wait
        for replicas, so only confirmed watermarks count: a watermark that was only read may get lost although no
        acknowledged write does."""
        self._keys, self._memo, self._warn, self._refuse = Keys(namespace), memo, warn, refuse
        self._confirmed = confirmed
        self._watermarks: Watermarks | None = None
        self.losses = 0
        """How often this process has found a rollback."""

    def remembered(self) -> str:
        """The watermarks of earlier processes, as text; empty once this process has compared. Call this, then read the
        store's watermark: a launch that ends in between raises both."""
        return "" if self._watermarks else self._memo.read_watermarks()

    def look(self, wire: Wire, found: bytes | None, remembered: str) -> None:
        """Compare the watermark ``found`` on a new connection with those seen before, and look for the message
        acknowledged last. After a rollback, warn, or raise WentBack. ``remembered``: what `remembered` returned."""
        watermarks = self._watermarks or self._read(remembered)
        seen = max(watermarks.seen, wire.watermarks.seen)
        watermark = count_of(found)
        reached = min(seen, watermark) if self._confirmed else watermark  # GUARD what was merely read
        self._watermarks = wire.watermarks = Watermarks(
            reached, max(watermarks.greatest, wire.watermarks.greatest, watermark)
        )
        if watermark < seen:  # GUARD a connection that finds less than was seen
            line = went_back(seen, watermark)
        elif wire.last_acknowledged is not None and (what := self._missing(wire, wire.last_acknowledged)):
            line = f"store rolled back: message {what}; {_may_be_lost(watermark)}"
        else:
            return
        wire.last_acknowledged = None
        self.losses += 1
        if self._refuse:
            self.refuse(line)
        self._write(self._watermarks)
        self._warn(line)

    def note(self, wire: Wire) -> None:
        """At the end of a launch, store the watermarks that it has seen."""
        if not self._memo.read_watermarks().startswith(_REFUSED):
            self._write(wire.watermarks)

    def refuse(self, line: str) -> NoReturn:
        """Raise WentBack with ``line``, in this process and in later ones."""
        self._memo.write_watermarks(_REFUSED + line)
        raise WentBack(line, None, ACCEPT)

    def _write(self, watermarks: Watermarks) -> None:
        self._memo.write_watermarks(f"{watermarks.seen} {watermarks.greatest}")

    @staticmethod
    def _read(text: str) -> Watermarks:
        if text.startswith(_REFUSED):
            raise WentBack(text.removeprefix(_REFUSED), None, ACCEPT)
        numbers = [count_of(word.encode()) for word in text.split()]
        return (
            Watermarks(*numbers)
            if len(numbers) == len(Watermarks._fields) and max(numbers) < LIMIT
            else Watermarks(0, 0)
        )

    def _missing(self, wire: Wire, last_acknowledged: LastAcknowledged) -> str:
        """What the store has lost of ``last_acknowledged``, in words; empty if nothing. Also empty if that write is so
        old that the store may have deleted it as usual."""
        queue, message_id, completed, at = last_acknowledged
        if (time.monotonic() - at) * 1000 > REPEAT_WITHIN_MS:
            return ""
        key = partial(self._keys.queue, queue)
        record, row, *memories = wire.once(
            [
                ("HEXISTS", key("records"), message_id),
                ("HGET", key("rows"), message_id),
                *(("SISMEMBER", key(memory), message_id) for memory in ("id_memory", "id_memory_before")),
            ]
        )
        name = message_id if isinstance(message_id, str) else id_text(message_id)
        if any(memories) or (row is not None and row[ENDING : ENDING + 1] != b"\0"):
            return ""
        if not record and row is None:  # GUARD a message that is gone
            return f"{name}, which was accepted, is not there"
        return f"{name}, which was completed, would be handled again" if completed else ""


def went_back(seen: int, watermark: int) -> str:
    """The line for the log: the store had reached ``seen``, and now has the lower ``watermark``; both in epoch ms."""
    return f"store rolled back: it had reached {iso(seen)}; {_may_be_lost(watermark)}"


def _may_be_lost(watermark: int) -> str:
    since = iso(watermark) if watermark else "its beginning"
    return f"messages accepted since {since} may be lost, messages completed since then handled again"


class Memo(Protocol):
    """Keeps a store's id in a file outside the store."""

    def read(self) -> str | None: ...

    def write(self, store_id: str) -> None: ...


class Suitability:
    """The check of a new connection, for the parameter ``greet`` of `Wire`."""

    def __init__(
        self,
        namespace: str,
        memo: Memo,
        warn: Callable[[str], None],
        *,
        aof: bool = False,
        rollback: Rollback | None = None,
    ) -> None:
        """``aof``: the server must have an append-only file. ``rollback``: looks for a rollback; None: not checked."""
        self._key, fences = map(Keys(namespace).control, ("store-id", "fences"))
        self._watermark = [("HGET", fences, "mark")] if rollback is not None else []
        self._memo, self._warn, self._aof, self._rollback = memo, warn, aof, rollback
        sections = ("server", "memory", "replication", *(["persistence"] if aof else []))
        self._asked = [("INFO", section) for section in sections]

    def __call__(self, wire: Wire) -> int:
        """Check a new connection. Returns the number of the server's replicas. StoreRefused if the server or the store
        must not be used. StoreUnreachable if the store is closed. Unanswered if the server is a replica: a later
        connection may find the primary."""
        # Read what is remembered first: another process may see this store for the first time in between.
        known, seen = self._memo.read(), self._rollback.remembered() if self._rollback is not None else ""
        try:
            replicas, held, *watermark = self._check(wire, ("GET", self._key), *self._watermark)
        except StoreRefused:  # a closed store has a note in place of each key
            _, held = self._check(wire, ("GET", self._key))
            self._recognise(wire, known, id_text(held) if held else None)
            raise
        if not isinstance(held, ErrorReply):
            self._recognise(wire, known, id_text(held) if held else None)
            if self._rollback is not None:
                self._rollback.look(wire, watermark[0], seen)
        return int(replicas)

    def check_server(self, wire: Wire) -> int:
        """Check only the server, not which store it has or whether that is closed. Returns its number of replicas."""
        (replicas,) = self._check(wire)
        return int(replicas)

    def _check(self, wire: Wire, *reads: Command) -> list[Any]:
        """Check the server. Returns the number of its replicas, then the answers to ``reads``, sent in the same round
        trip. An answer is an error if another node of the cluster has its key."""
        try:
            answers = wire.once([*self._asked, *reads])
        except StoreRefused:  # for a command that a Sentinel lacks
            _refuse_sentinel(wire, info_fields(wire.once(self._asked[:1])))
            raise
        info = info_fields(answers[: len(self._asked)])
        _refuse_sentinel(wire, info)
        version = info.get("redis_version", "0.0")
        numbers = tuple(int(part) for part in version.split(".")[:2])
        if numbers < OLDEST:
            raise StoreRefused("server too old", f"Redis {version}", "needs Redis 7.0 or later, or Valkey")
        if self._aof and numbers < OLDEST_WITH_WAITAOF:
            raise StoreRefused(
                "server too old for strict.aof", f"Redis {version}", "needs Redis 7.2 or later, or Valkey"
            )
        if self._aof and info.get("aof_enabled") != "1":
            raise StoreRefused("strict.aof", "the server keeps no append-only file", "set appendonly yes there")
        if info.get("role") == "slave":
            raise Unanswered(f"{wire.location} is a replica; point at its primary", sent=False)
        policy = info.get("maxmemory_policy", "noeviction")
        if info.get("maxmemory", "0") != "0" and policy != "noeviction":
            if policy.startswith("allkeys"):
                raise StoreRefused(
                    "store evicts", f"maxmemory-policy {policy}", "messages would vanish; set noeviction"
                )
            self._warn(f"store evicts: maxmemory-policy {policy}; leases may vanish, set noeviction")
        return [_replicas(info), *answers[len(self._asked) :]]

    def _recognise(self, wire: Wire, known: str | None, held: str | None) -> None:
        """Raise StoreRefused if ``held``, the store's id, is not ``known``: the store was emptied or replaced.
        StoreUnreachable if it is closed. If ``known`` is None, remember ``held``, or a new id for the store."""
        if held is not None and held.startswith(CLOSED):
            raise refusal(held)
        if known is None:
            if held is None:  # give the store an id, unless another process just did
                *_, given = wire.once([("SET", self._key, os.urandom(16).hex(), "NX"), ("GET", self._key)])
                held = id_text(given)
            self._memo.write(held)
            return
        if held != known:
            found = "empty" if held is None else "another one"
            raise StoreRefused("store replaced", f"{wire.address} is {found}", RESTORE)


def _refuse_sentinel(wire: Wire, info: dict[str, str]) -> None:
    if "sentinel" in (info.get("redis_mode"), info.get("server_mode")):
        fix = f"write redis+sentinel://{wire.location}/SERVICE, with the name in its line 'sentinel monitor'"
        raise StoreRefused("store is a Sentinel", wire.location, fix)


def count_replicas(wire: Wire) -> int:
    """The number of the server's replicas. A heartbeat checks no more, since its launch has checked the server."""
    (section,) = wire.once([("INFO", "replication")])
    return _replicas(info_fields([section]))


def _replicas(info: Mapping[str, str]) -> int:
    """The number of replicas in the server's INFO, without clients that copy the server (``store backup``): they
    confirm nothing. Such a client has no port, and is never online."""
    listed = [replica for name, replica in info.items() if name[:5] == "slave" and name[5:].isdigit()]
    copies = [replica for replica in listed if ",port=0," in replica and ",state=online," not in replica]
    return int(info.get("connected_slaves", 0)) - len(copies)
