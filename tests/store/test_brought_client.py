"""A redis-py client of a user's in place of our own connection: what it answers, what it refuses, what it leaves alone.

All tests of the store run over one with ``pytest --client redis-py tests/store``, over a RedisCluster with
``--cluster``, over a Sentinel's primary with ``--sentinel``.
"""

from __future__ import annotations

import gc
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
import trustme
from redis import sentinel

from pollconsumer.core.errors import ConfigurationError, PermissionDenied, StoreUnreachable
from pollconsumer.store import user_client
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.replies import ErrorReply
from pollconsumer.store.client.wire import ByPeople, Wire
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.suitability import Suitability
from pollconsumer.store.user_client import ClientConnection, supplied_client
from tests.conftest import NAMESPACE, by_client, in_memory_by_client, real_server
from tests.failovers.servers import SERVICE, Trio, await_true
from tests.store.acting import QUEUE, Launch, message
from tests.store.encrypted import Encrypted
from tests.store.relay import Listening, answering
from tests.store.servers import Impatient, Server
from tests.store.test_suitability import Memo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pollconsumer.store.client.patience import Patience
    from pollconsumer.store.client.wire import Wire

LONG = 30.0
Sentinel: Any = sentinel.Sentinel  # it has no types
SECRET = "canary"


def wire_of(client: Any, patience: Callable[[], Patience] = lambda: Budget(LONG), **options: Any) -> Wire:
    return supplied_client(client).connecting(NAMESPACE)(patience, **options)


@pytest.fixture(scope="module")
def process_by_client() -> Iterator[Server]:
    with real_server(by_client) as server:
        yield server


