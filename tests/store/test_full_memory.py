"""A server without room: it accepts nothing, and what is in flight is settled all the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import OutcomeUnknown, StoreUnreachable
from pollconsumer.store.actions import HandlerPauses
from pollconsumer.store.leases import TTL, Group, Leases
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.demand import ServingMarker
from pollconsumer.store.queues.outbox import Answer
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Claim
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, message, names, park, release, retry
from tests.store.moving import exported
from tests.store.servers import Impatient, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pollconsumer.store.client.wire import Wire
    from tests.store.servers import Server


@pytest.fixture
def wire(valkey: Server) -> Iterator[Wire]:
    wire = valkey.wire(Impatient)
    yield wire
    wire.command("CONFIG", "SET", "maxmemory", 0)


@pytest.fixture
def store(wire: Wire) -> RedisStore:
    return RedisStore(wire, NAMESPACE)


def fill(wire: Wire) -> None:
    wire.command("CONFIG", "SET", "maxmemory", 1)


def test_enqueue_is_refused_with_nothing_changed(store: RedisStore) -> None:
    store.enqueue([message("a")])
    before = snapshot(store.wire)
    fill(store.wire)
    with pytest.raises(StoreUnreachable, match="maxmemory") as caught:
        store.enqueue([message("b", key="k"), message("c", delay=HOUR), message("d", priority=1)])
    assert not isinstance(caught.value, OutcomeUnknown)
    assert snapshot(store.wire) == before


def test_everything_of_a_consumer_and_a_mover_works(store: RedisStore) -> None:
    look = Looking(store)
    store.enqueue([message(name) for name in ("completed", "dead", "retried", "released", "orphan")])
    fill(store.wire)
    launch = Launch(store, fence=1)
    completed, dead, retried, released, _ = launch.reserve(5)
    launch.step(completed=[completed], settled=[die(dead), retry(retried), release(released)])
    assert Launch(store, fence=2).recovered == 1
    assert store.promote(Launch(store, fence=3).claim, QUEUE, 9)[0] == 1
    assert (look.listed("completed"), look.ranked("dead_letters")) == (["completed"], ["dead"])
    assert look.listed("ready") == ["orphan", "released", "retried"]


def test_a_launch_begins_whose_recurrences_and_aliases_an_earlier_one_has_recorded(store: RedisStore) -> None:
    for _ in range(2):
        store.maintenance.own_recurrences("consumer:mail", [QUEUE])
        store.maintenance.rename({"send_mail": "mail.send"})
        fill(store.wire)
    with pytest.raises(StoreUnreachable, match="raise maxmemory"):
        store.maintenance.rename({"send_mail": "mail.post"})


def test_a_launch_on_demand_says_that_it_serves_its_queues(store: RedisStore) -> None:
    fill(store.wire)
    key = store.keys.queue(QUEUE, "presence")
    serving = ServingMarker(store.wire, store.keys, [QUEUE], [QUEUE])
    serving.begin(60.0)
    assert 59_000 < store.wire.command("PTTL", key) <= 60_000
    Leases(store.wire, NAMESPACE).extend_serving_markers([QUEUE])
    assert store.wire.command("PTTL", key) <= TTL * 1000
    serving.end()
    assert store.wire.command("EXISTS", key) == 0


def test_what_the_outbox_cannot_read_stays_until_there_is_room_to_keep_it(store: RedisStore) -> None:
    look = Looking(store)
    store.wire.command("RPUSH", look.key("outbox"), "{")
    fill(store.wire)
    with pytest.raises(StoreUnreachable, match="raise maxmemory"):
        outbox.send(store, QUEUE, print)
    assert look.listed("outbox") == ["{"]


def test_what_the_outbox_tells_other_queues_of_a_full_cluster_is_sent_once(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.wire, "is_cluster", True, raising=False)
    store.enqueue([message("caller", queue="other")])
    look, answer = Looking(store), Answer("other", "caller", "call", {"id": "a", "state": "completed", "result": 1})
    store.wire.command("RPUSH", look.key("outbox"), outbox.pack([], 0, [], [answer]))
    fill(store.wire)
    assert outbox.send(store, QUEUE, print) == 0
    assert (look.listed("outbox"), look.listed("told")) == ([], [])
    assert '"result":1' in Looking(store, "other").hash("checkpoints")["caller\n0"].decode()


def test_a_person_pauses_and_resumes_a_handler(store: RedisStore) -> None:
    pauses, look = HandlerPauses(store.wire, NAMESPACE), Looking(store)
    leases = Leases(store.wire, NAMESPACE)
    holder = json.dumps({"role": "consumer", "queues": [QUEUE], "host": "ant", "pid": 1})
    claim = leases.acquire(Group("consumer", (QUEUE,), 1), "launch", holder, "{}")
    assert isinstance(claim, Claim)
    marker = f"{look.key('stop_marker')}:{claim.fence}"
    store.enqueue([message("a")])
    fill(store.wire)
    pauses.pause("handler")
    assert store.wire.command("LPOP", marker)
    launch = Launch(store, fence=int(claim.fence))
    launch.settle(park(launch.reserve()[0], HOUR))
    pauses.resume("handler")
    assert 59_000 < store.wire.command("PTTL", marker) <= 60_000
    assert names(launch.reserve()) == ["a"]


def test_a_store_is_exported_to_a_larger_server(store: RedisStore) -> None:
    store.enqueue([message("a")])
    fill(store.wire)
    *_, end = exported(store.wire)
    assert end["end"]["messages"] == 1
