"""Opens a store in memory. Its server uses the virtual clock, which blocking commands advance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pollconsumer.interface.testing.clock import VirtualClock
from pollconsumer.interface.testing.fake_store import DirectConnection, FakeStore
from pollconsumer.store.client.connection import Command, Connection
from pollconsumer.store.client.patience import Budget, Patience
from pollconsumer.store.client.server_wire import ServerWire
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.scripts import Scripts

BUDGET = 5.0
SCRIPTS = Scripts(shebang=False)
"""Read once in a process, since a test suite makes hundreds of stores."""


class MemoryOpener:
    """Makes connections to one store in memory."""

    def __init__(self, namespace: str, clock: VirtualClock) -> None:
        self.namespace = namespace
        self._clock, self._store = clock, FakeStore(lambda: clock.now_ms / 1000)
        self._wires: list[Wire] = []

    def wire(self) -> Wire:
        wire = VirtualWire(self._clock, lambda: Budget(BUDGET), self._connect)
        self._wires.append(wire)
        return wire

    def bare_wire(self, _: Callable[[], Patience]) -> Wire:
        return self.wire()

    def store(self) -> RedisStore:
        return RedisStore(self.wire(), self.namespace)

    def close(self) -> None:
        for wire in self._wires:
            wire.close()

    def _connect(self) -> Connection:
        return DirectConnection(self._store.execute)


class VirtualWire(ServerWire):
    """A connection whose blocking command lets virtual time pass until it is answered."""

    def __init__(
        self, clock: VirtualClock, patience: Callable[[], Patience], connect: Callable[[], Connection]
    ) -> None:
        super().__init__("memory:", patience, connect=connect, scripts=SCRIPTS)
        self._clock = clock
        self._markers: tuple[str, ...] = ()
        self._after: Sequence[Command] = ()

    def send(self, commands: Sequence[Command]) -> None:
        if commands[0][0] == "BLPOP":
            self._markers, self._after = tuple(commands[0][1:-1]), commands[1:]
        else:
            super().send(commands)

    def receive(self, commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        if not self._markers:
            return super().receive(commands, blocking=blocking)
        markers, self._markers = self._markers, ()
        woken = self._clock.wait(blocking, lambda: self._marked(markers)) if blocking else self._marked(markers)
        popped = next(([m, one] for m in markers if (one := self.command("LPOP", m))), None) if woken else None
        return [popped, *(self.once(self._after) if self._after else ())]

    def readable(self, timeout: float) -> bool:
        return self._clock.wait(timeout, lambda: self._marked(self._markers))

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        self._markers = ()
        super().close()

    def _marked(self, markers: Sequence[str]) -> bool:
        super().send([("EXISTS", *markers)])
        return bool(super().receive([()])[0])
