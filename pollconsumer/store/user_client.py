"""Clients of redis-py that users give us: which kinds are accepted, and how connections like theirs are made.

Such a connection has the client's server, login, TLS, name and hooks such as ``redis_connect_func``. It does not have
the client's decoding, retries, health checks or limit of the pool: `Wire` decides what to repeat, and for how long.
This module is imported only if a client is given.

Only public names of redis-py are used. So the connection has no descriptor to wait on, and redis-py itself waits for
the rest of a reply that has begun to arrive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import redis
import redis.asyncio
from redis.cluster import RedisCluster
from redis.connection import DefaultParser
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as LateReply
from redis.sentinel import MasterNotFoundError, Sentinel

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.notation.text import redacted
from pollconsumer.core.users_code import called, described
from pollconsumer.store.client.address import ClusterAddress, Node
from pollconsumer.store.client.cluster_wire import connecting_to
from pollconsumer.store.client.connection import MOST_BYTES, Command, packed
from pollconsumer.store.client.replies import ErrorReply
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.scripts import Scripts

READABLE_EVERY = 0.05
"""Seconds between two checks whether a reply is there, while a launch also waits for something else."""
LOOK_EVERY = 1.0
"""Seconds of use between two questions to a Sentinel whether the server is still the primary."""
LOOK_AGAIN_AFTER = 5.0
"""Seconds until the next question, after a Sentinel did not answer."""
OF_THE_CLIENT = ("retry", "retry_on_error", "retry_on_timeout", "himport_registry", "event_dispatcher")
"""Options of the client's pool that do not concern single connections; they are left out."""
OF_NOTIFICATIONS = ("maint_", "oss_cluster_maint_", "orig_")
"""Prefixes of options for the client's push notifications, which need RESP3; they are left out."""
UserClient = redis.Redis | RedisCluster
KINDS = "a redis-py Redis, RedisCluster or Sentinel(…).master_for(…)"
ASYNCIO = (redis.asyncio.Redis, redis.asyncio.RedisCluster, redis.asyncio.sentinel.Sentinel)


class AsciiError(ErrorReply, ResponseError):
    """An error reply as the server wrote it. redis-py's own errors lack its first word."""


class ReplyParser(DefaultParser):  # type: ignore[misc, valid-type]
    """A parser of replies like redis-py's, but with `AsciiError` for errors."""

    @classmethod
    def parse_error(cls, response: str) -> AsciiError:
        return AsciiError(response)


