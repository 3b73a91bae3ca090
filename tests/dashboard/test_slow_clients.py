"""Clients of our servers that send a byte now and then, or nothing, or take no answer: cut in time, they shut nobody
out."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.dashboard import page_server
from pollconsumer.dashboard.access import TokenAccess
from tests.dashboard.pages import TOKEN, application
from tests.site import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.store.servers import Server


EACH, SHORT = 0.2, 1.0
"""Seconds between two bytes, and those that a server here waits for a client."""
GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "


def dashboard(valkey: Server) -> AbstractContextManager[int]:
    return running(application(valkey.wire(), token=TOKEN, acts=True))


@contextmanager
def running(app: Any) -> Iterator[int]:
    with page_server.listen("127.0.0.1", 0) as listens:
        server = page_server.server_of(app)
        thread = threading.Thread(target=server.run, args=([listens],))
        thread.start()
        yield listens.getsockname()[1]
        server.should_exit = True
        thread.join()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "PATIENCE", SHORT)


def connected(port: int, begin: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    client.sendall(begin)
    return client


def dripped(client: socket.socket) -> int:
    """How many bytes were sent, one each 0.2 s, until the server hung up."""
    sent, until = 0, time.monotonic() + PATIENCE
    client.settimeout(EACH)
    with suppress(ConnectionError):
        while time.monotonic() < until:
            with suppress(TimeoutError):
                if client.recv(65536) == b"":
                    break
                continue  # an answer, such as a refusal
            client.send(b"a")
            sent += 1
    return sent


@pytest.mark.parametrize("begin", [b"", GET])
@pytest.mark.usefixtures("quick")
def test_a_request_that_drips_is_cut_in_time(begin: bytes, valkey: Server) -> None:
    with dashboard(valkey) as port, connected(port, begin) as client:
        assert 0 < dripped(client) <= 3 * SHORT / EACH


@pytest.mark.usefixtures("quick")
def test_a_form_that_drips_is_cut_in_time(valkey: Server) -> None:
    welcome = TokenAccess(TOKEN, acts=True, port=8080).welcome(TOKEN)
    assert welcome is not None
    cookie = b"Cookie: %b\r\n" % dict(welcome.further)["set-cookie"].partition(";")[0].encode()
    post = b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900\r\n" + cookie + b"\r\n"
    with dashboard(valkey) as port, connected(port, post) as client:
        assert 0 < dripped(client) <= 3 * SHORT / EACH


@pytest.mark.usefixtures("quick")
def test_a_page_that_nobody_takes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless(_scope: object, _receive: object, send: Callable[[dict[str, object]], Awaitable[None]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        with suppress(OSError):
            while not gone.is_set():
                await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
                await asyncio.sleep(0)

    gone = threading.Event()
    lost = page_server.OneRequest.connection_lost

    def connection_lost(connection: page_server.OneRequest, error: Exception | None) -> None:
        gone.set()
        lost(connection, error)

    monkeypatch.setattr(page_server.OneRequest, "connection_lost", connection_lost)
    with running(endless) as port, connected(port, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
        assert gone.wait(PATIENCE)


def test_silent_clients_shut_nobody_out(valkey: Server) -> None:
    with ExitStack() as held, dashboard(valkey) as port:
        for _ in range(200):
            held.enter_context(connected(port, b""))
        with connected(port, b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n") as client:
            assert client.recv(12) == b"HTTP/1.1 403"
