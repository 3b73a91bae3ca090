"""A server and its replica, on unix sockets."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from pollconsumer.runtime.embedded.start import find_program
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Strict, Wire
from pollconsumer.store.queues.producer import StrictProducer
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.suitability import Suitability
from tests.conftest import NAMESPACE
from tests.short_directory import short_directory
from tests.store.test_suitability import Memo
from tests.store.test_wire import Tries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pollconsumer.store.client.patience import Patience

PATIENCE = 30.0
SHORT = Strict(None, 0.05)
"""For a replica that is stopped. One that runs may take longer on a busy machine."""
Servers = tuple["Path", int, list[subprocess.Popen[bytes]]]
"""Their directory, the port of the primary, and both."""


class Pair:
    """A primary and its replica, each on a unix socket; the replica reaches the primary at a port of loopback."""

    def __init__(self, directory: Path, port: int, processes: list[subprocess.Popen[bytes]]) -> None:
        self.directory, self._port, self._processes = directory, port, processes
        self._wires: list[Wire] = []

    def url(self, which: str = "primary") -> str:
        return f"unix://{self.directory / which}"

    def wire(
        self,
        url: str | None = None,
        *,
        greeted: bool = True,
        strict: Strict | None = None,
        patience: Callable[[], Patience] = lambda: Budget(PATIENCE),
    ) -> Wire:
        aof = strict is not None and strict.aof
        greet = Suitability(NAMESPACE, Memo(), lambda _: None, aof=aof) if greeted else None
        wire = Wire(url or self.url(), patience, greet=greet, strict=strict)
        self._wires.append(wire)
        return wire

    def launch(self, strict: Strict, tries: int = 1_000_000) -> RedisStore:
        """A launch's store, with patience for so many tries of each call."""
        return RedisStore(self.wire(strict=strict, patience=lambda: Tries(tries)), NAMESPACE)

    def store(self, replicas: int | None = None, within: float = 10.0) -> StrictProducer:
        return StrictProducer(self.wire(), NAMESPACE, Strict(replicas, within))

    @contextmanager
    def replica_stopped(self, *wires: Wire, tries: int = 1) -> Iterator[None]:
        """Meanwhile each of ``wires`` has patience for so many tries of each call, and waits for the replica no longer
        than `SHORT`."""
        usual = [(each.patience, each.strict) for each in wires]
        self._processes[1].send_signal(signal.SIGSTOP)
        for wire in wires:
            wire.patience, wire.strict = partial(Tries, tries), SHORT
        try:
            yield
        finally:
            self._processes[1].send_signal(signal.SIGCONT)
            for wire, (patience, strict) in zip(wires, usual, strict=True):
                wire.patience, wire.strict = patience, strict

    def connect(self) -> None:
        """Until the replica follows."""
        self.wire(self.url("replica"), greeted=False).command("REPLICAOF", "127.0.0.1", self._port)
        primary = self.wire(greeted=False)
        until = time.monotonic() + PATIENCE
        while b"state=online" not in primary.command("INFO", "replication"):
            assert time.monotonic() < until
            time.sleep(0.01)

    def close(self) -> None:
        for wire in self._wires:
            wire.close()


@contextmanager
def started() -> Iterator[Servers]:
    directory = short_directory()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for name, listens in (("primary", port), ("replica", 0)):
        options = ["--port", str(listens), "--bind", "127.0.0.1", "--unixsocket", str(directory / name), "--save", ""]
        options += ["--dir", str(directory), "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]
        options += ["--dbfilename", f"{name}.rdb"]
        processes.append(subprocess.Popen([find_program(), *options], stdout=subprocess.DEVNULL))
    try:
        yield directory, port, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
        shutil.rmtree(directory)
