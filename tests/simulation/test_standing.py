"""The check of every moment finds what is wrong in a store."""

from __future__ import annotations

from typing import Any

import pytest

from pollconsumer.interface.memory_store import DirectConnection
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from tests.faults.history import History, Operation, Stored
from tests.simulation.installation import NAMESPACE, SCRIPTS, Installation
from tests.simulation.producing import Producer
from tests.simulation.standing import standing, until_start
from tests.simulation.workloads import Exponential

KEYS = Keys(NAMESPACE)


def key(name: str) -> str:
    return KEYS.queue("default", name)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (("DEL", key("records")), "an id without a message"),
        (("DEL", key("schedule")), "is scheduled, and stands in no index"),
        (("LPUSH", key("cancelled"), "nobody"), "an id without a message"),
        (("DEL", key("ready")), "default counts"),
        (("HSET", key("places_taken"), "place-9", 1), "places are taken"),
        (("HSET", key("unique_keys"), "unique-9", "nobody\n1"), "nobody holds the unique key unique-9"),
        (("SET", "{simulated:default}:other", 1), "nobody knows the key"),
        (("SET", "elsewhere", 1), "nobody knows the key elsewhere"),
    ],
)
def test_what_is_wrong_in_the_store_is_found_at_once(command: tuple[Any, ...], problem: str) -> None:
    installation = Installation(3)
    Producer(installation, "p0", 40, 0.5, Exponential(0.1), lambda _: True)
    installation.world.run_until(60.0)
    store = installation.server.store
    wire = Wire("memory:", lambda: Budget(5.0), connect=lambda: DirectConnection(store.execute), scripts=SCRIPTS)
    assert standing(installation, wire) == []
    assert not isinstance(store.execute(command), Exception)
    assert any(problem in line for line in standing(installation, wire))


def test_two_that_wait_with_one_key_until_their_start_are_found() -> None:
    first, second = (Operation("enqueue", "default", name, 1, 2, "ok", key="k", key_rule="r9") for name in "ab")
    waits = Stored("a", "default", "latest", "scheduled", 0, 0, 0, 0, 100, None, None, "d", None, ("schedule",))
    history = History(operations=[first, second])
    assert list(until_start(history, [waits._replace(due_at=109)])) == []
    assert list(until_start(history, [waits._replace(due_at=110)])) == ["a is due 10 ms after it was enqueued"]
    assert list(until_start(history, [waits, waits._replace(id="b", fence=7)])) == []
    assert list(until_start(history, [waits, waits._replace(id="b")])) == ["a and b wait with the key k"]


class Holds:
    def lease_is_trusted(self) -> bool:
        return True


def test_two_launches_that_trust_one_lease_are_found() -> None:
    installation = Installation(3)
    store = installation.server.store
    wire = Wire("memory:", lambda: Budget(5.0), connect=lambda: DirectConnection(store.execute), scripts=SCRIPTS)
    holds: Any = Holds()
    installation.working = [(installation.launch("run"), holds), (installation.launch("move"), holds)]
    assert standing(installation, wire) == []
    installation.working.append((installation.launch("run"), holds))
    (line,) = standing(installation, wire)
    assert line == "2 valid holders of one lease: run 1, run 3"
