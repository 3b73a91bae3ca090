"""A launch whose store, or whose replicas, say nothing ends by itself, before its watchdog would end it."""

from __future__ import annotations

from errno import ETIMEDOUT
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import StoreUnreachable
from pollconsumer.interface.memory_store import DirectConnection
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Strict, Wire
from pollconsumer.store.queues.redis_store import RedisStore
from tests.leaving_out import long
from tests.simulation.hosts.network import Link
from tests.simulation.hosts.server import SimulatedServer
from tests.simulation.installation import NAMESPACE, RULES, SCRIPT_NAMES, SCRIPTS, Installation, Opener

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pollconsumer.store.client.connection import Command
    from pollconsumer.store.client.patience import Patience
    from tests.simulation.hosts.process import Process

TIMEOUT = 3.0
BEFORE_END = (0.6, 0.3, 0.1)
"""Seconds from when the store falls silent to the window's end."""


class FallingSilent(SimulatedServer):
    """Falls silent at ``instant``. ``how``: nobody reaches it, or nobody is answered, or no replica has anything."""

    instant = float("inf")
    how = ""

    def is_silent(self, *how: str) -> bool:
        return self.how in how and self.world.now >= self.instant

    def receive(self, link: Link, command: Command) -> None:
        if command[0] == "WAIT":
            waits = command[2] / 1000 if self.is_silent("without replicas") else 0.0
            self.world.after(waits, partial(link.reply, 0 if waits else command[1]))
        else:
            super().receive(link, command)


class Connection(Link):
    def connect(self, timeout: float) -> None:
        if self._falls_silent.is_silent("cut off"):
            self._process.sleep(timeout)
            raise TimeoutError(ETIMEDOUT, "timed out")
        super().connect(timeout)

    def send(self, commands: Sequence[Command]) -> None:
        if not self._falls_silent.is_silent("cut off", "frozen"):
            super().send(commands)

    @property
    def _falls_silent(self) -> FallingSilent:
        assert isinstance(self.server, FallingSilent)
        return self.server


class StrictOpener(Opener):
    def wire(self, patience: Callable[[], Patience] | None = None) -> Wire:
        return self._connected(patience, None)

    def launch_wire(self, patience: Callable[[], Patience] | None = None) -> Wire:
        return self._connected(patience, Strict(1, 0.5))

    bare_wire = wire

    def _connected(self, patience: Callable[[], Patience] | None, strict: Strict | None) -> Wire:
        patience = patience or (lambda: Budget(5.0, self._process))
        connect = partial(Connection, self._server, self._process)
        return Wire("redis://simulated", patience, connect=connect, scripts=SCRIPTS, strict=strict)


class Installed(Installation):
    opener = StrictOpener

    def __init__(self, grace: float) -> None:
        super().__init__(
            1,
            rules=RULES._replace(
                timeout=TIMEOUT, grace=grace, idle_time=0.5, estimated_duration=0.001, min_margin=0.02
            ),
        )
        self.server: FallingSilent = FallingSilent(self.world, self.network, SCRIPT_NAMES)

    def enqueue(self, lasts: float, count: int) -> None:
        wire = Wire(
            "memory:", lambda: Budget(5.0), connect=lambda: DirectConnection(self.server.store.execute), scripts=SCRIPTS
        )
        payload = {"seconds": lasts, "fails": 0}
        RedisStore(wire, NAMESPACE).enqueue([new_message("plain", payload) for _ in range(count)])

    def launched(self, role: str, how: str, before_end: float) -> Process:
        """A launch whose store falls silent so many seconds before its window's end."""
        process = self.launch(role)
        self.server.how, self.server.instant = how, (TIMEOUT - before_end) / process.machine.rate
        self.world.run_for(TIMEOUT + self.rules.grace + 1.0)
        return process


def test_it_says_what_it_waited_for_and_not_that_it_waited_no_longer() -> None:
    installation = Installed(2.0)
    installation.enqueue(0.02, 200)
    installation.launched("run", "without replicas", 0.3)
    (line,) = [line for line in installation.world.trace if "store unreachable" in line]
    assert "it says: only 0 of 1 replicas had it within" in line


@pytest.mark.parametrize("role", ["run", "move"])
@pytest.mark.parametrize("how", ["cut off", "frozen", "without replicas"])
@pytest.mark.parametrize(
    ("grace", "lasts"), [(0.5, 0.02), long(2.0, 0.02), (10.0, 0.02), (0.5, 0.2), long(2.0, 0.2), long(10.0, 0.2)]
)
def test_it_ends_before_its_hard_end_whenever_the_store_falls_silent(
    role: str, how: str, grace: float, lasts: float
) -> None:
    """With 69, or with 0 where nothing was left to be done. Settings allow no grace below half a second."""
    codes = []
    for before_end in BEFORE_END:
        installation = Installed(grace)
        installation.enqueue(lasts, 200)
        codes.append(installation.launched(role, how, before_end).code)
    assert set(codes[:-1]) == {StoreUnreachable.exit_code}
    assert codes[-1] in (StoreUnreachable.exit_code, 0)
