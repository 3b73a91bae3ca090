"""A redis-py client that a user brings: which kinds may be used, and what connects to its store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn

import redis
import redis.asyncio
from redis.cluster import RedisCluster
from redis.sentinel import Sentinel

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.store.client.redis_py import READABLE_EVERY, ClientConnection
from pollconsumer.store.client.server_wire import ServerWire
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.cluster.cluster_address import Node
from pollconsumer.store.scripts import Scripts

UserClient = redis.Redis | RedisCluster
KINDS = "a redis-py Redis, RedisCluster or Sentinel(…).master_for(…)"
ASYNCIO = (redis.asyncio.Redis, redis.asyncio.RedisCluster, redis.asyncio.sentinel.Sentinel)


class BroughtClient(NamedTuple):
    """A client that a user brings. ``address``: that of its server, without a login; ``connecting``, given a namespace,
    returns what makes connections. ``in_memory``: the client is fakeredis, whose server this process alone has."""

    address: str
    connecting: Callable[[str], Callable[..., Wire]]
    in_memory: bool = False


def brought(client: object, name: str = "PollConsumer(store=…)") -> BroughtClient:
    """The client, called ``name`` in messages. ConfigurationError if it is of none of the `KINDS`."""
    if isinstance(client, RedisCluster):
        return _of_cluster(client)
    if not isinstance(client, redis.Redis):
        _refuse(client, name)
    pool: Any = client.connection_pool
    if getattr(pool, "is_master", True) is False:
        raise ConfigurationError(name, "a Sentinel's replica", "give master_for(…), whose server takes writes")
    address, in_memory = _address(pool), pool.connection_class.__module__.partition(".")[0] == "fakeredis"
    connect = partial(ServerWire, address, connect=partial(ClientConnection, pool), look_every=READABLE_EVERY)
    if in_memory:
        connect = partial(connect, scripts=Scripts(shebang=False))
    return BroughtClient(address, lambda _: connect, in_memory)


def _of_cluster(client: RedisCluster) -> BroughtClient:
    from pollconsumer.store.cluster.cluster_wire import connecting_to  # few stores are clusters

    cluster = ClientCluster(client)
    return BroughtClient(cluster.shown, partial(connecting_to, cluster))


def _refuse(client: object, name: str) -> NoReturn:
    if isinstance(client, ASYNCIO):
        fix = f"asyncio's cannot be used by our synchronous calls, nor is it needed for …_async: give {KINDS}"
        raise ConfigurationError(name, f"a {type(client).__module__}.{type(client).__name__}", fix)
    if isinstance(client, Sentinel):
        raise ConfigurationError(name, "a Sentinel", "give its master_for(…)")
    raise ConfigurationError(name, f"a {type(client).__name__}", f"give {KINDS}")


def _address(pool: Any) -> str:
    options = pool.connection_kwargs
    if isinstance(pool, redis.sentinel.SentinelConnectionPool):
        return f"redis+sentinel://{pool.service_name}/{options.get('db') or 0}"
    if "path" in options:
        return f"unix://{options['path']}?db={options.get('db') or 0}"
    return f"redis://{options.get('host', 'localhost')}:{options.get('port', 6379)}/{options.get('db') or 0}"


class ClientCluster:
    """A cluster that a user's client connects to. ``seeds``: the nodes that the client, a RedisCluster, knows."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.seeds = [Node(str(node.host), int(node.port)) for node in client.get_nodes()]
        self.shown = f"redis+cluster:{self.url_of(min(self.seeds)).removeprefix('redis:')}"

    def url_of(self, node: Node) -> str:
        return f"redis://[{node.host}]:{node.port}" if ":" in node.host else f"redis://{node.host}:{node.port}"

    def options_of(self, node: Node) -> dict[str, Any]:
        """Options of `ServerWire` for a connection to ``node``. The client's own hook would replace the parser, and
        allow reads from a replica."""
        client = self._client
        pool = client.nodes_manager.create_redis_node(*node, **client.get_connection_kwargs()).connection_pool
        return {"connect": partial(ClientConnection, pool, redis_connect_func=partial(_begin, client))}


def _begin(client: Any, connection: Any) -> None:
    connection.on_connect()
    if client.user_on_connect_func is not None:
        client.user_on_connect_func(connection)
