"""What a trial kills beside processes of ours: a server, or a node of a cluster. Each keeps all it has acknowledged."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Protocol

from tests.cluster.nodes import Cluster
from tests.faults.server import Server

if TYPE_CHECKING:
    from pathlib import Path


class Store(Protocol):
    url: str

    def kill(self) -> None:
        """Kill the server, or one of its nodes, and start it again with its file."""

    def close(self) -> None: ...


class OneServer:
    AWAY = 1.0
    """Seconds at most until it is started again."""

    def __init__(self, directory: Path) -> None:
        self._server = Server(directory, "", slow_loading=False)
        self._server.start()
        self._server.await_ready()
        self.url = f"unix://{self._server.socket}"

    def kill(self) -> None:
        self._server.kill()
        time.sleep(random.uniform(0, self.AWAY))
        self._server.start()
        self._server.await_ready()

    def close(self) -> None:
        self._server.close()


class ThreeNodes:
    AWAY = 6.0
    """Seconds at most until a node is started again: the others take it for dead before, or do not."""

    def __init__(self) -> None:
        keeping = ("--appendonly", "yes", "--appendfsync", "always")
        self._cluster = Cluster(3, 0, *keeping, "--cluster-require-full-coverage", "no")
        self.url = self._cluster.url

    def kill(self) -> None:
        self._cluster.restart(random.choice(self._cluster.nodes), random.uniform(0, self.AWAY))

    def close(self) -> None:
        self._cluster.close()
