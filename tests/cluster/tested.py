"""A cluster as the server of the store's tests, and redis-py's clients of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis.cluster import RedisCluster

from pollconsumer.store.client.address import ClusterAddress
from pollconsumer.store.client.cluster_wire import ClusterWire, Topology
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.server import TIME
from pollconsumer.store.user_client import ClientCluster
from tests.store.servers import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pollconsumer.store.client.connection import Command
    from pollconsumer.store.client.patience import Patience
    from pollconsumer.store.client.wire import Wire
    from tests.cluster.nodes import Cluster

CLIENT = """
from redis.cluster import RedisCluster

def client():
    return RedisCluster({host!r}, {port}, decode_responses=True)
"""
OF_ALL_NODES = {"FLUSHALL", "KEYS", "SCRIPT", "CONFIG", "DBSIZE"}


class TestedWire(ClusterWire):
    """Commands without a key, which only tests send, go to all nodes."""

    def all(
        self,
        commands: Sequence[Command],
        *,
        on_repeat: Callable[[], object] | None = None,
        blocking: float = 0.0,
        parting: bool = True,
    ) -> list[Any]:
        if not commands or commands[0][0] not in OF_ALL_NODES:
            return super().all(
                [TIME] if commands == [("PING",)] else commands, on_repeat=on_repeat, blocking=blocking, parting=parting
            )
        super().all([TIME])  # learns the nodes
        answers = [self._node(node).all(commands)[0] for node in self._topology.primaries()]
        return [[each for answer in answers for each in answer]] if commands[0][0] == "KEYS" else [answers[0]]


def client_module(url: str) -> str:
    """The source of a module of a user's, whose function ``client`` returns a client of the cluster."""
    return CLIENT.format(**ClusterAddress(url).seeds[0]._asdict())


def cluster_server(cluster: Cluster, namespace: str, *, by_client: bool = False) -> Server:
    address: ClusterAddress = ClusterAddress(cluster.url)
    if by_client:
        address = ClientCluster(RedisCluster(*address.seeds[0], decode_responses=True))
    topology, home = Topology(address), Keys(namespace).control("fences")

    def make(patience: Callable[[], Patience], greet: Callable[[Wire], int | None] | None) -> Wire:
        return TestedWire(cluster.url, topology, home, patience, greet=greet)

    return Server(make, cluster.url)
