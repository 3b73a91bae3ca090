"""Serves metrics over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from threading import Lock

from pollconsumer.core.errors import CannotCreate, PermissionDenied, PollConsumerError
from pollconsumer.interface.metrics.exposition import CONTENT_TYPE

PATHS = ("/", "/metrics")
PATIENCE = 10.0
"""Seconds for a client to send its request."""


def server_of(host: str, port: int, collect: Callable[[], str]) -> ThreadingHTTPServer:
    """A server whose pages are ``collect()``, called by one thread at a time. CannotCreate, PermissionDenied for an
    address that it cannot have."""
    lock = Lock()

    class Page(BaseHTTPRequestHandler):
        timeout = PATIENCE
        server_version, sys_version = "pollconsumer", ""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in PATHS:
                self._answer(404, "no such page; metrics are at /metrics\n")
                return
            try:
                with lock:
                    text = collect()
            except PollConsumerError as error:
                self._answer(503, f"{error}\n")
            else:
                self._answer(200, text)

        def _answer(self, code: int, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  http.server's name
            """Nothing: cron would mail each request."""

    class Server(ThreadingHTTPServer):
        address_family = AF_INET6 if ":" in host else AF_INET
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Nothing: a client went away."""

    try:
        return Server((host, port), Page)
    except PermissionError as error:
        raise PermissionDenied("address", f"{host}:{port}", f"{error.strerror}: use a port above 1023") from None
    except OSError as error:
        raise CannotCreate("address", f"{host}:{port}", f"{error.strerror}: use another one") from None
