"""The floor of the benchmarks speaks our scripts' language: it enqueues and completes messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import floor
from benchmarks.place import plain_wire
from pollconsumer.store.keyspace import Keys

if TYPE_CHECKING:
    from tests.store.servers import Server


def test_the_floor_completes_what_it_enqueues(valkey: Server) -> None:
    floor.produce(valkey.url, 150, floor.BULK)
    floor.consume(valkey.url, 150)
    wire, keys = plain_wire(valkey.url), Keys(floor.NAMESPACE)
    lengths = [("LLEN", "ready"), ("ZCARD", "in_flight"), ("LLEN", "completed")]
    assert wire.all([(command, keys.queue(floor.QUEUE, name)) for command, name in lengths]) == [0, 0, 150]
