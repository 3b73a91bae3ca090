"""Serves the pages until a signal, by wsgiref, with a thread for each connection.

A request is answered only if its Host header is an address, ``localhost``, or the name given as ``--host``. Otherwise a
foreign page could point a name of its own to a loopback address (DNS rebinding), and its script could read the
answers."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.client import HTTPException, LineTooLong
from io import BufferedReader, BytesIO, RawIOBase
from ipaddress import ip_address
from threading import Semaphore
from typing import TYPE_CHECKING, Any
from wsgiref.handlers import SimpleHandler
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from pollconsumer.core.errors import CannotCreate
from pollconsumer.dashboard.access import text_answer
from pollconsumer.dashboard.server import LONGEST_FORM
from pollconsumer.runtime.system.own_threads import Started, start_thread
from pollconsumer.web.web_exchange import RETRY_AFTER, WebAnswer, WebRequest, serve_wsgi

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from _typeshed import WriteableBuffer

PATIENCE = 10.0
"""Seconds that a client has for sending its request, from the connection to the last byte, and again to receive the
answer."""
MOST_CLIENTS = 64
"""Number of clients whose requests may be incomplete. If there are more, the oldest connection is cut, so silent
clients do not block others. Also the number of requests answered at a time; further clients are asked to come again."""
LONGEST_REQUEST = 128 << 10
"""Maximum size of a request, in bytes."""
END_WITHIN = 3.0
"""Seconds after a signal in which requests that are being answered may be completed."""
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)]|([\w.-]+))(?::\d{1,5})?", re.ASCII)
Answers = Callable[[WebRequest], WebAnswer]


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at ``host`` and ``port``. CannotCreate if the system refuses it."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=MOST_CLIENTS)
    except (OSError, UnicodeError) as error:
        # create_server adds the address to the error.
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (while attempting")[0]
        raise CannotCreate("cannot listen", f"{host}:{port}", f"{reason}: give another --port or --host") from None


def serve(answer: Answers, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM, then return. ``ready`` is called first."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        with PageServer(answer, listening) as server, suppress(KeyboardInterrupt):
            ready()
            server.serve_forever()
        server.wait()


class PageServer(WSGIServer):
    """A server on the socket ``listening``. ``free``: a semaphore that a request holds while ``app`` answers it."""

    def __init__(self, answer: Answers, listening: socket.socket) -> None:
        self.address_family, self.free = listening.family, Semaphore(MOST_CLIENTS)
        self._waited_for: dict[socket.socket, None] = {}
        self._threads: list[Started] = []
        super().__init__(listening.getsockname()[:2], PageRequest, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_name, self.server_port = listening.getsockname()[:2]
        self.setup_environ()
        self.app: WSGIApplication = partial(serve_wsgi, answer)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.wait_for(request)
        self._threads = [each for each in self._threads if not each.join(0)]
        try:
            self._threads.append(start_thread("page", self._talk, request, client_address))
        except RuntimeError:  # the system refuses another thread
            self.shutdown_request(request)

    def _talk(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except (OSError, HTTPException):  # the client has gone away, or was too slow
            pass
        finally:
            self.shutdown_request(request)

    def wait_for(self, client: Any) -> None:
        """Count ``client`` among those whose request or answer is incomplete. If these are too many, cut the oldest."""
        self._waited_for[client] = None
        if len(self._waited_for) > MOST_CLIENTS:
            oldest, *_ = [*self._waited_for]  # in one operation, since other threads change it
            self._cut(oldest, socket.SHUT_RDWR)

    def has_heard(self, client: Any) -> None:
        """The request of ``client`` is complete, so no longer count the client."""
        self._waited_for.pop(client, None)

    def _cut(self, client: socket.socket, what: int) -> None:
        self.has_heard(client)
        with suppress(OSError):  # it is gone
            client.shutdown(what)

    def shutdown_request(self, request: Any) -> None:
        self.has_heard(request)
        super().shutdown_request(request)

    def wait(self) -> None:
        """Wait a short time for requests that are being answered, but not for incomplete ones."""
        ends = time.monotonic() + END_WITHIN
        for client in [*self._waited_for]:
            self._cut(client, socket.SHUT_RD)
        for thread in self._threads:
            thread.join(ends - time.monotonic())


class PageRequest(WSGIRequestHandler):
    """A connection, for one request."""

    server: PageServer
    protocol_version = default_request_version = "HTTP/1.1"
    server_version, sys_version = "pollconsumer", ""
    error_message_format, error_content_type = "%(message)s\n", "text/plain; charset=utf-8"

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = BufferedReader(_Sent(self.connection))

    def handle(self) -> None:
        self.requestline = self.request_version = self.command = ""
        try:
            self.raw_requestline = self.rfile.readline()
            if not self.parse_request():
                return
            form = self._form()
        except LineTooLong:
            self.send_error(431)
            return
        self.server.has_heard(self.connection)
        if self.server.free.acquire(blocking=False):
            try:
                answer = self._answer(form, self.server.app)
            finally:
                self.server.free.release()
        else:
            answer = self._answer(form, TOO_MANY)
        self.server.wait_for(self.connection)
        self.connection.sendall(answer)

    def _form(self) -> bytes:
        """The body of a POST, up to the longest form. ConnectionError if the client sends less than announced."""
        announced = self.headers.get("content-length", "") if self.command == "POST" else ""
        size = min(int(announced), LONGEST_FORM + 1) if announced.isdecimal() and len(announced) < 10 else 0
        form = self.rfile.read(size)
        if len(form) < size:
            raise ConnectionError
        return form

    def _answer(self, form: bytes, app: WSGIApplication) -> bytes:
        written = BytesIO()
        Response(BytesIO(form), written, self.get_stderr(), self.get_environ()).run(app)
        return written.getvalue()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  http.server's name
        """Log nothing, since anybody who connects could fill the terminal."""


def _too_many(_: WebRequest) -> WebAnswer:
    return text_answer("too many requests at one time: come again", 503, ("retry-after", str(RETRY_AFTER)))


TOO_MANY = partial(serve_wsgi, _too_many)


class Response(SimpleHandler):
    http_version = "1.1"

    def send_preamble(self) -> None:
        super().send_preamble()
        self._write(b"Connection: close\r\n")


class _Sent(RawIOBase):
    """What a client sends. Reading raises TimeoutError after `PATIENCE` seconds, LineTooLong at `LONGEST_REQUEST`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._ends, self._left = connection, time.monotonic() + PATIENCE, LONGEST_REQUEST

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if (left := self._ends - time.monotonic()) <= 0:
            raise TimeoutError
        if self._left <= 0:
            raise LineTooLong("request")
        self._connection.settimeout(left)
        try:
            read = self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(PATIENCE)
        self._left -= read
        return read


def guarded(answer: Answers, host: str) -> Answers:
    """``answer``, wrapped to refuse requests whose Host is not ``host``, an address or ``localhost``."""

    def guard(request: WebRequest) -> WebAnswer:
        name = name_of(request.headers.get("host", ""))
        if name in ("localhost", host.lower()) or is_address(name):
            return answer(request)
        return text_answer("this host name is not served here: use the address that the command printed", 421)

    return guard


def name_of(host: str) -> str:
    """The name or address in a Host header, without its port; empty if it is malformed."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return host == "localhost" or (is_address(host) and ip_address(host).is_loopback)
