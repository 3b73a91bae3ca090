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
    from pollconsumer.store.cluster.client_cluster import ClientCluster  # few stores are clusters
    from pollconsumer.store.cluster.cluster_wire import connecting_to

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
