"""Opening the store that the settings name: the embedded server, or one of the user's."""

from __future__ import annotations

import hashlib
import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pollconsumer.runtime.embedded import EmbeddedServer, data_directory
from pollconsumer.store.leases import Leases
from pollconsumer.store.redis_store import RedisStore
from pollconsumer.store.suitability import Suitability
from pollconsumer.store.wire import Patience, Wire

if TYPE_CHECKING:
    from collections.abc import Callable

EMBEDDED = "embedded"
START_BUDGET = 10.0
"""Seconds in which the embedded server must have started."""


class StoreMemo:
    """The id of a store, in a file of the user's state directory: away from the data that it vouches for."""

    def __init__(self, address: str, namespace: str) -> None:
        name = hashlib.sha256(f"{address}\n{namespace}".encode()).hexdigest()[:32]
        self.path = state_directory() / "stores" / name

    def read(self) -> str | None:
        try:
            return self.path.read_text("ascii").strip() or None
        except (OSError, ValueError):
            return None

    def write(self, store_id: str) -> None:
        """Where nothing can be written, as in a container, every start is the first."""
        with suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            unfinished = self.path.with_suffix(f".{os.getpid()}")
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(store_id + "\n")
            unfinished.replace(self.path)

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)


class StoreOpener:
    """Makes connections to one store. An embedded server is started by the first call that needs it."""

    def __init__(self, store: str, namespace: str, durability: str, warn: Callable[[str], None]) -> None:
        self._revive: Callable[[float], None] | None = None
        self._url = store
        address = store
        if store == EMBEDDED:
            server = EmbeddedServer(data_directory())
            self._url, address = server.url, str(server.directory)
            self._revive = lambda left: server.ensure_running(durability=durability, budget=min(START_BUDGET, left))
        self.namespace = namespace
        self.memo = StoreMemo(address, namespace)
        self._greet = Suitability(namespace, self.memo, warn)

    def wire(self, patience: Callable[[], Patience]) -> Wire:
        """A connection that looks at the server before it is used."""
        return Wire(self._url, patience, revive=self._revive, greet=self._greet)

    def bare_wire(self, patience: Callable[[], Patience]) -> Wire:
        """A connection beside one that has looked already, and that starts no server."""
        return Wire(self._url, patience)

    def for_heartbeat(self, patience: Callable[[], Patience]) -> tuple[Leases, RedisStore]:
        """What a heartbeat needs; it starts the embedded server too, for its launch may be busy for long."""
        wire = Wire(self._url, patience, revive=self._revive)
        return Leases(wire, self.namespace), RedisStore(wire, self.namespace)


def state_directory() -> Path:
    """``$XDG_STATE_HOME/pollconsumer``, else ``~/.local/state/pollconsumer``; not created, not checked."""
    base = os.environ.get("XDG_STATE_HOME")
    if base and Path(base).is_absolute():
        return Path(base) / "pollconsumer"
    home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    return Path(home) / ".local" / "state" / "pollconsumer"
