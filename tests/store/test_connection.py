"""A connection's replies: late, in pieces, long, and none."""

from __future__ import annotations

import fcntl
import resource
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.store.client.address import address_of
from pollconsumer.store.client.connection import SocketConnection
from pollconsumer.store.client.replies import ErrorReply
from tests.store.relay import answering

if TYPE_CHECKING:
    from tests.store.servers import Server

LATE = 0.01
LONG = 30.0


@pytest.fixture
def connection(valkey: Server) -> Iterator[SocketConnection]:
    connection = SocketConnection(address_of(valkey.url))
    connection.connect(LONG)
    yield connection
    connection.close()


def test_replies_come_in_the_order_of_the_commands_of_one_write(connection: SocketConnection) -> None:
    connection.send([("ECHO", "é"), ("ECHO", b"\0\xff"), ("ECHO", 7), ("ECHO", 1.5), ("NONE",)])
    assert [connection.read(LONG) for _ in range(4)] == ["é".encode(), b"\0\xff", b"7", b"1.5"]
    assert isinstance(connection.read(LONG), ErrorReply)


def test_a_reply_of_many_packets_is_whole(connection: SocketConnection) -> None:
    text = b"x" * 3_000_000
    connection.send([("ECHO", text)])
    assert connection.read(LONG) == text


def test_a_reply_that_does_not_come_in_time_is_an_error_that_says_so(connection: SocketConnection) -> None:
    connection.send([("BLPOP", "none", 0)])
    assert not connection.readable(LATE)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        connection.read(LATE)


@pytest.mark.parametrize("reply", [b"", b"$5\r\nab", b"?\r\n"], ids=["none", "a part", "of another protocol"])
def test_a_connection_that_ends_without_a_reply_is_lost(reply: bytes) -> None:
    with answering(reply) as url:
        connection = SocketConnection(address_of(url))
        connection.connect(LONG)
        connection.send([("PING",)])
        with pytest.raises(ConnectionError):
            connection.read(1.0)
        connection.close()


def test_the_first_of_two_replies_in_one_packet_leaves_the_connection_readable(connection: SocketConnection) -> None:
    connection.send([("PING",), ("PING",)])
    assert connection.readable(LONG)
    assert connection.read(LONG) == b"PONG"
    assert connection.readable(LONG)
    assert connection.read(LONG) == b"PONG"


def test_a_connection_of_a_high_number_is_waited_for_too(connection: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("fewer open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    low = connection._socket  # noqa: SLF001  descriptors have such numbers where handlers have opened so many
    with socket.socket(fileno=fcntl.fcntl(low.fileno(), fcntl.F_DUPFD, 1100)) as connection._socket:  # noqa: SLF001
        assert not connection.readable(LATE)
        connection.send([("PING",)])
        assert connection.readable(LONG)
    connection._socket = low  # noqa: SLF001
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
