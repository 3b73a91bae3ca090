"""Opening the store that the settings name: the embedded server, or one of the user's."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pollconsumer.core.errors import CannotCreate
from pollconsumer.runtime.embedded.server import EmbeddedServer
from pollconsumer.runtime.own_files import data_directory
from pollconsumer.store.leases import Leases
from pollconsumer.store.redis_store import RedisStore
from pollconsumer.store.suitability import Suitability
from pollconsumer.store.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.runtime.own_files import OwnFiles
    from pollconsumer.store.patience import Patience

EMBEDDED = "embedded"
START_BUDGET = 10.0
"""Seconds in which the embedded server must have started."""


class StoreMemo:
    """The id of a store, in a file of the user's own: away from the data that it vouches for."""

    def __init__(self, address: str, namespace: str, files: OwnFiles) -> None:
        digest = hashlib.sha256(f"{address}\n{namespace}".encode()).hexdigest()[:32]
        self._name, self._files = f"stores/{digest}", files

    def read(self) -> str | None:
        try:
            return (self._files.read(self._name) or b"").decode("ascii").strip() or None
        except ValueError:
            return None

    def write(self, store_id: str) -> None:
        """Where nothing can be written, as in a container, every start is the first."""
        self._files.write(self._name, f"{store_id}\n".encode())

    def forget(self) -> None:
        """CannotCreate where the file system does not let go of it."""
        self._files.remove(self._name)
        if self.read() is not None:
            raise CannotCreate("the id of the store that was known", self._name, "make its directory writable")


class StoreOpener:
    """Makes connections to one store. An embedded server is started by the first call that needs it."""

    def __init__(
        self, store: str, namespace: str, durability: str, warn: Callable[[str], None], files: OwnFiles
    ) -> None:
        """``files`` keep the id of the store, from one process to the next."""
        self._revive: Callable[[float], None] | None = None
        self._revive_silently: Callable[[float], None] | None = None
        self._url = store
        address = store
        if store == EMBEDDED:
            server = EmbeddedServer(data_directory())
            self._url, address = server.url, str(server.directory)
            self._revive = self._reviver(server, durability, warn)
            self._revive_silently = self._reviver(server, durability, lambda _: None)
        elif not store.startswith("unix:"):
            from pollconsumer.store.transport import doubts

            for doubt in doubts(store):
                warn(doubt)
        self.namespace = namespace
        self.memo = StoreMemo(address, namespace, files)
        self._greet = Suitability(namespace, self.memo, warn)

    def wire(self, patience: Callable[[], Patience]) -> Wire:
        """A connection that looks at the server before it is used."""
        return Wire(self._url, patience, revive=self._revive, greet=self._greet)

    def bare_wire(self, patience: Callable[[], Patience]) -> Wire:
        """A connection beside one that has looked already, and that starts no server."""
        return Wire(self._url, patience)

    def for_heartbeat(self, patience: Callable[[], Patience]) -> tuple[Leases, RedisStore]:
        """What a heartbeat needs; it starts the embedded server too, for its launch may be busy for long."""
        wire = Wire(self._url, patience, revive=self._revive_silently)
        return Leases(wire, self.namespace), RedisStore(wire, self.namespace)

    @staticmethod
    def _reviver(server: EmbeddedServer, durability: str, say: Callable[[str], None]) -> Callable[[float], None]:
        def revive(left: float) -> None:
            server.ensure_running(durability=durability, budget=min(START_BUDGET, left), patience=left, say=say)

        return revive
