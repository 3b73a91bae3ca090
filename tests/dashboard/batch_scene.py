"""A batch to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.redis_store import RedisStore
from tests.conftest import NAMESPACE
from tests.store.acting import Launch, die
from tests.store.batching import OTHER, OneBatch, complete_member, member

if TYPE_CHECKING:
    from pollconsumer.store.client.wire import Wire

SIDE = "side"
"""The queue of its first members."""


def a_batch(wire: Wire, namespace: str = NAMESPACE) -> OneBatch:
    """Closed: of four members one is completed, one is dead, and two are outstanding, one of these in flight."""
    batch = OneBatch(RedisStore(wire, namespace))
    batch.add(*(member(number, SIDE) for number in range(3)), member(3, OTHER))
    batch.close(4)
    launch = Launch(batch.store, queue=SIDE)
    done, dead, _ = launch.reserve(3)
    launch.settle(complete_member(done), die(dead))
    outbox.send(batch.store, SIDE, print)
    batch.send()
    return batch
