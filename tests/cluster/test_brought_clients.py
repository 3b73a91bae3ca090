"""Launches and producers over a RedisCluster of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis import cluster

from pollconsumer import PollConsumer
from pollconsumer.store.client.address import ClusterAddress
from tests.cluster.tested import client_module
from tests.site import PATIENCE

if TYPE_CHECKING:
    from tests.site import Site
    from tests.store.servers import Server

RedisCluster: Any = cluster.RedisCluster  # it has no types


def test_messages_of_queues_on_several_nodes_are_handled_over_a_cluster_client(
    cluster_server: Server, site: Site
) -> None:
    seed = ClusterAddress(cluster_server.url).seeds[0]
    (site.directory / "bring.py").write_text(client_module(cluster_server.url))
    queues = ["mail", "images", "reports", "billing"]
    with (site.directory / "config.toml").open("a") as config:
        config.write(f'client = "bring:client"\nnamespace = "tests"\n[consumer]\nqueues = {queues}\n')
    with RedisCluster(seed.host, seed.port) as client:
        app = PollConsumer(store=client, namespace="tests")
        messages = [app.enqueue("record", {"name": queue}, queue=queue) for queue in queues]
        launch = site.start("run", "--timeout", "300s", "--max-messages", str(len(queues) + 1))
        for queue in queues:
            site.await_note(queue)
        app.enqueue("record", {"name": "later"}, queue="reports")
        _, errors = launch.communicate(timeout=PATIENCE)
        assert (launch.returncode, errors) == (0, "")
        assert site.notes()[-1] == "later"
        assert {message.status().state for message in messages} == {"completed"}
