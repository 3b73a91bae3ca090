"""From the schedule to the queue."""

from __future__ import annotations

from math import inf

import pytest

from pollconsumer.core.errors import LeaseLost, StoreRefused
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.records.steps import Promoted
from tests.store.acting import HOUR, QUEUE, Launch, Looking, message, names
from tests.store.servers import server_ms, server_us, snapshot


@pytest.fixture
def look(store: RedisStore) -> Looking:
    return Looking(store)


@pytest.fixture
def mover(store: RedisStore) -> Claim:
    claim = Claim("mover::0", "5", "mover:")
    store.maintenance.announce(claim, QUEUE)
    return claim


def schedule(store: RedisStore, look: Looking, due: dict[str, int], priority: int = 0) -> None:
    """Schedule messages, and let time pass until their due times are as many ms ago."""
    now = server_ms(store.wire)
    store.enqueue([message(name, delay=HOUR, priority=priority) for name in due])
    for name, ago in due.items():
        store.wire.command("ZADD", look.key("schedule"), now - ago, name)


def test_a_due_time_is_shown_as_the_millisecond_that_it_is_in_since_a_message_may_be_ready_within_it(
    store: RedisStore, look: Looking, person: MessageActions
) -> None:
    due = server_ms(store.wire) + HOUR
    store.enqueue([message("a", due=due + 0.75), message("b", delay=HOUR), message("c", delay=HOUR)])
    person.change(QUEUE, "c", delay=2 * HOUR)
    assert look.row("a").timestamps.due_at == due
    for name in ("a", "b", "c"):
        assert look.row(name).timestamps.due_at == int(look.score("schedule", name) or 0) // 1000


def test_what_is_not_due_stays_and_the_mover_learns_when_it_will_be(
    store: RedisStore, look: Looking, mover: Claim
) -> None:
    store.enqueue([message("a", delay=HOUR), message("b", delay=2 * HOUR)])
    moved, next_due, *_ = store.promote(mover, QUEUE, 100)
    assert moved == 0
    assert HOUR / 1000 - 60 < next_due <= HOUR / 1000
    assert look.ranked("schedule") == ["a", "b"]


def test_an_empty_schedule_has_no_next_due_time(store: RedisStore, mover: Claim) -> None:
    assert store.promote(mover, QUEUE, 100) == Promoted(0, inf, recurring=False, to_repair=False)


def test_a_message_is_never_promoted_before_its_due_time_by_the_clock_of_the_server(
    store: RedisStore, look: Looking, mover: Claim
) -> None:
    for n in range(5):
        due = server_us(store.wire) + 15_432
        store.enqueue([message(f"m{n}", due=due / 1000)])  # on a slow machine it is due, and ready, by then
        while look.due(f"m{n}") is not None:
            store.promote(mover, QUEUE, 100)
        assert server_us(store.wire) >= due
        assert look.enqueued_at(f"m{n}") >= due // 1000


def test_due_times_are_kept_to_the_microsecond(store: RedisStore, mover: Claim) -> None:
    due = server_us(store.wire) + 3_600_000_123
    store.enqueue([message("a", due=due / 1000), message("b", due=due / 1000 + 0.001), message("c", delay=2 * HOUR)])
    before = server_us(store.wire)
    next_due = store.promote(mover, QUEUE, 100).next_due
    assert due - server_us(store.wire) <= round(next_due * 1_000_000) <= due - before


def test_due_messages_are_promoted_by_due_time_then_id(store: RedisStore, look: Looking, mover: Claim) -> None:
    schedule(store, look, {"late": 1000, "b": 5000, "c": 5000, "a": 5000, "latest": 10})
    assert store.promote(mover, QUEUE, 100) == Promoted(5, inf, recurring=False, to_repair=False)
    assert look.listed("ready") == ["a", "b", "c", "late", "latest"]
    assert look.ranked("schedule") == []


def test_promoted_messages_of_another_priority_keep_that_order_too(
    store: RedisStore, look: Looking, mover: Claim
) -> None:
    store.enqueue([message("before", priority=2)])
    schedule(store, look, {"y": 10, "x": 20, "z": 5}, priority=2)
    store.promote(mover, QUEUE, 100)
    store.enqueue([message("after", priority=2), message("sooner", priority=1)])
    assert names(Launch(store).reserve(9)) == ["sooner", "before", "x", "y", "z", "after"]


def test_a_batch_is_bounded_and_takes_the_oldest_due_times(store: RedisStore, look: Looking, mover: Claim) -> None:
    schedule(store, look, {f"m{n}": 1000 - n for n in range(7)})
    moved, next_due, *_ = store.promote(mover, QUEUE, 3)
    assert (moved, next_due) == (3, 0.0)
    assert look.listed("ready") == ["m0", "m1", "m2"]
    assert store.promote(mover, QUEUE, 100) == Promoted(4, inf, recurring=False, to_repair=False)


@pytest.mark.parametrize(
    "write", [("ZADD", "in_flight", 1, "a"), ("ZADD", "waiting_for_place", 0, "k\0a"), ("RPUSH", "outbox", "1\n[]")]
)
def test_it_tells_of_what_a_dead_launch_may_have_left(
    store: RedisStore, look: Looking, mover: Claim, write: tuple[str, str, *tuple[str | int, ...]]
) -> None:
    assert not store.promote(mover, QUEUE, 100).to_repair
    command, name, *arguments = write
    store.wire.command(command, look.key(name), *arguments)
    assert store.promote(mover, QUEUE, 100).to_repair


def test_many_messages_with_the_same_due_time_all_arrive_once(store: RedisStore, look: Looking, mover: Claim) -> None:
    ids = [f"m{n:03}" for n in range(450)]
    due = server_ms(store.wire) - 1
    store.enqueue([message(name, delay=HOUR) for name in ids])
    store.wire.command("ZADD", look.key("schedule"), *(part for name in ids for part in (due, name)))
    assert [store.promote(mover, QUEUE, 100).moved for _ in range(6)] == [100, 100, 100, 100, 50, 0]
    assert look.listed("ready") == ids


def test_promoting_says_when_the_message_became_ready_and_wakes_the_consumer(
    store: RedisStore, look: Looking, mover: Claim
) -> None:
    schedule(store, look, {"a": 1})
    before = server_ms(store.wire)
    assert look.marker() == 0
    store.promote(mover, QUEUE, 100)
    enqueued_at = look.row("a").timestamps.enqueued_at
    assert enqueued_at is not None
    assert before <= enqueued_at <= server_ms(store.wire)
    assert look.marker() == 1
    schedule(store, look, {"b": 1})
    store.promote(mover, QUEUE, 100)
    assert look.marker() == 1


def test_promoting_nothing_wakes_nobody(store: RedisStore, look: Looking, mover: Claim) -> None:
    store.enqueue([message("a", delay=HOUR)])
    store.promote(mover, QUEUE, 100)
    assert look.marker() == 0


def test_an_overtaken_mover_moves_nothing(store: RedisStore, look: Looking, mover: Claim) -> None:
    schedule(store, look, {"a": 1000})
    store.maintenance.announce(mover._replace(fence="6"), QUEUE)
    before = snapshot(store.wire)
    with pytest.raises(LeaseLost):
        store.promote(mover, QUEUE, 100)
    assert snapshot(store.wire) == before


def test_a_mover_that_did_not_announce_itself_moves_nothing(store: RedisStore, look: Looking) -> None:
    schedule(store, look, {"a": 1000})
    with pytest.raises(StoreRefused):
        store.promote(Claim("mover::0", "5", "mover:"), QUEUE, 100)
    assert look.ranked("schedule") == ["a"]
