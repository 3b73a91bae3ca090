"""An installation under faults, on a server of its own, with a proxy between."""

from __future__ import annotations

from tests.faults.proxy import Proxy
from tests.faults.server import Server
from tests.trials.place import Place

NAMESPACE = "pollconsumer"
PASSWORD = "canary-7f3a9c"


class Installation(Place):
    """``slow_loading``: its server takes a while to read its file. ``appendfsync`` is the server's: with each value, a
    server that is killed has written all that it has acknowledged."""

    def __init__(self, *, slow_loading: bool, appendfsync: str = "always") -> None:
        super().__init__()
        self.server = Server(self.directory, PASSWORD, slow_loading=slow_loading, appendfsync=appendfsync)
        self.proxy = Proxy(self.server.socket)
        self.url = f"redis://:{PASSWORD}@127.0.0.1:{self.proxy.port}/0"
        self.environment["POLLCONSUMER_STORE"] = self.url
        self.server.start()
        self.server.await_ready()

    def close(self, *, keep: bool = False) -> None:
        self.kill_all()
        self.proxy.close()
        self.server.close()
        super().close(keep=keep)
