"""Connections to a simulated server, over a network that loses and delays packets."""

from __future__ import annotations

from collections import deque
from errno import ECONNREFUSED, ECONNRESET, ETIMEDOUT
from typing import TYPE_CHECKING, Any

from pollconsumer.store.client.connection import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from tests.simulation.hosts.process import Process
    from tests.simulation.hosts.server import SimulatedServer
    from tests.simulation.hosts.world import Actor

TICK = 1e-7
"""Minimum seconds between the arrivals of consecutive packets."""


class Network:
    """Latencies and faults: the probabilities of losing or delaying what is sent in one write."""

    LATEST = 40.0
    """Maximum latency of a late packet in seconds, longer than a lease lasts."""

    def __init__(self) -> None:
        self.request_lost = self.reply_lost = self.late = 0.0

    def latency(self, stream: Random) -> float:
        """Seconds."""
        return stream.uniform(0.00005, 0.0005)

    def lateness(self, stream: Random) -> float:
        """Further seconds that a request takes, mostly none."""
        return stream.uniform(0.5, self.LATEST) if stream.random() < self.late else 0.0


class Link:
    """A connection of a simulated process.

    ``open`` is the server's view: what a client sent before it hung up still arrives, however late.
    """

    location = ""

    def __init__(self, server: SimulatedServer, process: Process) -> None:
        self.server, self.world, self._process = server, server.world, process
        self.stream = process.stream
        self.open = False
        self.client = 0
        """Its id on the server."""
        self.waiting: deque[Command] = deque()
        self.blocked_on: Sequence[bytes] = ()
        self.blocked_until = 0.0
        """By the server's clock."""
        self._replies: deque[Any] = deque()
        self._lost: str | None = None
        self._owed = 0
        """Replies that have not arrived yet."""
        self._reader: Actor | None = None
        self._reads = False
        """Its reader reads all replies, and does not only wait for the first one."""
        self.owner = self.world.running
        self._arrives = self._answers = 0.0

    def fileno(self) -> int:
        return self.client

    def connect(self, timeout: float) -> None:  # noqa: ARG002  the protocol has it
        self._process.sleep(self.server.network.latency(self.stream) * 2)
        if not self.server.up:
            raise ConnectionRefusedError(ECONNREFUSED, "connection refused")
        self.open = True
        self._process.links.append(self)
        self.server.accept(self)

    def close(self) -> None:
        if self in self._process.links:
            self._process.links.remove(self)
        if self._lost is None:
            self._lost = "closed"
            arrives = max(self._arrives + TICK, self.world.now + self.server.network.latency(self.stream))
            self.world.at(arrives, lambda: self.server.leave(self))

    def send(self, commands: Sequence[Command]) -> None:
        if self._lost is not None:
            raise ConnectionResetError(ECONNRESET, self._lost)
        network, world = self.server.network, self.world
        fate = self.stream.random()
        if fate < network.request_lost:
            world.tell(f"{self._process.name}: request lost: {self.server.named(commands)}")
            self.lose()
            return
        cut = fate < network.request_lost + network.reply_lost
        if cut:
            commands = commands[: self.stream.randrange(len(commands)) + 1]
        if late := network.lateness(self.stream):
            world.tell(f"{self._process.name}: late by {late:.1f} s: {self.server.named(commands)}")
        at = max(self._arrives, world.now + network.latency(self.stream) + late)
        self._owed += len(commands)
        for command in commands:
            at += self.stream.uniform(TICK, 0.00002)
            world.at(at, self._arrival(command))
        self._arrives = at
        if cut:
            world.at(at + TICK / 2, self._cut(commands))

    def read(self, timeout: float) -> Any:
        self._reads = True
        readable = self.readable(timeout)
        self._reads = False
        if not readable:
            raise TimeoutError(ETIMEDOUT, "timeout reading from socket")
        if self._replies:
            return self._replies.popleft()
        raise ConnectionResetError(ECONNRESET, self._lost)

    def readable(self, timeout: float) -> bool:
        """True for a lost connection, too: reading raises."""
        machine = self._process.machine
        until = machine.awake() + timeout
        while not self._replies and self._lost is None:
            left = until - machine.awake()
            if left <= 0:
                return False
            self._reader = self.world.running
            self._process.pause(max(left, TICK))
            self._reader = None
        return True

    def watched_by(self, reader: Actor | None) -> bool:
        """Whether it is readable now; else the reader is woken when it is, once."""
        self._reader = reader
        return bool(self._replies) or self._lost is not None

    def reply(self, answer: Any) -> None:
        self._answers = max(self._answers + TICK, self.world.now + self.server.network.latency(self.stream))
        self.world.at(self._answers, lambda: self._receive(answer))

    def lose(self) -> None:
        """Break it for both ends."""
        self._lost = "connection reset"
        self.server.leave(self)
        self._wake()

    def _receive(self, answer: Any) -> None:
        if self._lost is None:
            self._replies.append(answer)
            self._owed -= 1
            if self._reader is not None and not (self._reads and self._owed):
                self._reader.go_on()

    def _arrival(self, command: Command) -> Callable[[], None]:
        return lambda: self.server.receive(self, command)

    def _cut(self, commands: Sequence[Command]) -> Callable[[], None]:
        def cut() -> None:
            self.world.tell(f"{self._process.name}: reply lost: {self.server.named(commands)}")
            self._replies.clear()
            self.lose()

        return cut

    def _wake(self) -> None:
        if self._reader is not None:
            self._reader.wake()
            self._reader = None