@pytest.fixture(params=["valkey", "fakeredis"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = in_memory_by_client() if request.param == "fakeredis" else request.getfixturevalue("process_by_client")
    yield server
    server.clear()


def connected(url: str, **options: Any) -> ClientConnection:
    connection = ClientConnection(redis.Redis.from_url(url, **options).connection_pool)
    connection.connect(LONG)
    return connection


def test_a_message_is_enqueued_reserved_and_completed_over_it(server: Server) -> None:
    store = RedisStore(server.wire(), NAMESPACE)
    store.producer.enqueue_one(message("a", payload=b'{"text": "\xc3\xa9"}'))
    launch = Launch(store)
    (reservation,) = launch.reserve()
    assert (reservation.id, bytes(reservation.payload)) == (b"a", b'{"text": "\xc3\xa9"}')
    launch.complete(reservation)
    assert store.wire.command("LRANGE", store.keys.queue(QUEUE, "completed"), 0, -1) == [b"a"]


def test_bytes_are_not_decoded_and_replies_come_in_the_order_of_the_commands(valkey: Server) -> None:
    connection = connected(valkey.url, decode_responses=True, health_check_interval=1)
    connection.send([("ECHO", b"\xff\0"), ("ECHO", "é"), ("ECHO", 1.5), ("NONE",), ("PING",)])
    assert connection.readable(LONG)
    assert [connection.read(LONG) for _ in range(3)] == [b"\xff\0", "é".encode(), b"1.5"]
    assert str(connection.read(LONG)).startswith("ERR unknown command 'NONE'")
    assert connection.read(LONG) == b"PONG"
    assert not connection.readable(0.0)
    connection.close()


@pytest.mark.parametrize(
    "said", ["FENCED 7", "NOSCRIPT No such", "READONLY You", "LOADING Redis", "NOPERM No", "MOVED 1 h:1", "ERR x"]
)
def test_an_error_keeps_the_words_of_the_server(said: str) -> None:
    named = b"+OK\r\n"  # it tells the server its name and its version
    with answering(named, named, f"-{said}\r\n+PONG\r\n".encode()) as url:
        connection = connected(url)
        connection.send([("GET", "a")])
        reply = connection.read(LONG)
        assert (isinstance(reply, ErrorReply), str(reply), connection.read(LONG)) == (True, said, b"PONG")
        connection.close()


@pytest.mark.parametrize("timeout", [None, 0.001, 3600])
def test_a_reply_is_waited_for_as_long_as_the_call_says_whatever_the_client_would(
    valkey: Server, timeout: float | None
) -> None:
    connection = connected(valkey.url, socket_timeout=timeout)
    connection.send([("BLPOP", "none", 0.1), ("BLPOP", "none", 0)])
    assert connection.read(LONG) is None
    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        connection.read(0.01)
    connection.close()


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_that_is_lost_is_not_made_anew_by_itself(reset: bool) -> None:
    """A new one would have to be greeted, and would wait for a reply to what the old one was sent."""
    times = 0

    def serve(server: socket.socket) -> None:
        nonlocal times
        times += 1
        while b"PING" not in server.recv(1 << 16):
            server.sendall(b"+OK\r\n")  # it tells the server its name and its version
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", reset, 0))

    listening = Listening(serve, over_network=True)
    connection = connected(listening.url)
    connection.send([("PING",)])
    with pytest.raises(ConnectionError):
        connection.readable(LONG)
    with pytest.raises(ConnectionError):
        connection.read(LONG)
    connection.close()
    listening.close()
    assert times == 1


def test_its_pool_stays_as_it_is(valkey: Server) -> None:
    pool = redis.ConnectionPool.from_url(valkey.url, max_connections=1)
    wires = [wire_of(redis.Redis(connection_pool=pool), Impatient) for _ in range(3)]
    assert [wire.command("PING") for wire in wires] == [b"PONG"] * 3
    assert redis.Redis(connection_pool=pool).ping()
    for wire in wires:
        wire.close()


def test_a_child_process_makes_a_connection_of_its_own(valkey: Server) -> None:
    wire = wire_of(redis.Redis.from_url(valkey.url), Impatient)
    ours = wire.command("CLIENT", "ID")
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(writing, str(wire.command("CLIENT", "ID")).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert int(os.read(reading, 64)) != ours == wire.command("CLIENT", "ID")
    os.close(reading)
    os.close(writing)
    wire.close()


def test_a_wrong_password_is_refused_without_showing_it(valkey: Server) -> None:
    client = redis.Redis.from_url(valkey.url, username="nobody", password=SECRET)
    with pytest.raises(PermissionDenied, match="authentication failed; check user and password") as caught:
        wire_of(client).command("PING")
    assert SECRET not in f"{caught.value} {supplied_client(client)}"


def test_a_hook_of_the_clients_connections_is_called_and_what_it_raises_is_a_lost_connection(valkey: Server) -> None:
    def hook(connection: Any) -> None:
        connection.on_connect()
        connection.send_command("CLIENT", "SETNAME", "hooked")
        connection.read_response()

    def broken(connection: Any) -> None:
        raise KeyError(connection.pid)

    wire = wire_of(redis.Redis.from_url(valkey.url, redis_connect_func=hook), Impatient)
    assert wire.command("CLIENT", "GETNAME") == b"hooked"
    wire.close()
    with pytest.raises(StoreUnreachable, match="the client raised KeyError"):
        wire_of(redis.Redis.from_url(valkey.url, redis_connect_func=broken), Impatient).command("PING")


class Asked:
    """A CredentialProvider that counts how often it is asked."""

    def __init__(self, *credentials: str) -> None:
        self.credentials, self.times = credentials, 0

    def get_credentials(self) -> tuple[str, ...]:
        self.times += 1
        return self.credentials


@pytest.fixture
def user(valkey: Server) -> Iterator[str]:
    """The URL of a server with a user, whose password is a secret."""
    wire = valkey.wire()
    wire.command("ACL", "SETUSER", "launch", "on", f">{SECRET}", "~*", "+@all")
    yield valkey.url
    wire.command("ACL", "DELUSER", "launch")


@pytest.mark.parametrize("kind", ["ours", "client"])
def test_credentials_are_asked_for_at_each_connection(user: str, kind: str) -> None:
    asked = Asked("launch", SECRET)
    client: Any = redis.Redis(unix_socket_path=user.removeprefix("unix://"), credential_provider=asked)  # type: ignore[arg-type]
    wire = wire_of(client, Impatient) if kind == "client" else Wire(user, Impatient, credentials=asked)
    for times in (1, 2):
        assert wire.command("ACL", "WHOAMI") == b"launch"
        assert wire.command("PING") == b"PONG"
        assert asked.times == times
        wire.close()


def test_a_connection_that_the_server_closes_is_made_anew_with_the_credentials_of_now(user: str) -> None:
    asked = Asked("launch", SECRET)
    wire = Wire(user, lambda: Budget(LONG), credentials=asked)
    other = Wire(user, Impatient)
    wire.command("PING")
    other.command("ACL", "SETUSER", "launch", "resetpass", ">another")
    other.command("CLIENT", "KILL", "USER", "launch")
    asked.credentials = ("launch", "another")
    assert wire.command("ACL", "WHOAMI") == b"launch"
    asked.credentials = ("launch", SECRET)
    wire.close()
    with pytest.raises(PermissionDenied, match="or what credentials or client give") as caught:
        wire.command("PING")
    assert SECRET not in str(caught.value)
    other.close()


@pytest.mark.parametrize("credentials", [(), ("launch", SECRET, "more"), ("launch", 5), f"launch:{SECRET}", None])
def test_what_is_no_login_is_refused_without_showing_it(user: str, credentials: Any) -> None:
    asked = Asked()
    asked.credentials = credentials
    with pytest.raises(ConfigurationError, match=r"^credentials: a \w+; get_credentials must return") as caught:
        Wire(user, Impatient, credentials=asked).command("PING")
    assert SECRET not in str(caught.value)


@pytest.mark.filterwarnings("error")
def test_a_provider_that_must_be_awaited_is_refused_without_a_warning_of_pythons(user: str) -> None:
    class Awaited:
        async def get_credentials(self) -> tuple[str, ...]:
            return "launch", SECRET

    with pytest.raises(ConfigurationError, match=r"^credentials: a coroutine; get_credentials must return"):
        Wire(user, Impatient, credentials=Awaited()).command("PING")  # type: ignore[arg-type]
    gc.collect()


def test_a_provider_that_fails_is_asked_again_as_long_as_patience_lasts(user: str) -> None:
    class Failing(Asked):
        def get_credentials(self) -> tuple[str, ...]:
            if not self.times:
                self.times += 1
                raise RuntimeError("no token yet")
            return super().get_credentials()

    wire = Wire(user, lambda: Budget(LONG), credentials=Failing("launch", SECRET))
    assert wire.command("ACL", "WHOAMI") == b"launch"
    wire.close()
    with pytest.raises(StoreUnreachable, match="credentials: get_credentials raised RuntimeError: no token yet"):
        Wire(user, Impatient, credentials=Failing("launch", SECRET)).command("PING")


def test_encryption_is_that_of_the_client_and_what_no_repetition_mends_is_said_at_once(
    valkey: Server, tmp_path: Path
) -> None:
    authority = trustme.CA()
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    encrypted = Encrypted(valkey.url, authority.issue_cert("localhost"))
    wire = wire_of(redis.Redis(port=encrypted.port, ssl=True, ssl_ca_certs=str(ca_file)), Impatient)
    assert wire.command("PING") == b"PONG"
    wire.close()
    with pytest.raises(ConfigurationError, match="store: TLS"):
        wire_of(redis.Redis(port=encrypted.port, ssl=True)).command("PING")
    encrypted.close()


@pytest.fixture
def trio() -> Iterator[Trio]:
    trio = Trio(password=SECRET)
    yield trio
    trio.close()


def test_a_sentinels_primary_is_followed_to_the_next_one(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_client, "LOOK_EVERY", 0.0)
    sentinels = [("127.0.0.1", int(each.port)) for each in trio.sentinels]
    client = Sentinel(sentinels).master_for(SERVICE, password=SECRET, decode_responses=True)
    wire = wire_of(client, greet=Suitability(NAMESPACE, Memo(), lambda _: None))
    wire.command("SET", "a", 1)
    before = wire.location
    primary = trio.fail_over()
    await_true(lambda: client.connection_pool.get_master_address()[1] == primary.port)  # later than others learn it
    wire.command("SET", "a", 2)
    assert wire.location == f"127.0.0.1:{primary.port}" != before
    assert primary.ask("GET", "a") == b"2"
    wire.close()


def test_a_primary_that_no_sentinel_names_is_told_in_words() -> None:
    with answering(b"-NOAUTH Authentication required.\r\n", over_network=True) as url:
        port = int(url.rpartition(":")[2])
        client = Sentinel([("127.0.0.1", port)], sentinel_kwargs={"socket_timeout": LONG}).master_for(SERVICE)
        with pytest.raises(StoreUnreachable) as caught:
            wire_of(client, Impatient).command("PING")
    assert f"No master found for '{SERVICE}'; check its name, and the addresses and login" in str(caught.value)
    assert "ConnectionPool" not in str(caught.value)


def test_what_replicas_do_not_have_is_not_acknowledged_over_it(valkey: Server) -> None:
    wire = wire_of(redis.Redis.from_url(valkey.url), Impatient, strict=ByPeople(1, 0.001))
    with pytest.raises(StoreUnreachable, match="changed, but only 0 of 1 replicas had it"):
        MessageActions(wire, NAMESPACE).pause(QUEUE, paused=True)


@pytest.mark.parametrize(
    ("client", "said"),
    [
        (redis.asyncio.Redis(), "a redis.asyncio.client.Redis; asyncio's cannot be used by our synchronous calls"),
        (Sentinel([("h", 1)]), "a Sentinel; give its master_for"),
        (Sentinel([("h", 1)]).slave_for(SERVICE), "a Sentinel's replica; give master_for"),
        (redis.Redis, "; give a redis-py Redis"),
        (5, "a int; give a redis-py Redis"),
    ],
)
def test_what_is_no_client_of_a_store_is_refused(client: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        supplied_client(client)
    assert said in str(caught.value)
    assert str(caught.value).startswith("PollConsumer(store=…): ")


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (redis.Redis(password=SECRET), "redis://localhost:6379/0"),
        (redis.Redis.from_url(f"redis://u:{SECRET}@h:7/3"), "redis://h:7/3"),
        (redis.Redis(unix_socket_path="/run/s", db=2), "unix:///run/s?db=2"),
        (Sentinel([("h", 1)]).master_for(SERVICE, password=SECRET), f"redis+sentinel://{SERVICE}/0"),
    ],
)
def test_its_address_tells_stores_apart_and_holds_no_secret(client: Any, address: str) -> None:
    assert supplied_client(client).address == address
