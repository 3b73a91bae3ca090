"""A server in memory, with a separate clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.replies import ErrorReply
from tests.fast_fakeredis.socket import as_bytes
from tests.fast_fakeredis.store import FastStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.simulation.hosts.network import Link, Network
    from tests.simulation.hosts.world import World

BEGINS = 1_893_456_000.0
"""2030-01-01T00:00Z: the server's clock when true time is 0."""
LEAST_LEFT = 1e-5
"""Seconds that a difference of two times of day may be wrong by."""


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
        self.store = FastStore(self.clock)

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
            if link not in self._blocked:  # what another did once it was served has served it
                continue
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
