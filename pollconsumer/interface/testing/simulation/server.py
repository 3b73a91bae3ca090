"""A server in memory, with a separate clock, and connections over a network that loses and delays packets."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from pollconsumer.interface.testing.fake_store import FakeStore, as_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pollconsumer.interface.testing.simulation.process import Process
    from pollconsumer.interface.testing.simulation.world import Actor, World

Command = tuple[Any, ...]
BEGINS = 1_893_456_000.0
"""2030-01-01T00:00Z: the server's clock when true time is 0."""
TICK = 1e-7
"""Minimum seconds between the arrivals of consecutive packets."""


class SimulatedServer:
    """Runs one command at a time. ``ahead``: seconds by which its clock differs from true time."""

    def __init__(self, world: World, network: Network) -> None:
        self.world, self.network = world, network
        self.ahead = 0.0
        self.up = True
        self.refusing: str | None = None
        """The error reply to every script, such as ``OOM …``."""
        self.links: list[Link] = []
        self._blocked: list[Link] = []
        self.store = FakeStore(self.clock)

    def clock(self) -> float:
        return BEGINS + self.world.now + self.ahead

    def now_ms(self) -> int:
        return int(self.clock() * 1000)

    def stop(self) -> None:
        """Restart after a kill: every connection is lost, acknowledged data are kept."""
        self.up = False
        self._blocked.clear()
        for link in list(self.links):
            link.lose("server gone")

    def start(self) -> None:
        self.up = True

    def forget_scripts(self) -> None:
        self.store.forget_scripts()

    def receive(self, link: Link, command: Command) -> None:
        """A command arrives."""
        if link.open and self.up:
            link.waiting.append(command)
            self._go_on(link)

    def leave(self, link: Link) -> None:
        """The client hung up: drop its blocking command; earlier commands were carried out."""
        if link in self._blocked:
            self._blocked.remove(link)
        if link in self.links:
            self.links.remove(link)

    def _execute(self, command: Command) -> Any:
        if self.refusing is not None and command[0] == "EVALSHA":
            return self.store.error(self.refusing)
        return self.store.execute(command)

    def _go_on(self, link: Link) -> None:
        while link.waiting and link not in self._blocked:
            command = link.waiting.popleft()
            if command[0] == "BLPOP":
                popped = self._pop(command[1:-1])
                if popped is None:
                    self._block(link, command)
                else:
                    link.reply(popped)
            else:
                link.reply(self._execute(command))
                if self._blocked:
                    self._serve_blocked()

    def _block(self, link: Link, command: Command) -> None:
        self._blocked.append(link)
        link.blocked_on = command
        # A real server ends a wait up to a tenth of a second late.
        late = self.world.chance.uniform(0.0, 0.1)
        self.world.after(float(command[-1]) + late, lambda: self._end_wait(link, command))

    def _end_wait(self, link: Link, command: Command) -> None:
        if link in self._blocked and link.blocked_on is command:
            self._blocked.remove(link)
            link.reply(None)
            self._go_on(link)

    def _serve_blocked(self) -> None:
        for link in list(self._blocked):
            popped = self._pop(link.blocked_on[1:-1])
            if popped is not None:
                self._blocked.remove(link)
                link.reply(popped)
                self._go_on(link)

    def _pop(self, keys: Sequence[Any]) -> list[Any] | None:
        for key in keys:
            if self.store.holds(key):
                return [as_bytes(key), self.store.execute(("LPOP", key))]
        return None


