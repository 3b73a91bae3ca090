"""Serves metrics over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader, RawIOBase
from socket import AF_INET, AF_INET6, SHUT_RDWR, socket
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

from pollconsumer.core.errors import CannotCreate, PermissionDenied, PollConsumerError
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.watching.metrics.exposition import CONTENT_TYPE

PATHS = ("/", "/metrics")
PATIENCE, MOST_CONNECTIONS = 10.0, 64
"""Seconds for a client to send its request, from the connection to the last byte, and the same time again to take each
part of the answer. Of more connections the oldest is cut, so that silent ones shut nobody out."""


class Request(RawIOBase):
    """What a client sends in PATIENCE seconds."""

    def __init__(self, connection: socket) -> None:
        self._connection, self._ends = connection, time.monotonic() + PATIENCE

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(PATIENCE)


class MetricsServer(ThreadingHTTPServer):
    """A server whose pages are ``collect()``, called by one thread at a time."""

    def __init__(self, host: str, port: int, collect: Callable[[], str]) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self._collect, self._lock = collect, Lock()
        self._held: dict[socket, None] = {}
        super().__init__((host, port), MetricsRequestHandler)

    def text(self) -> str:
        with self._lock:
            return self._collect()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._held[request] = None
        if len(self._held) > MOST_CONNECTIONS:
            oldest = next(iter(self._held))
            with suppress(OSError, KeyError):
                oldest.shutdown(SHUT_RDWR)
                del self._held[oldest]
        start_thread("metrics", self.process_request_thread, request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._held.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Do nothing: a client went away."""


class MetricsRequestHandler(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = PATIENCE
    server_version, sys_version = "pollconsumer", ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = BufferedReader(Request(self.connection))

    def do_GET(self) -> None:
        if self.path.partition("?")[0] not in PATHS:
            self._answer(404, "no such page; metrics are at /metrics\n")
            return
        try:
            text = self.server.text()
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
        """Log nothing: cron would mail each request."""


def server_of(host: str, port: int, collect: Callable[[], str]) -> MetricsServer:
    """A server at ``host`` and ``port``. CannotCreate or PermissionDenied for an address that it cannot have."""
    try:
        return MetricsServer(host, port, collect)
    except PermissionError as error:
        raise PermissionDenied("address", f"{host}:{port}", f"{error.strerror}: use a port above 1023") from None
    except OSError as error:
        raise CannotCreate("address", f"{host}:{port}", f"{error.strerror}: use another one") from None
