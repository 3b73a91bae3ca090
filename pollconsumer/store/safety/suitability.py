"""Checks that a server may be used: recent enough, a primary, not evicting, and the store that we know."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pollconsumer.core.errors import StoreRefused
from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.replies import RESTORE, ErrorReply, Unanswered
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records.id_text import id_text
from pollconsumer.store.safety.rollback import Rollback
from pollconsumer.store.server import info_fields

OLDEST = (7, 0)
OLDEST_WITH_WAITAOF = (7, 2)
CLOSED = "closed "
"""What the id of a closed store begins with: see ``store/safety/closing_note.py``."""


class Memo(Protocol):
    """Remembers a store's id, elsewhere than in the store."""

    def read(self) -> str | None: ...

    def write(self, store_id: str) -> None: ...


class Suitability:
    """Checks every new connection, as ``greet`` of `Wire`."""

    def __init__(
        self,
        namespace: str,
        memo: Memo,
        warn: Callable[[str], None],
        *,
        aof: bool = False,
        rollback: Rollback | None = None,
    ) -> None:
        """``aof``: what is written must be in the server's append-only file. ``rollback`` notices what was lost."""
        self._key, fences = map(Keys(namespace).control, ("store-id", "fences"))
        self._mark = [("HGET", fences, "mark")] if rollback is not None else []
        self._memo, self._warn, self._aof, self._rollback = memo, warn, aof, rollback
        sections = ("server", "memory", "replication", *(["persistence"] if aof else []))
        self._asked = [("INFO", section) for section in sections]

    def __call__(self, wire: Wire) -> int:
        """Check a new connection. Returns the number of the server's replicas. Raises StoreRefused; StoreUnreachable
        for a closed store; Unanswered for a replica: another connection may lead to the primary."""
        # Read what is remembered first: another process may be the first to see this store in between.
        known, seen = self._memo.read(), self._rollback.remembered() if self._rollback is not None else ""
        try:
            replicas, held, *mark = self._check(wire, ("GET", self._key), *self._mark)
        except StoreRefused:  # a closed store has a note in place of each key
            _, held = self._check(wire, ("GET", self._key))
            self._recognise(wire, known, id_text(held) if held else None)
            raise
        if not isinstance(held, ErrorReply):
            self._recognise(wire, known, id_text(held) if held else None)
            if self._rollback is not None:
                self._rollback.look(wire, mark[0], seen)
        return int(replicas)

    def check_server(self, wire: Wire) -> int:
        """Check the server, and not which store it is, nor whether that is closed. Returns the number of its
        replicas."""
        (replicas,) = self._check(wire)
        return int(replicas)

    def _check(self, wire: Wire, *reads: Command) -> list[Any]:
        """Check the server. Returns the number of its replicas, and what it answers to ``reads``, sent in the same
        write: an error where another node of a cluster has the key."""
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
            raise Unanswered(f"{wire.place} is a replica; point at its primary", sent=False)
        self._check_eviction(info)
        return [_replicas(info), *answers[len(self._asked) :]]

    def _check_eviction(self, info: dict[str, str]) -> None:
        policy = info.get("maxmemory_policy", "noeviction")
        if info.get("maxmemory", "0") == "0" or policy == "noeviction":
            return
        if policy.startswith("allkeys"):
            raise StoreRefused("store evicts", f"maxmemory-policy {policy}", "messages would vanish; set noeviction")
        self._warn(f"store evicts: maxmemory-policy {policy}; leases may vanish, set noeviction")

    def _recognise(self, wire: Wire, known: str | None, held: str | None) -> None:
        """Refuse a store whose id is missing or different: it was emptied or replaced. Or closed."""
        if held is not None and held.startswith(CLOSED):
            from pollconsumer.store.safety.closing_note import refusal

            raise refusal(held)
        if known is None:
            if held is None:  # give the store an id, unless another process has by now
                *_, given = wire.once([("SET", self._key, os.urandom(16).hex(), "NX"), ("GET", self._key)])
                held = id_text(given)
            self._memo.write(held)
            return
        if held != known:
            found = "empty" if held is None else "another one"
            raise StoreRefused("store replaced", f"{wire.address} is {found}", RESTORE)


def _refuse_sentinel(wire: Wire, info: dict[str, str]) -> None:
    if "sentinel" in (info.get("redis_mode"), info.get("server_mode")):
        fix = f"write redis+sentinel://{wire.place}/SERVICE, with the name in its line 'sentinel monitor'"
        raise StoreRefused("store is a Sentinel", wire.place, fix)


def count_replicas(wire: Wire) -> int:
    """Return the number of the server's replicas, all that a heartbeat asks of a new connection: its launch has checked
    the server."""
    (section,) = wire.once([("INFO", "replication")])
    return _replicas(info_fields([section]))


def _replicas(info: Mapping[str, str]) -> int:
    """How many replicas there are. What makes a copy of the server (``store backup``) is listed with them, but listens
    on no port, is never online, and confirms nothing."""
    listed = [said for name, said in info.items() if name[:5] == "slave" and name[5:].isdigit()]
    copies = [said for said in listed if ",port=0," in said and ",state=online," not in said]
    return int(info.get("connected_slaves", 0)) - len(copies)
