"""An address that leads to whichever server is the primary, as that of a load balancer."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.faults.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.failovers.servers import Server

LOOK_EVERY = 0.5
"""Seconds."""


class Address:
    """New connections lead to the server that said last that it is the primary. Those that stand stay where they
    are."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers
        self._proxy = Proxy(servers[0].socket)
        self.place = f"127.0.0.1:{self._proxy.port}"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._proxy.close()

    def _follow(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            for server in self._servers:
                with suppress(OSError):
                    if server.is_primary():
                        self._proxy.target = server.socket
