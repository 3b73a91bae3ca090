"""Whether a server may be used at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import StoreRefused
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.producer import Enqueued, Producer
from pollconsumer.store.suitability import Suitability
from tests.conftest import NAMESPACE
from tests.store.acting import message
from tests.store.test_wire import Tries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.store.servers import Server


class Memo:
    """What is remembered outside of the store; ``meanwhile`` happens as it is first read."""

    def __init__(self, meanwhile: Callable[[], None] | None = None) -> None:
        self.known: str | None = None
        self.meanwhile = meanwhile

    def read(self) -> str | None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self.known

    def write(self, store_id: str) -> None:
        self.known = store_id


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def look_at(valkey: Server, warnings: list[str]) -> Callable[[Memo], None]:
    def look(memo: Memo) -> None:
        Suitability(NAMESPACE, memo, warnings.append)(valkey.wire())

    return look


@pytest.fixture
def configured(valkey: Server) -> Iterator[Callable[[str, str], None]]:
    wire = valkey.wire()

    def configure(name: str, value: str) -> None:
        wire.command("CONFIG", "SET", name, value)

    yield configure
    wire.command("REPLICAOF", "NO", "ONE")
    configure("maxmemory", "0")
    configure("maxmemory-policy", "noeviction")


def test_a_store_is_given_an_id_that_is_recognised_afterwards(look_at: Callable[[Memo], None]) -> None:
    first, second = Memo(), Memo()
    look_at(first)
    look_at(second)
    look_at(first)
    assert first.known
    assert first.known == second.known


def test_a_store_that_was_emptied_is_refused(look_at: Callable[[Memo], None], valkey: Server) -> None:
    memo = Memo()
    look_at(memo)
    valkey.wire().command("FLUSHALL")
    with pytest.raises(StoreRefused, match="is empty"):
        look_at(memo)


def test_another_store_in_its_place_is_refused(look_at: Callable[[Memo], None]) -> None:
    memo = Memo()
    look_at(memo)
    memo.known = "0" * 32
    with pytest.raises(StoreRefused, match="is another one"):
        look_at(memo)


def test_two_processes_may_be_the_first_at_once(look_at: Callable[[Memo], None]) -> None:
    memo = Memo()
    memo.meanwhile = lambda: look_at(memo)
    look_at(memo)
    assert memo.known


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
def test_a_store_that_evicts_any_key_is_refused(
    look_at: Callable[[Memo], None], configured: Callable[[str, str], None], policy: str
) -> None:
    configured("maxmemory", "1gb")
    configured("maxmemory-policy", policy)
    with pytest.raises(StoreRefused, match=policy):
        look_at(Memo())


def test_a_store_that_may_evict_leases_is_warned_of(
    look_at: Callable[[Memo], None], configured: Callable[[str, str], None], warnings: list[str]
) -> None:
    configured("maxmemory", "1gb")
    configured("maxmemory-policy", "volatile-ttl")
    look_at(Memo())
    assert len(warnings) == 1
    assert "volatile-ttl" in warnings[0]


def test_an_eviction_policy_without_a_limit_is_harmless(
    look_at: Callable[[Memo], None], configured: Callable[[str, str], None], warnings: list[str]
) -> None:
    configured("maxmemory-policy", "allkeys-lru")
    look_at(Memo())
    assert warnings == []


@pytest.mark.usefixtures("configured")
def test_a_replica_is_not_written_to(look_at: Callable[[Memo], None], valkey: Server) -> None:
    valkey.wire().command("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(Unanswered, match="is a replica; point at its primary"):
        look_at(Memo())


@pytest.mark.usefixtures("configured")
def test_a_primary_that_another_replaced_is_waited_for_until_its_address_leads_to_a_primary(valkey: Server) -> None:
    """As a load balancer's does, some seconds after a failover."""
    server = valkey.wire()

    class Promoting(Tries):
        def pause(self, seconds: float) -> None:
            super().pause(seconds)
            server.command("REPLICAOF", "NO", "ONE")

    wire = Wire(valkey.url, lambda: Promoting(9), greet=Suitability(NAMESPACE, Memo(), lambda _: None))
    producer = Producer(wire, NAMESPACE)
    producer.enqueue([message("before")])
    server.command("REPLICAOF", "127.0.0.1", "1")
    assert producer.enqueue([message("after")]) == [Enqueued("after", duplicate=False)]
    wire.close()
