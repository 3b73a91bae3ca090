"""What stands between a connection and its server, and goes wrong on purpose."""

from __future__ import annotations

import contextlib
import select
import shutil
import socket
import threading
from typing import TYPE_CHECKING

from tests.short_directory import short_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Listening:
    """A unix socket, or one on the loopback interface, each of whose connections is served on a thread."""

    def __init__(self, serve: Callable[[socket.socket], None], *, over_network: bool = False) -> None:
        self._directory = short_directory()
        self._serve = serve
        self._socket = socket.socket(socket.AF_INET if over_network else socket.AF_UNIX)
        self._socket.bind(("127.0.0.1", 0) if over_network else str(self._directory / "s"))
        self._address = self._socket.getsockname()
        self.url = f"redis://127.0.0.1:{self._address[1]}" if over_network else f"unix://{self._address}"
        self._socket.listen()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            if not connection.recv(1, socket.MSG_PEEK):
                connection.close()
                return
            thread = threading.Thread(target=self._serve_and_close, args=(connection,))
            thread.start()
            self._threads.append(thread)

    def _serve_and_close(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self._serve(connection)

    def close(self) -> None:
        """Once the connections to it are closed."""
        with socket.socket(self._socket.family) as last:
            last.connect(self._address)
        self._accepting.join(90)
        for thread in self._threads:
            thread.join(90)
        self._socket.close()
        shutil.rmtree(self._directory)


@contextlib.contextmanager
def answering(*replies: bytes, over_network: bool = False) -> Iterator[str]:
    """The URL of a server that answers each thing that it is sent with the next of ``replies``; it hangs up
    instead of an empty one, and after the last."""
    left = list(replies)

    def serve(connection: socket.socket) -> None:
        while left and connection.recv(65536):
            if not (reply := left.pop(0)):
                return
            connection.sendall(reply)

    listening = Listening(serve, over_network=over_network)
    try:
        yield listening.url
    finally:
        listening.close()


class Relay:
    """Passes everything on to the server behind ``target``, until it is told to lose a reply or to delay a request."""

    def __init__(self, target: str, *, over_network: bool = False) -> None:
        self._target = target.removeprefix("unix://")
        self._listening = Listening(self._pass_on, over_network=over_network)
        self._losing: bytes | None = None
        self._delaying: bytes | None = None
        self._delivering, self._delivered = threading.Event(), threading.Event()
        self.lost = 0
        """Replies lost so far."""

    @property
    def url(self) -> str:
        return self._listening.url

    def lose_reply_to(self, command: bytes, times: int = 1) -> None:
        """The server carries out the next write that holds ``command``; its reply goes nowhere."""
        self._losing, self._times = command, times

    def delay_request_with(self, command: bytes) -> None:
        """The next write that holds ``command`` reaches the server when it is delivered, even if the client has hung
        up by then."""
        self._delaying = command

    def deliver(self) -> None:
        """Returns when the server has answered, or has refused the connection."""
        self._delivering.set()
        assert self._delivered.wait(60)

    def _pass_on(self, connection: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(self._target)
            while request := connection.recv(1 << 20):
                if self._delaying is not None and self._delaying in request:
                    self._delaying = None
                    self._delivering.wait()
                    with contextlib.suppress(OSError):
                        server.sendall(request)
                        server.recv(1 << 20)
                    self._delivered.set()
                    return
                server.sendall(request)
                reply = server.recv(1 << 20)
                if self._losing is not None and self._losing in request and not reply.startswith(b"-NOSCRIPT"):
                    self.lost += 1
                    if self.lost == self._times:
                        self._losing = None
                    return
                connection.sendall(reply)

    def close(self) -> None:
        self._delivering.set()
        self._listening.close()


class Dropping:
    """Passes everything on to the server behind ``target``, but for one exchange: then it hangs up, before the server
    gets the request, or once it has carried that out."""

    def __init__(self, target: str) -> None:
        self._target = target.removeprefix("unix://")
        self._listening = Listening(self._pass_on)
        self.url = self._listening.url
        self.exchanges = 0
        """Requests since `drop` was called."""
        self._number, self._what = 0, ""
        self._open: list[socket.socket] = []

    def drop(self, number: int, what: str) -> None:
        """Lose the ``request`` or the ``reply`` of the exchange of that number from now on; none for 0."""
        self.exchanges, self._number, self._what = 0, number, what

    def _pass_on(self, connection: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(self._target)
            self._open.append(connection)
            while True:
                readable, _, _ = select.select([connection, server], [], [])
                if server in readable:
                    if not (reply := server.recv(1 << 20)):
                        return
                    connection.sendall(reply)
                elif not (request := connection.recv(1 << 20)):
                    return
                else:
                    self.exchanges += 1
                    is_lost = self.exchanges == self._number
                    if is_lost and self._what == "request":
                        return
                    server.sendall(request)
                    if is_lost:
                        server.recv(1 << 20)
                        return

    def hang_up(self) -> None:
        """Close all connections."""
        while self._open:
            with contextlib.suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        self._listening.close()
