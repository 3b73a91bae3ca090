"""A primary, two replicas and three Sentinels: on loopback, or each pair of them on a host of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pollconsumer.runtime.embedded.start import find_program
from pollconsumer.store.client.address import address_of
from pollconsumer.store.client.connection import SocketConnection
from pollconsumer.store.client.replies import ErrorReply
from tests.failovers.address import Address
from tests.faults.proxy import Proxy
from tests.short_directory import short_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.network import Host

SERVICE = "mymaster"
PATIENCE = 60.0
DOWN_AFTER = 500
"""Milliseconds without an answer after which a Sentinel takes the primary for dead."""
QUICK = ("publish-period", 500, "info-period", 200, "ping-period", 250, "ask-period", 100)
"""Milliseconds, of what Sentinels do each second, or each few. A replica that has become a primary is turned back by
the others after four times the first, unless the one that promotes it has seen that within a second. None is
promoted that has said nothing of itself for five times the third, and they ask for that once a second then."""
LOST: tuple[type[Exception], ...] = (OSError, ErrorReply)


class Server:
    """A process, and the address where others reach it: its own, that of a proxy before its unix socket, or one of its
    ``host``, where its unix socket is for this process."""

    def __init__(
        self,
        directory: Path,
        options: dict[str, Any],
        login: str = "",
        *extra: str,
        proxied: bool = False,
        host: Host | None = None,
    ) -> None:
        self._directory, self._extra = directory, extra
        self.socket = directory / "s"
        self._enter = () if host is None else host.enter
        self.address = "127.0.0.1" if host is None else host.address
        self._options = {"bind": self.address, "dir": directory, **options}
        self._proxy = Proxy(self.socket) if proxied else None
        if self._proxy is not None:
            self.port = self._proxy.port
            self._options |= {"port": 0, "replica-announce-ip": self.address, "replica-announce-port": self.port}
        else:
            self.port = free_port()
            self._options |= {"port": self.port}
        if proxied or host is not None:
            self._options |= {"unixsocket": self.socket, "protected-mode": "no"}
            self._url = f"unix://{login}{self.socket}"
        else:
            self._url = f"redis://{login}{self.address}:{self.port}"
        self.start()

    @property
    def place(self) -> str:
        return f"{self.address}:{self.port}"

    def start(self) -> None:
        words = [str(word) for name, value in self._options.items() for word in (f"--{name}", *str(value).split())]
        words = [*self._enter, find_program(), *self._extra, *words]
        with (self._directory / "log").open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)

    def ask(self, *command: Any) -> Any:
        """The reply to one command; OSError or ErrorReply."""
        connection = SocketConnection(address_of(self._url))
        connection.connect(2.0)
        try:
            return connection.ask(command, 5.0)
        finally:
            connection.close()

    def info(self) -> dict[str, str]:
        lines = self.ask("INFO", "replication").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def is_primary(self) -> bool:
        return self.info()["role"] == "master"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def cut_off(self, cut_off: bool) -> None:
        """Whether nobody reaches it. It must be ``proxied``."""
        assert self._proxy is not None
        self._proxy.silent = cut_off

    def close(self) -> None:
        """Once it is killed."""
        if self._proxy is not None:
            self._proxy.close()


class Trio:
    """``password`` is that of the servers, ``sentinel_password`` that of the Sentinels; ``proxied``: all reach a server
    through its proxy. ``hosts``: three, for a server and a Sentinel each. ``options``: further ones of the servers.
    Not ``watched``: without Sentinels, at an address that leads to the primary."""

    def __init__(
        self,
        *,
        password: str = "",
        sentinel_password: str = "",
        proxied: bool = False,
        hosts: Sequence[Host | None] = (None, None, None),
        options: dict[str, Any] | None = None,
        watched: bool = True,
    ) -> None:
        self.directory = short_directory()
        login = f":{password}@" if password else ""
        common: dict[str, Any] = {
            "save": "''",
            "appendonly": "yes",
            "repl-diskless-sync-delay": 0,
            "repl-ping-replica-period": 1,
            **({"requirepass": password, "masterauth": password} if password else {}),
            **(options or {}),
        }
        self.servers: list[Server] = []
        self.sentinels: list[Server] = []
        self._address: Address | None = None
        try:
            for at, host in enumerate(hosts):
                first = self.servers[0] if at else None
                follows = {} if first is None else {"replicaof": f"{first.address} {first.port}"}
                directory = self._directory(f"server{at}")
                self.servers.append(Server(directory, common | follows, login, proxied=proxied, host=host))
            await_true(lambda: _replicas_online(self.servers[0]) == 2)
            for at, host in enumerate(hosts if watched else ()):
                self.sentinels.append(self._sentinel(at, password, sentinel_password, host))
            self.await_ready()
            if not watched:
                self._address = Address(self.servers)
        except BaseException:
            self.close()
            raise
        asked = f"?sentinel_password={sentinel_password}" if sentinel_password else ""
        self.url = (
            f"redis+sentinel://{login}{','.join(each.place for each in self.sentinels)}/{SERVICE}{asked}"
            if self._address is None
            else f"redis://{login}{self._address.place}/0"
        )

    def _directory(self, name: str) -> Path:
        directory = self.directory / name
        directory.mkdir()
        return directory

    def _sentinel(self, at: int, password: str, own: str, host: Host | None) -> Server:
        directory, first = self._directory(f"sentinel{at}"), self.servers[0]
        lines = [
            f"sentinel monitor {SERVICE} {first.address} {first.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}",
            f"sentinel failover-timeout {SERVICE} 3000",
            f"sentinel parallel-syncs {SERVICE} 2",
        ]
        lines += [f"sentinel auth-pass {SERVICE} {password}"] if password else []
        lines += [f"requirepass {own}", f"sentinel sentinel-pass {own}"] if own else []
        path = directory / "sentinel.conf"
        path.write_text("\n".join([*lines, ""]))
        sentinel = Server(directory, {}, f":{own}@" if own else "", str(path), "--sentinel", host=host)
        await_true(lambda: sentinel.ask("SENTINEL", "DEBUG", *QUICK) == b"OK")
        return sentinel

    def await_ready(self) -> None:
        """Until all are of one mind: a primary with two replicas, and Sentinels that know them and each other."""
        await_true(lambda: _replicas_online(self.primary()) == 2)
        for sentinel in self.sentinels:
            await_true(lambda sentinel=sentinel: _knows_all(sentinel, self.primary()))  # type: ignore[misc]

    def primary(self) -> Server:
        """That which most Sentinels name; without Sentinels, that which says so. ConnectionError while there is
        none."""
        named = Counter[str]()
        for sentinel in self.sentinels:
            with suppress(*LOST):
                named[_primary_of(sentinel)] += 1
        most = [place for place, _ in named.most_common(1)]
        for each in self.servers:
            if each.place in most or (not self.sentinels and each.is_primary()):
                return each
        raise ConnectionError("there is no primary")

    def in_step(self) -> bool:
        """Whether both replicas have all that was written."""
        info = self.primary().info()
        replicas = [value for name, value in info.items() if name.startswith("slave")]
        return sum(f"offset={info['master_repl_offset']}," in each for each in replicas) == 2

    def fail_over(self, *how: str) -> Server:
        """Have a replica promoted. Returns the new primary."""
        before, first = self.primary(), self.sentinels[0]

        def done() -> bool:
            if _primary_of(first) == before.place:  # again, if the last one was given up
                first.ask("SENTINEL", "FAILOVER", SERVICE, *how)
            return all(_primary_of(each) != before.place for each in self.sentinels)

        await_true(done)
        await_true(lambda: self.primary().is_primary())
        return self.primary()

    def close(self, *, keep: bool = False) -> None:
        """End everything; ``keep`` the directory, with logs."""
        processes = (*self.servers, *self.sentinels)
        for each in processes:
            each.kill()  # all of them, before a proxy that they would connect to again is closed
        if self._address is not None:
            self._address.close()
        for each in processes:
            each.close()
        if not keep:
            shutil.rmtree(self.directory)


def _replicas_online(primary: Server) -> int:
    return sum("state=online" in value for name, value in primary.info().items() if name.startswith("slave"))


def _primary_of(sentinel: Server) -> str:
    host, port = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
    return f"{host.decode()}:{port.decode()}"


def _knows_all(sentinel: Server, primary: Server) -> bool:
    found = sentinel.ask("SENTINEL", "MASTER", SERVICE)
    master = dict(zip(found[::2], found[1::2], strict=True))
    replicas = [dict(zip(each[::2], each[1::2], strict=True)) for each in sentinel.ask("SENTINEL", "REPLICAS", SERVICE)]
    return (
        _primary_of(sentinel) == primary.place
        and master[b"flags"] == b"master"
        and int(master[b"num-other-sentinels"]) == 2
        and len(replicas) == 2
        and all(each[b"flags"] == b"slave" and each[b"master-link-status"] == b"ok" for each in replicas)
    )


def free_port() -> int:
    """Of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_true(holds: Callable[[], bool], within: float = PATIENCE) -> None:
    """A server that does not answer yet counts as false."""
    until = time.monotonic() + within
    while True:
        with suppress(*LOST):
            if holds():
                return
        assert time.monotonic() < until, "the servers did not come to it in time"
        time.sleep(0.02)
