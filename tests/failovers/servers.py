"""A primary, two replicas and three Sentinels, on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pollconsumer.runtime.embedded.start import find_program
from pollconsumer.store.address import address_of
from pollconsumer.store.connection import SocketConnection
from pollconsumer.store.replies import ErrorReply
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
    """A process, and the port where it listens. ``asked`` is on a port of its own if a proxy stands before it."""

    def __init__(self, directory: Path, port: int, options: dict[str, Any], login: str = "", *extra: str) -> None:
        self.port, self._directory, self._options, self._login = port, directory, options, login
        self._extra = extra
        self.start()

    def start(self) -> None:
        given = {"port": self.port, "bind": "127.0.0.1", "dir": self._directory, **self._options}
        words = [str(word) for name, value in given.items() for word in (f"--{name}", *str(value).split())]
        with (self._directory / "log").open("ab") as log:
            self.process = subprocess.Popen([find_program(), *self._extra, *words], stdout=log, stderr=log)

    def ask(self, *command: Any) -> Any:
        """The reply to one command; OSError or ErrorReply."""
        connection = SocketConnection(address_of(f"redis://{self._login}127.0.0.1:{self.port}"))
        connection.connect(2.0)
        try:
            return connection.ask(command, 5.0)
        finally:
            connection.close()

    def info(self, section: str = "replication") -> dict[str, str]:
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGCONT)
        self.process.kill()
        self.process.wait()


class Trio:
    """``password`` is that of the servers, ``sentinel_password`` that of the Sentinels."""

    def __init__(
        self, *, password: str = "", sentinel_password: str = "", options: dict[str, Any] | None = None
    ) -> None:
        self.directory = short_directory()
        ports = free_ports(6)
        login = f":{password}@" if password else ""
        common: dict[str, Any] = {
            "save": "''",
            "appendonly": "yes",
            "repl-diskless-sync-delay": 0,
            "repl-ping-replica-period": 1,
            **({"requirepass": password, "masterauth": password} if password else {}),
            **(options or {}),
        }
        self.servers = [
            Server(
                self._directory(f"server{at}"),
                port,
                common | ({"replicaof": f"127.0.0.1 {ports[0]}"} if at else {}),
                login,
            )
            for at, port in enumerate(ports[:3])
        ]
        await_true(lambda: self.replicas_online(ports[0]) == 2)
        self.sentinels = [
            self._sentinel(at, port, ports[0], password, sentinel_password) for at, port in enumerate(ports[3:])
        ]
        self.await_ready()
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        asked = f"?sentinel_password={sentinel_password}" if sentinel_password else ""
        self.url = f"redis+sentinel://{login}{hosts}/{SERVICE}{asked}"

    def _directory(self, name: str) -> Path:
        directory = self.directory / name
        directory.mkdir()
        return directory

    def _sentinel(self, at: int, port: int, primary: int, password: str, own: str) -> Server:
        directory = self._directory(f"sentinel{at}")
        lines = [
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}",
            f"sentinel failover-timeout {SERVICE} 3000",
            f"sentinel parallel-syncs {SERVICE} 2",
        ]
        lines += [f"sentinel auth-pass {SERVICE} {password}"] if password else []
        lines += [f"requirepass {own}", f"sentinel sentinel-pass {own}"] if own else []
        path = directory / "sentinel.conf"
        path.write_text("\n".join([*lines, ""]))
        sentinel = Server(directory, port, {}, f":{own}@" if own else "", str(path), "--sentinel")
        await_true(lambda: sentinel.ask("SENTINEL", "DEBUG", *QUICK) == b"OK")
        return sentinel

    def await_ready(self) -> None:
        """Until all are of one mind: a primary with two replicas, and Sentinels that know them and each other."""
        await_true(lambda: self.replicas_online(self.primary().port) == 2)
        for sentinel in self.sentinels:
            await_true(lambda sentinel=sentinel: _knows_all(sentinel, self.primary().port))  # type: ignore[misc]

    def primary(self) -> Server:
        """That of the first Sentinel that answers."""
        for sentinel in getattr(self, "sentinels", ()):
            with suppress(*LOST):
                port = int(sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])
                return next(each for each in self.servers if each.port == port)
        return self.servers[0]

    def replicas(self) -> list[Server]:
        return [each for each in self.servers if each is not self.primary()]

    def replicas_online(self, port: int) -> int:
        server = next(each for each in self.servers if each.port == port)
        return sum("state=online" in value for name, value in server.info().items() if name.startswith("slave"))

    def fail_over(self) -> Server:
        """Have a replica promoted. Returns the new primary."""
        before = self.primary()
        await_true(lambda: self.sentinels[0].ask("SENTINEL", "FAILOVER", SERVICE) == b"OK")
        await_true(lambda: all(_primary_of(each) != before.port for each in self.sentinels))
        await_true(lambda: self.primary().info()["role"] == "master")
        return self.primary()

    def close(self) -> None:
        for each in (*self.servers, *self.sentinels):
            each.kill()
        shutil.rmtree(self.directory)


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


def free_ports(count: int) -> list[int]:
    """Of loopback. All are bound before any is let go, so that they differ."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def await_true(holds: Callable[[], bool], within: float = PATIENCE) -> None:
    """A server that does not answer yet counts as false."""
    until = time.monotonic() + within
    while True:
        with suppress(*LOST):
            if holds():
                return
        assert time.monotonic() < until, "the servers did not come to it in time"
        time.sleep(0.02)
