"""A primary, two replicas and three Sentinels, on loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pollconsumer.runtime.embedded.start import find_program
from pollconsumer.store.connecting.address import address_of
from pollconsumer.store.connecting.connection import SocketConnection
from pollconsumer.store.connecting.replies import ErrorReply
from tests.faults.proxy import Proxy
from tests.short_directory import short_directory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SERVICE = "mymaster"
PATIENCE = 60.0
DOWN_AFTER = 500
"""Milliseconds without an answer after which a Sentinel takes the primary for dead."""
QUICK = ("publish-period", 500, "info-period", 200, "ping-period", 100, "ask-period", 100)
"""Milliseconds, of what Sentinels do each second, or each few. A replica that has become a primary is turned back by
the others after four times the first, unless the one that promotes it has seen that within a second."""
LOST: tuple[type[Exception], ...] = (OSError, ErrorReply)


class Server:
    """A process, and the port where others reach it: its own, or that of a proxy before its unix socket."""

    def __init__(
        self, directory: Path, options: dict[str, Any], login: str = "", *extra: str, proxied: bool = False
    ) -> None:
        self._directory, self._extra = directory, extra
        self._options = {"bind": "127.0.0.1", "dir": directory, **options}
        self._proxy = Proxy(directory / "s") if proxied else None
        if self._proxy is None:
            self.port = free_port()
            self._options |= {"port": self.port}
            self._url = f"redis://{login}127.0.0.1:{self.port}"
        else:
            self.port = self._proxy.port
            self._options |= {"port": 0, "unixsocket": directory / "s"}
            self._options |= {"replica-announce-ip": "127.0.0.1", "replica-announce-port": self.port}
            self._url = f"unix://{login}{directory / 's'}"
        self.start()

    def start(self) -> None:
        words = [str(word) for name, value in self._options.items() for word in (f"--{name}", *str(value).split())]
        with (self._directory / "log").open("ab") as log:
            self.process = subprocess.Popen([find_program(), *self._extra, *words], stdout=log, stderr=log)

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

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def cut_off(self, cut_off: bool) -> None:
        """Whether nobody reaches it. It must be ``proxied``."""
        assert self._proxy is not None
        self._proxy.silent = cut_off

    def close(self) -> None:
        self.kill()
        if self._proxy is not None:
            self._proxy.close()


class Trio:
    """``password`` is that of the servers, ``sentinel_password`` that of the Sentinels; ``proxied``: all reach a server
    through its proxy."""

    def __init__(self, *, password: str = "", sentinel_password: str = "", proxied: bool = False) -> None:
        self.directory = short_directory()
        login = f":{password}@" if password else ""
        options: dict[str, Any] = {
            "save": "''",
            "appendonly": "yes",
            "repl-diskless-sync-delay": 0,
            "repl-ping-replica-period": 1,
            **({"requirepass": password, "masterauth": password} if password else {}),
        }
        self.servers: list[Server] = []
        self.sentinels: list[Server] = []
        try:
            for at in range(3):
                follows = {"replicaof": f"127.0.0.1 {self.servers[0].port}"} if at else {}
                self.servers.append(Server(self._directory(f"server{at}"), options | follows, login, proxied=proxied))
            await_true(lambda: _replicas_online(self.servers[0]) == 2)
            for at in range(3):
                self.sentinels.append(self._sentinel(at, password, sentinel_password))
            self.await_ready()
        except BaseException:
            self.close()
            raise
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        asked = f"?sentinel_password={sentinel_password}" if sentinel_password else ""
        self.url = f"redis+sentinel://{login}{hosts}/{SERVICE}{asked}"

    def _directory(self, name: str) -> Path:
        directory = self.directory / name
        directory.mkdir()
        return directory

    def _sentinel(self, at: int, password: str, own: str) -> Server:
        directory = self._directory(f"sentinel{at}")
        lines = [
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.servers[0].port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}",
            f"sentinel failover-timeout {SERVICE} 3000",
            f"sentinel parallel-syncs {SERVICE} 2",
        ]
        lines += [f"sentinel auth-pass {SERVICE} {password}"] if password else []
        lines += [f"requirepass {own}", f"sentinel sentinel-pass {own}"] if own else []
        path = directory / "sentinel.conf"
        path.write_text("\n".join([*lines, ""]))
        sentinel = Server(directory, {}, f":{own}@" if own else "", str(path), "--sentinel")
        await_true(lambda: sentinel.ask("SENTINEL", "DEBUG", *QUICK) == b"OK")
        return sentinel

    def await_ready(self) -> None:
        """Until all are of one mind: a primary with two replicas, and Sentinels that know them and each other."""
        await_true(lambda: _replicas_online(self.primary()) == 2)
        for sentinel in self.sentinels:
            await_true(lambda sentinel=sentinel: _knows_all(sentinel, self.primary().port))  # type: ignore[misc]

    def primary(self) -> Server:
        """That of the first Sentinel that answers."""
        for sentinel in self.sentinels:
            with suppress(*LOST):
                port = _primary_of(sentinel)
                return next(each for each in self.servers if each.port == port)
        raise ConnectionError("no Sentinel answers")

    def in_step(self) -> bool:
        """Whether both replicas have all that was written."""
        info = self.primary().info()
        replicas = [value for name, value in info.items() if name.startswith("slave")]
        return sum(f"offset={info['master_repl_offset']}," in each for each in replicas) == 2

    def fail_over(self) -> Server:
        """Have a replica promoted. Returns the new primary."""
        before = self.primary()
        await_true(lambda: self.sentinels[0].ask("SENTINEL", "FAILOVER", SERVICE) == b"OK")
        await_true(lambda: all(_primary_of(each) != before.port for each in self.sentinels))
        await_true(lambda: self.primary().info()["role"] == "master")
        return self.primary()

    def close(self) -> None:
        for each in (*self.servers, *self.sentinels):
            each.close()
        shutil.rmtree(self.directory)


def _replicas_online(primary: Server) -> int:
    return sum("state=online" in value for name, value in primary.info().items() if name.startswith("slave"))


def _primary_of(sentinel: Server) -> int:
    return int(sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])


def _knows_all(sentinel: Server, primary: int) -> bool:
    found = sentinel.ask("SENTINEL", "MASTER", SERVICE)
    master = dict(zip(found[::2], found[1::2], strict=True))
    replicas = [dict(zip(each[::2], each[1::2], strict=True)) for each in sentinel.ask("SENTINEL", "REPLICAS", SERVICE)]
    return (
        int(master[b"port"]) == primary
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
