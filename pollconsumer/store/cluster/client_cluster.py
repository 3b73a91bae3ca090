"""A redis-py RedisCluster, as what a cluster's connections are made of."""

from __future__ import annotations

from functools import partial
from typing import Any

from pollconsumer.store.client.redis_py import ClientConnection
from pollconsumer.store.cluster.cluster_address import Node


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
