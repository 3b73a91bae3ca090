"""When a message expires, and what the store makes of one that has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import BadData
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message_steps import Step, StepEntry, as_recorded
from pollconsumer.store.queues import maintenance, outbox
from pollconsumer.store.queues.outbox import pack
from tests.store.acting import HOUR, QUEUE, Launch, Looking, chosen, die, expire, finish, message, names, park, retry
from tests.store.batching import OTHER, OneBatch, member
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector

LARGE = b'{"x":"%b"}' % (b"x" * 2000)


def expiry(launch: Launch) -> int:
    (reservation,) = launch.reserve()
    return reservation.common.expires


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
    store.promote(launch.claim, QUEUE, 1)
    assert expiry(launch) == due + 5000


@pytest.mark.parametrize("more", [{}, {"key": "k", "concurrency": "c", "headers": {"a": "b"}}, {"digest": "a1" * 8}])
def test_it_stays_through_retries_beside_other_options(store: RedisStore, more: dict[str, Any]) -> None:
    store.enqueue([message("a", expires=HOUR, **more)])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    first = reservation.common.expires
    launch.settle(retry(reservation))
    while not store.promote(launch.claim, QUEUE, 1).moved:
        pass
    (again,) = launch.reserve()
    assert (again.common.expires, again.handler, again.payload) == (first, "handler", b"{}")


def test_a_follow_up_brings_it_along(store: RedisStore) -> None:
    store.enqueue([message("parent")])
    launch = Launch(store)
    (parent,) = launch.reserve()
    launch.settle(finish(parent, outgoing=pack([message("child", expires=HOUR)], server_ms(store.wire))))
    outbox.send(store, QUEUE, lambda *_: None)
    assert expiry(launch) > server_ms(store.wire) + HOUR - 60_000


@pytest.mark.parametrize("payload", [b"{}", LARGE])
def test_one_that_has_expired_has_ended_and_holds_nothing(
    store: RedisStore, look: Looking, inspector: Inspector, person: MessageActions, payload: bytes
) -> None:
    store.enqueue([message("a", payload=payload, key="k", concurrency="c"), message("b", concurrency="c")])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    store.checkpoint(launch.claim, reservation, b"{}")
    stepped = launch.step(settled=[expire(reservation)], wanted=1)
    assert (stepped.stale, names(stepped.reserved)) == ([], ["b"])  # its place is free
    found = inspector.message("a")
    assert (found.state, found.attempts, found.payload) == (State.EXPIRED, 0, {} if payload == b"{}" else None)
    assert found.row.timestamps.expired_at == reservation.reserved_at
    assert found.row.timestamps.reserved_at is None
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
    monkeypatch.setattr(maintenance, "KEEP_FINISHED", 1)
    store.enqueue([chosen("a"), chosen("b")])
    launch = Launch(store)
    launch.settle(*map(expire, launch.reserve(2)))
    assert store.maintenance.trim(QUEUE) == 1
    assert (look.listed("expired"), [*look.hash("records")]) == (["b"], ["b"])
    assert store.enqueue([chosen("a")])[0].duplicate


def test_a_redriven_message_does_not_expire(store: RedisStore, person: MessageActions) -> None:
    store.enqueue([message("a", expires=1)])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    later = 0.1  # seconds of the launch's clock, which stands still here
    assert reservation.has_expired(later)
    launch.settle(die(reservation))
    person.redrive(QUEUE, ["a"])
    (again,) = launch.reserve()
    assert again.common.expires == reservation.common.expires
    assert not again.has_expired(later)


def past(store: RedisStore) -> None:
    """Wait until what expires a millisecond after it was accepted has expired."""
    now = server_ms(store.wire)
    while server_ms(store.wire) <= now + 1:
        pass


WAITING: list[dict[str, Any]] = [
    {},
    {"priority": 3},
    {"payload": LARGE},
    {"key": "k", "concurrency": "c"},
    {"key": "k", "concurrency": "c", "priority": 3},
]


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("options", WAITING)
def test_what_expires_where_nobody_serves_ends_alone(
    store: RedisStore, look: Looking, inspector: Inspector, options: dict[str, Any], other: bool
) -> None:
    """``other``: another one of its concurrency key is in flight."""
    if other:
        store.enqueue([message("other", concurrency="c")])
        Launch(store).reserve()
    store.enqueue([message("stays", expires=HOUR), message("for ever"), message("a", expires=1, **options)])
    past(store)
    assert store.maintenance.expire(QUEUE) == 1
    assert inspector.message("a").state is State.EXPIRED
    assert look.listed("expired") == ["a"]
    assert (look.hash("unique_keys"), look.lined()) == ({}, [])
    assert look.hash("totals")["expire\nhandler\n"] == b"1"
    launch = Launch(store, fence=2)
    assert [name for name in names(launch.reserve(9)) if name != "other"] == ["stays", "for ever"]
    assert inspector.overview().queues[0].ready == 0
    assert store.maintenance.expire(QUEUE) == 0


def test_what_is_due_after_its_expiry_or_never_promoted_or_parked_ends_too(
    store: RedisStore, look: Looking, person: MessageActions, inspector: Inspector
) -> None:
    store.enqueue([message(name, expires=30) for name in ("put off", "parked", "retried")])
    store.enqueue([message("due", due=server_ms(store.wire) + 1, expires=1)])
    launch = Launch(store)
    person.change(QUEUE, "put off", delay=HOUR)
    reserved = launch.reserve(2)
    for reservation in reserved:
        store.checkpoint(launch.claim, reservation, b"{}")
    parked, retried = reserved
    launch.settle(park(parked, HOUR), retry(retried, HOUR))
    end = server_ms(store.wire) + 30
    while server_ms(store.wire) <= end:
        pass
    assert store.maintenance.expire(QUEUE) == 4
    assert {each.id for each in inspector.messages(State.EXPIRED, QUEUE, 9)} == {"put off", "parked", "retried", "due"}
    assert look.ranked("schedule") == []
    assert look.hash("checkpoints") == {}
    assert not store.wire.command("EXISTS", look.key("parked"))


def test_what_is_in_flight_or_was_redriven_or_has_ended_or_is_served_does_not_end_so(
    store: RedisStore, person: MessageActions, look: Looking
) -> None:
    store.enqueue([message(name, expires=1) for name in ("held", "dead", "done", "cancelled")])
    launch = Launch(store)
    _, dead, done = launch.reserve(3)
    launch.settle(die(dead), finish(done))
    person.cancel(QUEUE, "cancelled")
    person.redrive(QUEUE, ["dead"])
    past(store)
    assert store.maintenance.expire(QUEUE) == 0
    store.enqueue([message("served", expires=1)])
    past(store)
    store.maintenance.announce(launch.claim, QUEUE, served_for=60.0)
    assert store.maintenance.expire(QUEUE) == 0
    assert names(launch.reserve(9)) == ["dead", "served"]
    store.wire.command("DEL", look.key("served"))
    assert store.maintenance.expire(QUEUE) == 0  # both are in flight


def test_what_has_taken_a_step_does_not_expire(store: RedisStore, look: Looking) -> None:
    store.enqueue([message(name, expires=1) for name in ("a", "b")])
    launch = Launch(store)
    stepped, merely = launch.reserve(2)
    store.record(launch.claim, stepped, StepEntry(1, 1, as_recorded(Step("charge", 1000, 7)), ""))
    store.checkpoint(launch.claim, merely, b"{}")
    launch.settle(retry(stepped, HOUR), retry(merely, HOUR))
    past(store)
    assert store.maintenance.expire(QUEUE) == 1
    assert look.listed("expired") == ["b"]


@pytest.mark.parametrize("cursor", [None, "x", "-1", "9" * 30])
def test_each_call_looks_at_a_page_and_the_next_continues(store: RedisStore, look: Looking, cursor: str | None) -> None:
    total, found = 1500, list[int]()
    store.enqueue([message(f"m{n}", expires=1) for n in range(total)])
    past(store)
    if cursor is not None:
        store.wire.command("HSET", look.key("counters"), "expired to", cursor)
    while sum(found) < total:
        found.append(store.maintenance.expire(QUEUE))
        assert found[-1] < total / 4
    assert store.maintenance.expire(QUEUE, total) == 0
    assert len(look.listed("expired")) == total


def test_a_batch_whose_member_expires_where_nobody_serves_ends(store: RedisStore) -> None:
    batch = OneBatch(store)
    batch.add(member(0)._replace(lifetime=1), member(1, queue=OTHER)._replace(lifetime=1))
    batch.close(2)
    past(store)
    assert [store.maintenance.expire(queue) for queue in (QUEUE, OTHER)] == [1, 1]
    batch.send()
    assert batch.counts() == ("ended", 2, 0, 0, 0, 2)
    assert batch.called() == ["failed", "ended"]
