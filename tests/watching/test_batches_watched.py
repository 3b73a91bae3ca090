"""Batches that are stuck are findings of `doctor`, and others are not; what it reads of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.store.keyspace import Keys
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.batch_reader import PER_CHUNK, BatchReader
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.store import Store
from pollconsumer.watching.examiner import Examiner, batch_facts
from pollconsumer.watching.facts import BatchFacts
from pollconsumer.watching.findings import findings_of
from pollconsumer.watching.metrics import metrics_of
from tests.as_set import expected_as_set
from tests.conftest import NAMESPACE
from tests.store.acting import QUEUE, die
from tests.store.batching import HOME, OTHER, OneBatch, complete_member, member, new_batch
from tests.store.servers import server_ms
from tests.watching.test_health import HOUR, MINUTE, facts, launches

if TYPE_CHECKING:
    from tests.store.servers import Server

CLOSED = BatchFacts("import", "closed", ("mail", "mail"), total=9, outstanding=4, age=61 * MINUTE)
"""All launches are of the queue mail."""


@pytest.fixture
def batch(store: RedisStore) -> OneBatch:
    return OneBatch(store)


def said(batch: BatchFacts, ago: float = 5.0) -> list[str]:
    found = findings_of(facts(ledger=launches(ago=ago))._replace(batches=[batch]))
    assert all(each.subject == batch.id for each in found if each.name == "batch_stuck")
    return [str(each) for each in found if each.name == "batch_stuck"]


@pytest.mark.parametrize(("state", "end"), [("open", "abandoned"), ("closed", "expired")])
def test_a_batch_that_nobody_ends_in_time_is_stuck(state: str, end: str) -> None:
    late = CLOSED._replace(state=state, age=2 * HOUR, overdue_by=11 * MINUTE)
    assert said(late) == [
        f"batch import is still {state}: it should have been {end} 11m ago; "
        "launches of queue mail do that: check that they run, and see the log of one (run -v)"
    ]
    assert said(late._replace(overdue_by=9 * MINUTE)) == []


def test_a_closed_batch_is_stuck_whose_members_wait_in_a_queue_that_no_launch_came_for_lately() -> None:
    assert said(CLOSED) == []
    assert said(CLOSED._replace(queues=("mail", "mail", "sync"))) == [
        "no launch serves the members of batch import: 4 of 9 have not ended after 1h 1m; "
        "start launches for queue sync, or cancel the batch"
    ]
    assert len(said(CLOSED, ago=HOUR)) == 1
    assert said(CLOSED._replace(age=59 * MINUTE), ago=HOUR) == []
    assert said(CLOSED._replace(state="open"), ago=HOUR) == []


def read_facts(store: RedisStore, later: float = 0.0) -> list[BatchFacts]:
    now = server_ms(store.wire) + int(later * 1000)
    return batch_facts(Store(store.wire, NAMESPACE).batches, [HOME, QUEUE, OTHER], now)


def test_the_queues_of_outstanding_members_are_read_and_no_others(store: RedisStore, batch: OneBatch) -> None:
    batch.add(member(0), member(1, OTHER), member(2))
    batch.close(3)
    launch = batch.launches[QUEUE]
    first, last = launch.reserve(2)
    launch.settle(complete_member(first), die(last))
    batch.send()
    (found,) = read_facts(store, later=2 * HOUR)
    assert found[:5] == ("b", "closed", (HOME, OTHER), 3, 1)
    assert found.age >= 2 * HOUR
    assert found.overdue_by is None


def test_members_that_were_added_last_are_looked_at_in_a_large_batch(store: RedisStore, batch: OneBatch) -> None:
    count = PER_CHUNK + 5
    batch.add(*(member(number, QUEUE if number < PER_CHUNK else OTHER) for number in range(count)))
    batch.close(count)
    assert read_facts(store)[0].queues == (HOME, QUEUE, OTHER)


@pytest.mark.usefixtures("batch")
def test_an_open_batch_is_overdue_an_hour_after_its_producer_was_heard_of(store: RedisStore) -> None:
    assert read_facts(store)[0].overdue_by is None
    (found,) = read_facts(store, later=2 * HOUR)
    assert (found.state, found.queues) == ("open", (HOME,))
    assert found.overdue_by is not None
    assert found.overdue_by >= HOUR - 1


def test_a_batch_that_has_ended_is_no_fact(store: RedisStore, batch: OneBatch) -> None:
    batch.close(0)
    assert batch.status().state == "ended"
    assert read_facts(store, later=72 * HOUR) == []


def test_the_facts_of_doctor_have_the_batches(valkey: Server) -> None:
    store = RedisStore(valkey.wire(), NAMESPACE)
    OneBatch(store)
    store.wire.command("ZADD", Keys(NAMESPACE).queue(HOME, "batch_instants"), 1, "b")
    found = findings_of(Examiner(Store(store.wire, NAMESPACE)).facts(expected_as_set()))
    assert ("batch_stuck", "b") in [(each.name, each.subject) for each in found]


def test_of_many_batches_a_few_are_read(store: RedisStore, batch: OneBatch) -> None:
    for number in range(150):
        batch.batches.open(new_batch(f"b{number}", total=1))
    assert len(read_facts(store)) == 100
    assert BatchReader(store.wire, NAMESPACE).counts([HOME, QUEUE]) == [151, 0]


def test_batches_are_counted_by_state_where_there_are_any(store: RedisStore, batch: OneBatch) -> None:
    batch.batches.open(new_batch("c", total=1))
    batch.batches.open(new_batch("d", total=0))
    store.producer.register(QUEUE)
    metric = next(each for each in metrics_of(Inspector(store.wire, NAMESPACE)) if each.name == "batches")
    counts = {(each.labels["queue"], each.labels["state"]): each.value for each in metric.samples}
    assert counts == {
        (HOME, "open"): 1, (HOME, "closed"): 1, (HOME, "ended"): 1, (HOME, "abandoned"): 0, (HOME, "expired"): 0,
        (HOME, "malformed"): 0,
    }  # fmt: skip
