"""A server that says a byte each 0.2 s, so that each wait for more ends in time: the whole does not take longer than a
caller's patience."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from pollconsumer import PollConsumer, StoreUnreachable
from pollconsumer.store.client import connection as module
from pollconsumer.store.client.address import address_of
from pollconsumer.store.client.connection import SocketConnection
from tests.store.relay import answering

if TYPE_CHECKING:
    from collections.abc import Iterator

EACH = 0.2
PATIENCE = 0.7
GUARD = 20.0
"""Far below what the drips would take."""


@contextmanager
def dripping(first: bytes) -> Iterator[int]:
    """The port of a server that answers a request with ``first``, and then sends a single byte each 0.2 s."""
    listening, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(first)
            while not over.wait(EACH):
                connection.sendall(b"x")

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        over.set()
        listening.close()


@pytest.mark.parametrize(
    ("url", "first"),
    [
        ("redis://127.0.0.1:{}", b"$100000\r\n"),
        ("redis://127.0.0.1:{}", b"+"),
        ("redis://127.0.0.1:{}", b"*100000\r\n$1\r\na\r\n$9\r\n"),
        ("redis://user:secret@127.0.0.1:{}", b"-"),
        ("rediss://127.0.0.1:{}", b"\x16\x03\x03\x40\x00"),
        ("redis+sentinel://127.0.0.1:{}/mymaster", b"*2\r\n$100\r\n"),
        ("redis+cluster://127.0.0.1:{}", b"*100\r\n*3\r\n"),
    ],
    ids=["value", "line", "array", "login", "TLS handshake", "Sentinel", "slots"],
)
def test_what_comes_byte_by_byte_costs_the_patience(url: str, first: bytes) -> None:
    with dripping(first) as port:
        began = time.monotonic()
        with pytest.raises(StoreUnreachable):
            PollConsumer(store=url.format(port), patience=PATIENCE).enqueue("x")
        assert time.monotonic() - began < GUARD


def test_an_encrypted_record_has_one_deadline_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL reads it in many pieces: the system's limit holds for each of them, Python's for all."""
    limits: list[float] = []

    class Encrypted(socket.socket):
        def settimeout(self, value: float | None, /) -> None:
            limits.append(value or 0.0)
            super().settimeout(value)

    def encrypted(opened: socket.socket, _: object) -> socket.socket:
        return Encrypted(fileno=opened.detach())

    monkeypatch.setattr("pollconsumer.store.client.transport.encrypted", encrypted)
    with answering(b"+PONG\r\n", over_network=True) as url:
        connection = SocketConnection(address_of(url.replace("redis:", "rediss:")))
        connection.connect(GUARD)
        connection.send([("PING",)])
        assert connection.read(3.0) == b"PONG"
        connection.close()
    assert 3.0 in limits


def test_a_line_without_an_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_VALUE", 100_000)
    with answering(b"+" + b"x" * 500_000) as url:
        connection = SocketConnection(address_of(url))
        connection.connect(GUARD)
        connection.send([("PING",)])
        with pytest.raises(ConnectionError, match="a value of more than"):
            connection.read(GUARD)
        connection.close()


def test_a_command_that_the_server_takes_in_pieces_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMMAND_TIMEOUT", PATIENCE)
    ours, theirs = socket.socketpair()
    over = threading.Event()

    def take() -> None:
        while not over.wait(EACH):
            theirs.recv(2048)

    thread = threading.Thread(target=take)
    thread.start()
    with answering(b"") as url:
        connection = SocketConnection(address_of(url))
        connection.connect(EACH * 2)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, module._timeval(EACH * 2))  # noqa: SLF001
        kept, connection._socket = connection._socket, ours  # noqa: SLF001
        began = time.monotonic()
        with pytest.raises(OSError):  # noqa: PT011  of either limit
            connection.send([("SET", "a", b"x" * 20_000_000)])
        assert time.monotonic() - began < GUARD
        connection._socket = kept  # noqa: SLF001
        connection.close()
    over.set()
    thread.join()
    ours.close()
    theirs.close()