class Network:
    """Latencies and faults. Probabilities are per round trip."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.request_lost = self.reply_lost = self.late = 0.0
        self.latest = 40.0
        """Maximum latency of a late packet in seconds, longer than a lease lasts."""

    def latency(self) -> float:
        return self.world.chance.uniform(0.00005, 0.0005)

    def happens(self, probability: float) -> bool:
        return probability > 0 and self.world.chance.random() < probability


class Link:
    """A connection with the part of redis-py's interface that ``Wire`` uses, of a simulated process."""

    def __init__(self, server: SimulatedServer, process: Process) -> None:
        self.server, self.world, self._process = server, server.world, process
        self.open = False
        self.waiting: deque[Command] = deque()
        self.blocked_on: Command = ()
        self.socket_connect_timeout = 0.0
        self._replies: deque[Any] = deque()
        self._lost: str | None = None
        self._reader: Actor | None = None
        self.owner = self.world.running
        self._arrives = self._answers = 0.0

    def connect(self) -> None:
        self._process.sleep(self.server.network.latency() * 2)
        if not self.server.up:
            raise ConnectionRefusedError("connection refused")
        self.open = True
        self._process.links.append(self)
        self.server.links.append(self)

    def disconnect(self) -> None:
        if self in self._process.links:
            self._process.links.remove(self)
        self.open = False
        self.server.leave(self)

    def pack_command(self, *command: Any) -> list[Any]:
        return [command]

    def send_packed_command(self, commands: list[Command], check_health: bool = False) -> None:  # noqa: ARG002, FBT
        if self._lost is not None:
            raise ConnectionResetError(self._lost)
        network, world = self.server.network, self.world
        fate = world.chance.random()
        if fate < network.request_lost:
            world.tell(f"{self._process.name}: request lost: {_names(commands)}")
            self.lose("connection reset")
            return
        lost_after = len(commands)
        if fate < network.request_lost + network.reply_lost:
            lost_after = world.chance.randrange(len(commands)) + 1
        late = 0.0
        if network.happens(network.late):
            late = world.chance.uniform(0.5, network.latest)
            world.tell(f"{self._process.name}: late by {late:.1f} s: {_names(commands)}")
        at = max(self._arrives + TICK, world.now + network.latency() + late)
        for number, command in enumerate(commands):
            world.at(at, self._arrival(command))
            if number + 1 == lost_after < len(commands) or (
                lost_after == number + 1 and fate < network.request_lost + network.reply_lost
            ):
                world.at(at + TICK / 2, self._cut(commands[: number + 1]))
                break
            at += world.chance.uniform(TICK, 0.00002)
        self._arrives = at

    def read_response(self, timeout: float) -> Any:
        if not self.can_read(timeout):
            raise TimeoutError("timeout reading from socket")
        if self._replies:
            return self._replies.popleft()
        raise ConnectionResetError(self._lost or "connection closed by server")

    def can_read(self, timeout: float) -> bool:
        """True for a lost connection, too: reading raises."""
        until = self.world.now + timeout
        while not self._replies and self._lost is None:
            if self.world.now >= until:
                return False
            self._reader = self.world.running
            self._process.pause(until - self.world.now)
            self._reader = None
        return True

    def reply(self, answer: Any) -> None:
        self._answers = max(self._answers + TICK, self.world.now + self.server.network.latency())
        self.world.at(self._answers, lambda: self._receive(answer))

    def lose(self, reason: str) -> None:
        """Break it for both ends."""
        self._lost = reason
        self.open = False
        self.server.leave(self)
        self._wake()

    def _receive(self, answer: Any) -> None:
        if self._lost is None:
            self._replies.append(answer)
            self._wake()

    def _arrival(self, command: Command) -> Callable[[], None]:
        return lambda: self.server.receive(self, command)

    def _cut(self, commands: Sequence[Command]) -> Callable[[], None]:
        def cut() -> None:
            self.world.tell(f"{self._process.name}: reply lost: {_names(commands)}")
            self._replies.clear()
            self.lose("connection reset")

        return cut

    def _wake(self) -> None:
        if self._reader is not None:
            self._reader.wake()


_SCRIPTS: dict[str, str] = {}


def name_scripts(names: dict[str, str]) -> None:
    """Script names by digest, for the story."""
    _SCRIPTS.update(names)


def _names(commands: Sequence[Command]) -> str:
    return ", ".join(
        _SCRIPTS.get(command[1], "script") if command[0] == "EVALSHA" else str(command[0]) for command in commands
    )
