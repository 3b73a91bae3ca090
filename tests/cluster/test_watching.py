"""The wait for markers of several slots, on a real cluster."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from pollconsumer.store.client.patience import Budget
from pollconsumer.store.queues.redis_store import RedisStore
from tests.conftest import NAMESPACE
from tests.store.acting import message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pollconsumer.store.client.cluster_wire import ClusterWire
    from tests.store.servers import Server

QUEUES = ("mail", "images", "reports", "billing", "sync", "search")


def markers(store: RedisStore, name: str = "ready_marker") -> Sequence[str]:
    return [store.keys.queue(queue, name) for queue in QUEUES]


def wait(wire: ClusterWire, store: RedisStore, seconds: float = 30.0) -> bytes | None:
    """The marker that ends a wait, or None."""
    taken, *_ = wire.once([("BLPOP", *markers(store), seconds)], blocking=seconds)
    return taken and bytes(taken[0])


@pytest.fixture
def watching(cluster_server: Server) -> ClusterWire:
    wire: ClusterWire = cluster_server.wire(lambda: Budget(10))  # type: ignore[assignment]
    return wire


@pytest.fixture
def producer(cluster_server: Server) -> RedisStore:
    return RedisStore(cluster_server.wire(), NAMESPACE)


def test_the_queues_of_these_tests_are_on_all_nodes(watching: ClusterWire, producer: RedisStore) -> None:
    producer.enqueue([message(queue, queue=queue) for queue in QUEUES])
    held = [node.command("DBSIZE") for node in watching._nodes.values()]  # noqa: SLF001
    assert all(held)


@pytest.mark.parametrize("queue", QUEUES)
def test_a_marker_that_is_there_already_ends_a_wait_at_once_and_is_taken(
    watching: ClusterWire, producer: RedisStore, queue: str
) -> None:
    producer.enqueue([message("a", queue=queue)])
    key = producer.keys.queue(queue, "ready_marker")
    assert wait(watching, producer) == key.encode()
    assert producer.wire.command("LLEN", key) == 0


@pytest.mark.parametrize("queue", QUEUES)
def test_a_marker_that_is_set_meanwhile_ends_a_wait_and_the_next_one_is_for_the_next(
    watching: ClusterWire, producer: RedisStore, queue: str
) -> None:
    for number in range(3):
        watching.send([("BLPOP", *markers(producer), 30)])
        assert not watching.readable(0.0)
        producer.enqueue([message(f"{number}", queue=queue)])
        assert watching.readable(10)
        ((key, _),) = watching.receive([()])
        assert key == producer.keys.queue(queue, "ready_marker").encode()


def test_a_marker_set_between_two_waits_is_not_missed(watching: ClusterWire, producer: RedisStore) -> None:
    assert wait(watching, producer, 0.01) is None
    producer.enqueue([message("a", queue="sync")])
    assert wait(watching, producer) == producer.keys.queue("sync", "ready_marker").encode()


def test_of_two_waiting_one_takes_the_marker(
    cluster_server: Server, watching: ClusterWire, producer: RedisStore
) -> None:
    other = cluster_server.wire()
    for each in (watching, other):
        each.send([("BLPOP", *markers(producer), 30)])
    producer.enqueue([message("a", queue="mail")])
    assert watching.readable(10)
    assert not other.readable(0.0)


def test_the_commands_sent_with_a_wait_follow_what_ended_it(watching: ClusterWire, producer: RedisStore) -> None:
    begun = threading.Event()

    def enqueue() -> None:
        begun.wait(10)
        producer.enqueue([message("a", queue="search")])

    thread = threading.Thread(target=enqueue)
    thread.start()
    begun.set()
    lengths = [("HLEN", producer.keys.queue(queue, "records")) for queue in QUEUES]
    _, *found = watching.once([("BLPOP", *markers(producer), 30), *lengths], blocking=30)
    thread.join()
    assert found == [int(queue == "search") for queue in QUEUES]


def test_a_wait_for_several_slots_has_no_descriptor(watching: ClusterWire, producer: RedisStore) -> None:
    watching.send([("BLPOP", *markers(producer), 30)])
    assert watching.fileno() is None