class ClientConnection:
    """A `Connection` over one of redis-py's, which is made with the options of a client's ``pool``."""

    def __init__(self, pool: Any, **options: Any) -> None:
        """``options``: replace those of the pool."""
        self._pool, self._options = pool, options
        self._is_found_by_sentinel = isinstance(pool, redis.sentinel.SentinelConnectionPool)
        self._look_at = time.monotonic() + LOOK_EVERY
        self._lost = False
        """Whether the connection was lost. Without this, redis-py would silently reconnect at the next use."""

    def connect(self, timeout: float) -> None:
        """Open the connection. Also raises ConfigurationError if TLS with this server can never work."""
        kind = self._pool.connection_class
        kept = {
            name: value
            for name, value in (self._pool.connection_kwargs | self._options).items()
            if name not in OF_THE_CLIENT and not name.startswith(OF_NOTIFICATIONS)
        }
        kept |= {"decode_responses": False, "protocol": 2, "health_check_interval": 0, "parser_class": ReplyParser}
        kept |= {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        try:
            with _as_ours():
                self._connection = called(kind, **kept)
                called(self._connection.connect)
        except (ErrorReply, OSError) as error:
            if isinstance(kind, type) and issubclass(kind, redis.SSLConnection):
                from pollconsumer.store.client.transport import tls_refusal

                if refusal := tls_refusal(error, {}, established=False):
                    raise refusal from None
            raise
        except Exception as error:  # raised by a credential provider, or by redis_connect_func
            problem = redacted(f"the client raised {described(error)}")
            raise ConnectionError(problem) from error

    @property
    def location(self) -> str:
        made = self._connection
        return getattr(made, "path", None) or f"{made.host}:{made.port}"

    def send(self, commands: Sequence[Command]) -> None:
        """Send ``commands``. ConnectionError if the connection is lost, or if a Sentinel names another primary."""
        self._leave_replaced()
        text = b"".join(map(packed, commands))
        pieces = [text[at : at + MOST_BYTES] for at in range(0, len(text), MOST_BYTES)]
        with _as_ours():
            self._connection.send_packed_command(pieces, check_health=False)

    def read(self, timeout: float) -> Any:
        if not self.readable(timeout):
            raise TimeoutError(f"no answer within {timeout:.3g} s")
        try:
            with _as_ours():
                return self._connection.read_response(disable_decoding=True)
        except ErrorReply as reply:
            return reply

    def readable(self, timeout: float) -> bool:
        if self._lost:
            raise ConnectionError("connection lost")
        try:
            with _as_ours():
                return bool(self._connection.can_read(timeout))
        except OSError:
            self._lost = True
            raise

    def fileno(self) -> None:
        """None, since redis-py does not publish the descriptor."""

    def close(self) -> None:
        self._connection.disconnect()

    def _leave_replaced(self) -> None:
        now = time.monotonic()
        if now < self._look_at or not self._is_found_by_sentinel:
            return
        self._look_at = now + LOOK_EVERY
        try:
            primary: tuple[str, int] = self._pool.get_master_address()
        except RedisError:
            self._look_at = now + LOOK_AGAIN_AFTER
            return
        made = self._connection
        if tuple(primary) != (made.host, made.port):  # GUARD a primary that a client's Sentinels replaced is left
            raise ConnectionError(f"{self.location} is not the primary any more")


class ClientWire(Wire):
    look_every = READABLE_EVERY


@contextmanager
def _as_ours() -> Iterator[None]:
    """In the block, turn errors of redis-py into those of a `Connection`."""
    try:
        yield
    except ErrorReply:
        raise
    except NoScriptError as error:  # from fakeredis, which has its own parser
        raise ErrorReply(f"NOSCRIPT {error}") from None
    except ResponseError as error:
        raise ErrorReply(str(error)) from None
    except LateReply as error:
        raise TimeoutError(str(error)) from error
    except MasterNotFoundError as error:  # its text shows a client for each Sentinel
        why, fix = str(error).partition(" : ")[0], "check its name, and the addresses and login of the Sentinels"
        raise ConnectionError(f"{why}; {fix}") from error
    except RedisError as error:
        raise ConnectionError(str(error)) from error


class SuppliedClient(NamedTuple):
    """A client that a user gave us. ``address``: its server's, without the login. ``connecting``: given a namespace,
    returns a function that makes connections. ``in_memory``: it is fakeredis, which no other process can reach."""

    address: str
    connecting: Callable[[str], Callable[..., Wire]]
    in_memory: bool = False


def supplied_client(client: object, name: str = "PollConsumer(store=…)") -> SuppliedClient:
    """The `SuppliedClient` of ``client``. ConfigurationError, naming it ``name``, if it is none of the `KINDS`."""
    if isinstance(client, RedisCluster):
        cluster = ClientCluster(client)
        return SuppliedClient(cluster.shown, partial(connecting_to, cluster))
    if isinstance(client, ASYNCIO):
        fix = f"asyncio's cannot be used by our synchronous calls, nor is it needed for …_async: give {KINDS}"
        raise ConfigurationError(name, f"a {type(client).__module__}.{type(client).__name__}", fix)
    if isinstance(client, Sentinel):
        raise ConfigurationError(name, "a Sentinel", "give its master_for(…)")
    if not isinstance(client, redis.Redis):
        raise ConfigurationError(name, f"a {type(client).__name__}", f"give {KINDS}")
    pool: Any = client.connection_pool
    if getattr(pool, "is_master", True) is False:
        raise ConfigurationError(name, "a Sentinel's replica", "give master_for(…), whose server takes writes")
    address, in_memory = _address(pool), pool.connection_class.__module__.partition(".")[0] == "fakeredis"
    connect = partial(ClientWire, address, connect=partial(ClientConnection, pool))
    if in_memory:
        connect = partial(connect, scripts=Scripts(shebang=False))
    return SuppliedClient(address, lambda _: connect, in_memory)


def _address(pool: Any) -> str:
    options = pool.connection_kwargs
    if isinstance(pool, redis.sentinel.SentinelConnectionPool):
        return f"redis+sentinel://{pool.service_name}/{options.get('db') or 0}"
    if "path" in options:
        return f"unix://{options['path']}?db={options.get('db') or 0}"
    return f"redis://{options.get('host', 'localhost')}:{options.get('port', 6379)}/{options.get('db') or 0}"


class ClientCluster(ClusterAddress):
    """The cluster of a user's client. ``seeds``: the nodes that the client, a RedisCluster, knows."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.seeds = [Node(str(node.host), int(node.port)) for node in client.get_nodes()]
        self.shown = f"redis+cluster:{self.url_of(min(self.seeds)).removeprefix('redis:')}"

    def url_of(self, node: Node) -> str:
        return f"redis://[{node.host}]:{node.port}" if ":" in node.host else f"redis://{node.host}:{node.port}"

    def options_of(self, node: Node) -> dict[str, Any]:
        """Further arguments of `Wire` for a connection to ``node``. RedisCluster's connect hook is not used: it would
        replace our parser, and allow reads from replicas. A hook of the user's is called."""
        client = self._client
        pool = client.nodes_manager.create_redis_node(*node, **client.get_connection_kwargs()).connection_pool
        return {"connect": partial(ClientConnection, pool, redis_connect_func=partial(_begin, client))}


def _begin(client: Any, connection: Any) -> None:
    connection.on_connect()
    if client.user_on_connect_func is not None:
        client.user_on_connect_func(connection)
