"""A monitor that launches tell of themselves."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "0e0dd2a3-8d29-4a0b-a8b5-93c4e2a1ab11"


class Monitor:
    """Notes what it is told, in the order in which it answered; ``status`` is its answer."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []
        self.status = 200
        self.holds: dict[str, Callable[[], object]] = {}
        """What is waited for before the answer, by path."""
        monitor = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                path, _, query = self.path.partition("?")
                monitor.holds.get(path.removeprefix(f"/{SECRET}"), int)()
                monitor.told.append((path, query, body))
                self.send_response(monitor.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_GET  # noqa: N815  http.server's name

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/{SECRET}"
        self.variables = {"POLLCONSUMER_PINGS__URL": self.url, "POLLCONSUMER_PINGS__DIALECT": "healthchecks"}

    @property
    def paths(self) -> list[str]:
        return [path.removeprefix(f"/{SECRET}") for path, _, _ in self.told]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
