"""When a message expires, and what the store makes of one that has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import BadData
from pollconsumer.core.lifecycle import State
from pollconsumer.store.queues import outbox, upkeep
from pollconsumer.store.queues.outbox_entry import pack
from tests.store.acting import HOUR, QUEUE, Launch, Looking, chosen, expire, finish, message, names, retry
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from pollconsumer.store.queues.interventions import Interventions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector

LARGE = b'{"x":"%b"}' % (b"x" * 2000)


def expiry(launch: Launch) -> int:
    (reservation,) = launch.reserve()
    return reservation.expires


def test_it_counts_from_acceptance_by_the_servers_clock(store: RedisStore) -> None:
    before = server_ms(store.wire)
    store.enqueue([message("a", expires=5000)])
    after = server_ms(store.wire)
    assert before + 5000 <= expiry(Launch(store)) <= after + 5000


def test_it_counts_from_a_due_time_that_is_later(store: RedisStore, look: Looking) -> None:
    due = server_ms(store.wire) + HOUR
    store.enqueue([message("a", due=due, expires=5000), message("past", due=5, expires=5000)])
    launch = Launch(store)
    assert expiry(launch) > due - HOUR  # of the one that was due at once
    store.wire.command("ZADD", look.key("schedule"), 5, "a")
    store.promote(launch.holder, QUEUE, 1)
    assert expiry(launch) == due + 5000


@pytest.mark.parametrize("more", [{}, {"key": "k", "concurrency": "c", "headers": {"a": "b"}}, {"digest": "a1" * 8}])
def test_it_stays_through_retries_beside_other_options(store: RedisStore, more: dict[str, Any]) -> None:
    store.enqueue([message("a", expires=HOUR, **more)])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    first = reservation.expires
    launch.settle(retry(reservation))
    while not store.promote(launch.holder, QUEUE, 1).moved:
        pass
    (again,) = launch.reserve()
    assert (again.expires, again.handler, again.payload) == (first, "handler", b"{}")


def test_a_follow_up_brings_it_along(store: RedisStore) -> None:
    store.enqueue([message("parent")])
    launch = Launch(store)
    (parent,) = launch.reserve()
    launch.settle(finish(parent, outgoing=pack([message("child", expires=HOUR)], server_ms(store.wire))))
    outbox.send(store, QUEUE, lambda *_: None)
    assert expiry(launch) > server_ms(store.wire) + HOUR - 60_000


@pytest.mark.parametrize("payload", [b"{}", LARGE])
def test_one_that_has_expired_has_ended_and_holds_nothing(
    store: RedisStore, look: Looking, inspector: Inspector, person: Interventions, payload: bytes
) -> None:
    store.enqueue([message("a", payload=payload, key="k", concurrency="c"), message("b", concurrency="c")])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    store.checkpoint(launch.holder, reservation, b"{}")
    stepped = launch.step(settled=[expire(reservation)], claim=1)
    assert (stepped.stale, names(stepped.reserved)) == ([], ["b"])  # its place is free
    found = inspector.message("a")
    assert (found.state, found.attempts, found.payload) == (State.EXPIRED, 0, {} if payload == b"{}" else None)
    assert found.timestamps.expired_at == reservation.reserved_at
    assert found.timestamps.reserved_at is None
    assert look.hash("unique_keys") == look.hash("checkpoints") == {}
    assert [each.id for each in inspector.messages(State.EXPIRED, QUEUE, 9)] == ["a"]
    assert inspector.overview().queues[0].expired == 1
    with pytest.raises(BadData, match="it is expired already"):
        person.cancel(QUEUE, "a")
    assert person.redrive(QUEUE, ["a"]) == []


def test_its_end_is_settled_once_and_not_when_another_launch_has_it(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    for _ in range(2):
        assert launch.settle(expire(reservation)).stale == []
    assert look.listed("expired") == ["a"]
    store.enqueue([message("b")])
    (lost,) = launch.reserve()
    following = Launch(store, fence=2)
    assert following.recovered == 1
    following.reserve()
    assert following.settle(expire(lost)).stale == [b"b"]
    assert look.listed("expired") == ["a"]


def test_it_is_forgotten_as_a_cancelled_one_and_its_id_remembered(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "KEEP_FINISHED", 1)
    store.enqueue([chosen("a"), chosen("b")])
    launch = Launch(store)
    launch.settle(*map(expire, launch.reserve(2)))
    assert store.upkeep.trim(QUEUE) == 1
    assert (look.listed("expired"), [*look.hash("records")]) == (["b"], ["b"])
    assert store.enqueue([chosen("a")])[0].duplicate


def test_a_redriven_message_does_not_expire(store: RedisStore, person: Interventions) -> None:
    from tests.store.acting import die

    store.enqueue([message("a", expires=1)])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    later = 0.1  # seconds of the launch's clock, which stands still here
    assert reservation.has_expired(later)
    launch.settle(die(reservation))
    person.redrive(QUEUE, ["a"])
    (again,) = launch.reserve()
    assert again.expires == reservation.expires
    assert not again.has_expired(later)
