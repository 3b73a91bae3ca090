"""A port with TLS before a server on a unix socket."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import trustme


class Encrypted:
    def __init__(self, target: str, certificate: trustme.LeafCert, *, client_ca: trustme.CA | None = None) -> None:
        """``client_ca``: without a certificate from it nobody is let in."""
        self._target = target.removeprefix("unix://")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self._context)
        self.asked_for: list[str | None] = []
        """The name that each connection asked for before it was encrypted."""
        self._context.sni_callback = lambda _, name, __: self.asked_for.append(name)
        if client_ca is not None:
            client_ca.configure_trust(self._context)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.connections = 0
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        for each in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(90)
        for each in self._open:  # those that a thread has opened since
            each.close()

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)  # type: ignore[arg-type]  # a method of ours
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.connections += 1
                self._open.append(connection)
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection = self._context.wrap_socket(connection, server_side=True)
            self._open.append(connection)
            server = socket.socket(socket.AF_UNIX)
            self._open.append(server)
            server.connect(self._target)
            self._start(self._pass_on, server, connection)
            self._pass_on(connection, server)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
