"""What `doctor` and a move of a store see of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.moving.store_closer import StoreCloser
from pollconsumer.store.store import Store
from pollconsumer.watching.examiner import Examiner
from pollconsumer.watching.findings import findings_of
from tests.as_set import expected_as_set
from tests.conftest import NAMESPACE
from tests.store.acting import message

if TYPE_CHECKING:
    from pollconsumer.store.queues.redis_store import RedisStore
    from tests.store.servers import Server

QUEUES = ("mail", "images", "reports", "billing", "sync", "search")


def test_every_node_is_examined_and_named(cluster_server: Server) -> None:
    facts = Examiner(Store(cluster_server.wire(), NAMESPACE)).facts(expected_as_set())
    places = {facts.server.location, *(each.location for each in facts.others)}
    assert len(places) == 3
    found = [str(each) for each in findings_of(facts)]
    assert all(any(f"no append-only file at {place}:" in line for line in found) for place in places)


def test_the_keys_of_all_nodes_are_closed_and_opened_again(cluster_server: Server, store: RedisStore) -> None:
    store.enqueue([message(queue, queue=queue) for queue in QUEUES])
    closing = StoreCloser(cluster_server.wire(), NAMESPACE)
    before = {place for place in closing.key_names() if place.queue}
    assert {place.queue for place in before} == {*QUEUES}
    closing.close("export", lambda _: None)
    assert before <= {*closing.closed_key_names()}
    closing.open()
    assert {place for place in closing.key_names() if place.queue} == before
