"""A server in memory, with a separate clock, and connections over a network that loses and delays packets."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from pollconsumer.interface.testing.fake_store import FakeStore
from pollconsumer.interface.testing.fast_socket import as_bytes
from pollconsumer.store.connecting.connection import Command
from pollconsumer.store.connecting.replies import ErrorReply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from pollconsumer.interface.testing.simulation.process import Process
    from pollconsumer.interface.testing.simulation.world import Actor, World

BEGINS = 1_893_456_000.0
"""2030-01-01T00:00Z: the server's clock when true time is 0."""
LEAST_LEFT = 1e-5
"""Seconds that a difference of two times of day may be wrong by."""
TICK = 1e-7
"""Minimum seconds between the arrivals of consecutive packets."""


class SimulatedServer:
    """Runs one command at a time. ``ahead``: seconds by which its clock differs from true time."""

    def __init__(self, world: World, network: Network, scripts: Mapping[bytes, str]) -> None:
        """``scripts``: their names by digest, for the story."""
        self.world, self.network, self._scripts = world, network, scripts
        self.ahead = 0.0
        self.up = True
        self.refusing: str | None = None
        """The error reply to every script, such as ``OOM …``."""
        self.links: list[Link] = []
        self._clients = 0
        self._blocked: list[Link] = []
        self.store = FakeStore(self.clock)

    def clock(self) -> float:
        return BEGINS + self.world.now + self.ahead

    def now_ms(self) -> int:
        return int(self.clock() * 1000)

    def set_clock(self, by: float) -> None:
        """Forward or backward: keys and waits end by the time of day."""
        self.ahead += by
        for link in self._blocked:
            self._end_wait_in(0.0, link, link.blocked_on)

    def stop(self) -> None:
        """It is killed: connections and scripts are lost, acknowledged data are kept."""
        self.up = False
        self.store.forget_scripts()
        self._blocked.clear()
        for link in list(self.links):
            link.lose()

    def start(self) -> None:
        self.up = True

    def forget_scripts(self) -> None:
        self.store.forget_scripts()

    def accept(self, link: Link) -> None:
        self._clients += 1
        link.client = self._clients
        self.links.append(link)

    def receive(self, link: Link, command: Command) -> None:
        """A command arrives."""
        if link.open and self.up:
            link.waiting.append(command)
            self._go_on(link)

    def leave(self, link: Link) -> None:
        """The connection ends here: drop what it waits for; earlier commands were carried out."""
        link.open = False
        if link in self._blocked:
            self._blocked.remove(link)
        if link in self.links:
            self.links.remove(link)

    def named(self, commands: Sequence[Command]) -> str:
        return ", ".join(self._scripts[each[1]] if each[0] == "EVALSHA" else str(each[0]) for each in commands)

    def _execute(self, command: Command) -> Any:
        if self.refusing is not None and command[0] == "EVALSHA":
            return ErrorReply(self.refusing)
        return self.store.execute(command)

    def _go_on(self, link: Link) -> None:
        while link.waiting and link not in self._blocked:
            command = link.waiting.popleft()
            if command[0] == "BLPOP":
                keys = [as_bytes(key) for key in command[1:-1]]
                popped = self._pop(keys)
                if popped is None:
                    self._block(link, keys, float(command[-1]))
                else:
                    link.reply(popped)
            elif command[0] == "CLIENT":
                link.reply(self._execute_client(link, *command[1:]))
            else:
                link.reply(self._execute(command))
                if self._blocked:
                    self._serve_blocked()

    def _execute_client(self, link: Link, what: str, *filters: Any) -> int:
        if what == "ID":
            return link.client
        killed = [each for each in self.links if filters == ("ID", each.client)]
        for each in killed:
            each.lose()
        return len(killed)

    def _block(self, link: Link, keys: list[bytes], seconds: float) -> None:
        self._blocked.append(link)
        # A real server ends a wait up to a tenth of a second late.
        seconds += link.stream.uniform(0.0, 0.1)
        link.blocked_on, link.blocked_until = keys, self.clock() + seconds
        self._end_wait_in(seconds, link, keys)

    def _end_wait_in(self, seconds: float, link: Link, keys: Sequence[bytes]) -> None:
        self.world.after(seconds, lambda: self._end_wait(link, keys))

    def _end_wait(self, link: Link, keys: Sequence[bytes]) -> None:
        if link not in self._blocked or link.blocked_on is not keys:
            return
        left = link.blocked_until - self.clock()
        if left > LEAST_LEFT:
            self._end_wait_in(left, link, keys)
        else:
            self._blocked.remove(link)
            link.reply(None)
            self._go_on(link)

    def _serve_blocked(self) -> None:
        for link in list(self._blocked):
            popped = self._pop(link.blocked_on)
            if popped is not None:
                self._blocked.remove(link)
                link.reply(popped)
                self._go_on(link)

    def _pop(self, keys: Sequence[bytes]) -> list[bytes] | None:
        for key in keys:
            if self.store.holds(key):
                return [key, self.store.execute(("LPOP", key))]
        return None


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

    place = ""

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
            raise ConnectionRefusedError("connection refused")
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
            raise ConnectionResetError(self._lost)
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
            raise TimeoutError("timeout reading from socket")
        if self._replies:
            return self._replies.popleft()
        raise ConnectionResetError(self._lost)

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
