"""A cluster on loopback: primaries, each with a replica or without one."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.runtime.embedded.start import find_program
from pollconsumer.store.client.cluster_wire import SLOTS
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.client.wire import Wire
from tests.short_directory import short_directory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE = 60.0
NODE_TIMEOUT = 1500
"""Milliseconds without an answer after which the nodes take one for dead."""


class NodeProcess:
    """A server of the cluster, on a port of its own; its bus is 10,000 above."""

    def __init__(self, directory: Path, port: int, *options: str) -> None:
        self.port, self._directory, self._options = port, directory / str(port), options
        self._directory.mkdir()
        self.start()

    def start(self) -> None:
        given = [
            "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory), "--save", "",
            "--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT),
            "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
            "--cluster-allow-replica-migration", "no", *self._options,
        ]  # fmt: skip
        with (self._directory / "log").open("ab") as log:
            self.process = subprocess.Popen([find_program(), *given], stdout=log, stderr=log)

    def ask(self, *command: Any) -> Any:
        """The node's answer to a command. PollConsumerError if it does not answer, or answers with an error."""
        wire = Wire(f"redis://127.0.0.1:{self.port}", lambda: Budget(5))
        try:
            return wire.command(*command)
        finally:
            wire.close()

    @property
    def id(self) -> str:
        answer: bytes = self.ask("CLUSTER", "MYID")
        return answer.decode()

    def is_primary(self) -> bool:
        with suppress(PollConsumerError):
            return bool(self.ask("ROLE")[0] == b"master")
        return False

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGCONT)
        self.process.kill()
        self.process.wait()


class Cluster:
    def __init__(self, primaries: int = 3, replicas: int = 0, *options: str) -> None:
        """``replicas`` of each primary; ``options`` of every server."""
        self.directory = short_directory()
        nodes = [NodeProcess(self.directory, port, *options) for port in free_ports(primaries * (1 + replicas))]
        self.nodes = nodes
        for node in nodes:
            until(lambda node=node: _answers(node))  # type: ignore[misc]
            nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port)
        for number, node in enumerate(nodes[:primaries]):
            first, end = (SLOTS * at // primaries for at in (number, number + 1))
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        for number, node in enumerate(nodes[primaries:]):
            primary = nodes[number % primaries]
            until(lambda node=node, primary=primary: _knows(node, primary.id))  # type: ignore[misc]
            node.ask("CLUSTER", "REPLICATE", primary.id)
        self._of_each = primaries, replicas
        self._await_complete()

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:2])

    def owner(self, slot: int) -> NodeProcess:
        """The primary that says so itself."""
        for node in self.primaries():
            for first, last, (_, port, *_), *_ in node.ask("CLUSTER", "SLOTS"):
                if first <= slot <= last and port == node.port:
                    return node
        raise LookupError(slot)

    def move(self, slot: int, target: NodeProcess) -> None:
        """As resharding tools do: key by key, while clients go on."""
        source = self.owner(slot)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 10):
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for node in (target, source, *self.primaries()):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)

    def fail_over(self, primary: NodeProcess, *, freeze: bool = False) -> None:
        """Kill or stop it, and let it go on once its replica has taken its place."""
        others = [node for node in self.primaries() if node is not primary]
        if freeze:
            primary.process.send_signal(signal.SIGSTOP)
        else:
            primary.kill()
        until(lambda: any(node.is_primary() for node in self.nodes if node is not primary and node not in others))
        if freeze:
            primary.process.send_signal(signal.SIGCONT)
        else:
            primary.start()
        until(lambda: _answers(primary) and not primary.is_primary() and _is_linked(primary))

    def restart(self, primary: NodeProcess, after: float) -> None:
        """Kill a primary without replicas, and start it again with its file ``after`` so many seconds."""
        primary.kill()
        time.sleep(after)
        primary.start()
        self._await_complete()

    def _await_complete(self) -> None:
        until(lambda: all(_is_complete(node, *self._of_each) for node in self.nodes))

    def primaries(self) -> list[NodeProcess]:
        return [node for node in self.nodes if node.process.poll() is None and node.is_primary()]

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.directory)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the cluster is not ready"
        time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    """Of the ports whose bus has one, too."""
    found: list[int] = []
    for port in range(17000 + os.getpid() % 4000, 29000):
        with socket.socket() as node, socket.socket() as bus, suppress(OSError):
            node.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + 10_000))
            found.append(port)
        if len(found) == count:
            break
    return found


def _answers(node: NodeProcess) -> bool:
    with suppress(PollConsumerError, Unanswered):
        return bool(node.ask("PING"))
    return False


def _knows(node: NodeProcess, name: str) -> bool:
    return name.encode() in node.ask("CLUSTER", "NODES")


def _is_complete(node: NodeProcess, primaries: int, replicas: int) -> bool:
    ranges = node.ask("CLUSTER", "SLOTS")
    linked = node.is_primary() or _is_linked(node)
    return (
        b"cluster_state:ok" in node.ask("CLUSTER", "INFO")
        and len(ranges) == primaries
        and all(len(each) == 3 + replicas for each in ranges)
        and linked
    )


def _is_linked(node: NodeProcess) -> bool:
    return b"master_link_status:up" in node.ask("INFO", "replication")
