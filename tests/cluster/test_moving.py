"""What producers and launches notice of slots that move and of nodes that die, on a real cluster."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from pollconsumer.store.client.address import ClusterAddress
from pollconsumer.store.client.cluster_wire import ClusterWire, connecting_to, slot_of
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.queues.redis_store import RedisStore
from tests.cluster.nodes import Cluster, NodeProcess
from tests.conftest import NAMESPACE
from tests.store.acting import Launch, message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

QUEUE = "mail"
MOVES = 40


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(replicas=1)
    yield cluster
    cluster.close()


@pytest.fixture
def connect(cluster: Cluster) -> Iterator[Callable[[], ClusterWire]]:
    made: list[ClusterWire] = []

    def make() -> ClusterWire:
        made.append(connecting_to(ClusterAddress(cluster.url), NAMESPACE)(lambda: Budget(30)))
        return made[-1]

    yield make
    for wire in made:
        wire.close()
    for node in cluster.primaries():
        node.ask("FLUSHALL")


@pytest.fixture
def store(connect: Callable[[], ClusterWire]) -> RedisStore:
    return RedisStore(connect(), NAMESPACE)


def slot_of_queue(store: RedisStore) -> int:
    return slot_of(store.keys.queue(QUEUE, "ready"))


def others(cluster: Cluster, slot: int) -> list[NodeProcess]:
    owner = cluster.owner(slot)
    return [node for node in cluster.primaries() if node.port != owner.port]


def test_slots_are_those_of_the_server(cluster: Cluster) -> None:
    for key in ("a", "{tests:mail}:r", "{tests}:fences", "x{y}z", "{}x", "{x", "ä{ö}"):
        assert cluster.nodes[0].ask("CLUSTER", "KEYSLOT", key) == slot_of(key)


def test_a_queue_is_found_where_its_slot_has_moved_to(store: RedisStore, cluster: Cluster) -> None:
    store.enqueue([message("before")])
    slot = slot_of_queue(store)
    for number in range(4):
        cluster.move(slot, others(cluster, slot)[number % 2])
        store.enqueue([message(f"{number}")])
    assert [each.name for each in Launch(store).reserve(9)] == ["before", "0", "1", "2", "3"]


def test_nothing_is_lost_or_handed_out_twice_while_slots_move_to_and_fro(
    connect: Callable[[], ClusterWire], store: RedisStore, cluster: Cluster
) -> None:
    slot, home = slot_of_queue(store), slot_of(store.keys.control("fences"))
    sent, moved = list[str](), threading.Event()

    def enqueue() -> None:
        producer = RedisStore(connect(), NAMESPACE)
        while not moved.is_set():
            sent.append(f"{len(sent)}")
            producer.enqueue([message(sent[-1])])

    def move() -> None:
        for number in range(MOVES):
            each = home if number % 4 == 3 else slot
            cluster.move(each, others(cluster, each)[0])
        moved.set()

    threads = [threading.Thread(target=each) for each in (enqueue, move)]
    for thread in threads:
        thread.start()
    launch, handled = Launch(store), list[str]()
    while any(thread.is_alive() for thread in threads) or len(handled) < len(sent):
        reserved = launch.reserve(9)
        launch.complete(*reserved)
        handled += [each.name for each in reserved]
    assert sorted(handled, key=int) == sent
    assert launch.reserve(9) == []


def test_a_marker_of_a_slot_that_has_moved_ends_a_wait(
    connect: Callable[[], ClusterWire], store: RedisStore, cluster: Cluster
) -> None:
    waiting = connect()
    markers = [store.keys.queue(queue, "ready_marker") for queue in (QUEUE, "images", "reports")]
    assert waiting.once([("BLPOP", *markers, 0.01)], blocking=0.01) == [None]
    slot = slot_of_queue(store)
    cluster.move(slot, others(cluster, slot)[0])
    store.enqueue([message("a")])
    taken = None
    while taken is None:
        (taken,) = waiting.once([("BLPOP", *markers, 30)], blocking=30)
    assert taken[0] == markers[0].encode()


def test_what_was_replicated_is_handed_out_after_the_death_of_a_node(store: RedisStore, cluster: Cluster) -> None:
    launch = Launch(store)
    store.enqueue([message("a"), message("b")])
    slot = slot_of_queue(store)
    store.wire.all([("HSET", store.keys.queue(QUEUE, "counters"), "replicated", 1), ("WAIT", 1, 5000)])
    owner = cluster.owner(slot)
    dying = threading.Thread(target=cluster.fail_over, args=(owner,))
    dying.start()
    store.enqueue([message("c")])
    dying.join()
    assert cluster.owner(slot).port != owner.port
    assert sorted(each.name for each in launch.reserve(9)) == ["a", "b", "c"]
