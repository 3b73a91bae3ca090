"""Opens the store that the settings name: the embedded server, or a Redis of the user's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import CannotCreate
from pollconsumer.core.notation.digests import sha256
from pollconsumer.core.users_code import lazy
from pollconsumer.runtime.system.own_files import OwnFiles
from pollconsumer.store.client.address import ClusterAddress, CredentialProvider, url_warnings
from pollconsumer.store.client.patience import Patience
from pollconsumer.store.client.wire import ByPeople, Strict, Wire
from pollconsumer.store.leases import Leases
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.scripts import Scripts
from pollconsumer.store.suitability import Rollback, Suitability, count_replicas

if TYPE_CHECKING:
    from pollconsumer.runtime.embedded.server import EmbeddedServer
    from pollconsumer.store.user_client import SuppliedClient

START_BUDGET = 10.0
"""Seconds that starting the embedded server may take."""


class StoreMemo:
    """Keeps a store's id and its watermarks in files outside the store, to notice another store or an older copy."""

    def __init__(self, address: Callable[[], str], namespace: str, files: OwnFiles) -> None:
        """``address`` returns a text that identifies the store among others. It is called when first needed."""
        self._address, self._namespace, self._files = address, namespace, files

    @lazy
    def _digest(self) -> str:
        return sha256(f"{self._address()}\n{self._namespace}".encode())[:32]

    def read(self) -> str | None:
        try:
            return (self._files.read(f"stores/{self._digest}") or b"").decode("ascii").removesuffix("\n") or None
        except ValueError:
            return None

    def write(self, store_id: str) -> None:
        """Write the id to its file. If no file is writable, as in a container, `read` finds none at the next start."""
        self._files.write(f"stores/{self._digest}", f"{store_id}\n".encode())

    def forget(self) -> None:
        """Remove the files with the store's id and watermarks. CannotCreate if one cannot be removed."""
        for name in (f"stores/{self._digest}", f"marks/{self._digest}"):
            self._files.remove(name)
            if self._files.read(name) is not None:
                raise CannotCreate("cannot forget the store", name, "make its directory writable")

    def read_watermarks(self) -> str:
        return (self._files.read(f"marks/{self._digest}") or b"").decode("utf-8", "replace").strip()

    def write_watermarks(self, text: str) -> None:
        self._files.write(f"marks/{self._digest}", f"{text}\n".encode())


class StoreOpener:
    """Makes connections to one store, and starts an embedded server when it is first needed."""

    def __init__(
        self,
        store: str | EmbeddedServer | Callable[[], SuppliedClient],
        namespace: str,
        warn: Callable[[str], None],
        files: OwnFiles,
        strict: Strict | None = None,
        *,
        log: Callable[[str], None] | None = None,
        refuse_rollback: bool = False,
        credentials: Callable[[], CredentialProvider] | None = None,
    ) -> None:
        """``store``: a URL; or the embedded server, started if it does not run; or a function that returns the user's
        own client, called once in each process that connects. ``files`` keep the store's id between processes.
        ``strict``: the replicas and files for which a write waits. ``log`` is called instead of ``warn`` if the store
        was rolled back; with ``refuse_rollback`` an error is raised then. ``credentials`` returns a login provider."""
        self._url, self._credentials = "", credentials
        self._client: Callable[[], SuppliedClient] | None = None
        self._revive: Callable[[float], None] | None = None
        self._revive_silently: Callable[[float], None] | None = None
        self._scripts = Scripts()
        self.namespace = namespace
        if isinstance(store, str):
            self._url = address = store
            if not store.startswith("unix:"):
                for warning in url_warnings(store, logs_in=credentials is not None):
                    warn(warning)
        elif callable(store):
            self._client, address = store, ""
        else:
            self._url, address = store.url, str(store.directory)
            self._revive, self._revive_silently = partial(_revive, store, warn), partial(_revive, store, lambda _: None)
        self.memo = StoreMemo(lambda: address or self._supplied.address, namespace, files)
        self._strict, self._refuse_rollback = strict, refuse_rollback
        self.rollback = Rollback(
            namespace, self.memo, log or warn, refuse=refuse_rollback, confirmed=strict is not None
        )
        self._greet = Suitability(
            namespace, self.memo, warn, aof=strict is not None and strict.aof, rollback=self.rollback
        )

    @lazy
    def _supplied(self) -> SuppliedClient:
        """The user's client. A launch calls this only once its watchdog is set, since it runs the user's code."""
        assert self._client is not None
        return self._client()

    def wire(self, patience: Callable[[], Patience]) -> Wire:
        """A connection that checks the server before its first use."""
        return self._connection(patience, revive=self._revive, greet=self._greet)

    def persons_wire(self, patience: Callable[[], Patience]) -> Wire:
        """Like `wire`, for commands that people give. If the settings require replicas, a change by a script raises an
        error when too few replicas confirm it."""
        strict = self._strict and ByPeople(*self._strict)
        return self._connection(patience, revive=self._revive, greet=self._greet, strict=strict)

    def keeper_wire(self, patience: Callable[[], Patience]) -> Wire:
        """Like `persons_wire`, for moving a store: it accepts a closed store, and another one than before. It waits for
        replicas as long as ``patience`` lasts, since much is written at a time."""
        strict = self._strict and ByPeople(*self._strict)
        strict = strict and strict._replace(within=max(patience().left(), strict.within))
        return self._connection(patience, revive=self._revive, greet=self._greet.check_server, strict=strict)

    def launch_wire(self, patience: Callable[[], Patience]) -> Wire:
        """Like `wire`, for launches. If the settings require replicas, a change by a script is repeated, like one
        without an answer, when too few replicas confirm it."""
        return self._connection(patience, revive=self._revive, greet=self._greet, strict=self._strict)

    def bare_wire(self, patience: Callable[[], Patience]) -> Wire:
        """An additional connection, which neither checks the server nor starts it."""
        return self._connection(patience)

    def _connection(
        self,
        patience: Callable[[], Patience],
        *,
        revive: Callable[[float], None] | None = None,
        greet: Callable[[Wire], int | None] | None = None,
        strict: Strict | None = None,
    ) -> Wire:
        options: dict[str, Any] = {"strict": strict}
        if self._client is None or not self._supplied.in_memory:  # no other process can reach a server in memory
            options |= {"greet": greet, "scripts": self._scripts}
        if revive is not None:
            options["revive"] = revive
        return self._connect(patience, **options)

    @lazy
    def _connect(self) -> Callable[..., Wire]:
        if self._client is not None:
            return self._supplied.connecting(self.namespace)
        credentials = None if self._credentials is None else self._credentials()
        if self._url.startswith("redis+cluster:"):
            from pollconsumer.store.client.cluster_wire import connecting_to  # few stores are clusters

            return connecting_to(ClusterAddress(self._url, credentials), self.namespace)
        return partial(Wire, self._url, credentials=credentials)

    def for_heartbeat(self, patience: Callable[[], Patience]) -> tuple[Leases, RedisStore, Wire]:
        """The heartbeat's connections to the store. The last is for blocking commands. The others also start the
        embedded server if it has died, since the launch may be busy in a handler for long."""
        greet = None if self._strict is None else count_replicas
        wire = self._connection(patience, revive=self._revive_silently, greet=greet, strict=self._strict)
        leases = Leases(wire, self.namespace, refuse_rollback=self._refuse_rollback)
        return leases, RedisStore(wire, self.namespace), self.bare_wire(patience)


def _revive(server: EmbeddedServer, log: Callable[[str], None], left: float) -> None:
    server.ensure_running(budget=min(START_BUDGET, left), patience=left, report=log)
