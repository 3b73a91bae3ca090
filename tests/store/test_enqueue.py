"""Accepting messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import StoreRefused
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.queues import producer, redis_store
from pollconsumer.store.queues.demand import LaunchDemand
from pollconsumer.store.queues.producer import Enqueued
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, message, names, retry
from tests.store.servers import server_ms, snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pollconsumer.core.lifecycle import Timestamps
    from pollconsumer.store.client.connection import Command
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector


def test_messages_are_offered_in_the_order_in_which_they_were_accepted(store: RedisStore) -> None:
    store.enqueue([message("b"), message("c")])
    store.enqueue([message("a")])
    assert names(Launch(store).reserve(9)) == ["b", "c", "a"]


def test_a_message_arrives_with_its_handler_payload_and_first_attempt(store: RedisStore) -> None:
    store.enqueue([message("a", handler="mail.send", payload='{"to":"é\\n"}'.encode())])
    (reservation,) = Launch(store).reserve()
    assert (reservation.queue, reservation.handler, reservation.attempt) == (QUEUE, "mail.send", 1)
    assert reservation.payload == '{"to":"é\\n"}'.encode()


def test_a_smaller_priority_comes_first_and_equals_keep_their_order(store: RedisStore) -> None:
    priorities = [("e", 0), ("z", -1), ("y", 4096), ("a", -1), ("b", -4096), ("d", 0), ("x", 4096), ("c", 7)]
    store.enqueue([message(name, priority=priority) for name, priority in priorities])
    assert names(Launch(store).reserve(99)) == ["b", "z", "a", "e", "d", "c", "y", "x"]


def test_priorities_hold_when_messages_are_reserved_one_at_a_time(store: RedisStore) -> None:
    store.enqueue([message(f"m{priority}", priority=priority) for priority in (2, 0, -2, 1, -1)])
    launch = Launch(store)
    assert [names(launch.reserve())[0] for _ in range(5)] == ["m-2", "m-1", "m0", "m1", "m2"]


def test_a_repeated_id_is_held_once_and_answered_as_a_duplicate(store: RedisStore) -> None:
    assert store.enqueue([message("a")]) == [Enqueued("a", duplicate=False)]
    assert store.enqueue([message("a", payload=b'{"other":1}')]) == [Enqueued("a", duplicate=True)]
    assert store.enqueue([message("b"), message("b")]) == [
        Enqueued("b", duplicate=False),
        Enqueued("b", duplicate=True),
    ]
    assert names(Launch(store).reserve(9)) == ["a", "b"]


def test_a_repeated_id_is_not_accepted_again_after_its_message_has_ended(store: RedisStore) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.complete(*launch.reserve())
    assert store.enqueue([message("a")]) == [Enqueued("a", duplicate=True)]
    assert launch.reserve() == []


def test_a_unique_key_in_use_answers_with_the_id_that_holds_it(store: RedisStore) -> None:
    store.enqueue([message("a", key="k")])
    assert store.enqueue([message("b", key="k"), message("c", key="other")]) == [
        Enqueued("a", duplicate=True),
        Enqueued("c", duplicate=False),
    ]
    assert names(Launch(store).reserve(9)) == ["a", "c"]


def test_a_unique_key_holds_within_a_page(store: RedisStore) -> None:
    assert [held.id for held in store.enqueue([message("a", key="k"), message("b", key="k")])] == ["a", "a"]


def test_a_unique_key_is_free_when_its_message_is_completed(store: RedisStore) -> None:
    store.enqueue([message("a", key="k")])
    launch = Launch(store)
    launch.complete(*launch.reserve())
    assert store.enqueue([message("b", key="k")]) == [Enqueued("b", duplicate=False)]


def test_a_unique_key_is_free_when_its_message_is_a_dead_letter(store: RedisStore) -> None:
    store.enqueue([message("a", key="k")])
    launch = Launch(store)
    launch.settle(*map(die, launch.reserve()))
    assert store.enqueue([message("b", key="k")]) == [Enqueued("b", duplicate=False)]


def test_a_unique_key_stays_taken_while_its_message_is_retried(store: RedisStore) -> None:
    store.enqueue([message("a", key="k")])
    launch = Launch(store)
    launch.settle(*[retry(r, HOUR) for r in launch.reserve()])
    assert store.enqueue([message("b", key="k")]) == [Enqueued("a", duplicate=True)]


def test_the_end_of_a_late_holder_does_not_free_the_key_of_the_next(store: RedisStore) -> None:
    store.enqueue([message("a", key="k")])
    launch = Launch(store)
    (first,) = launch.reserve()
    launch.complete(first)
    store.enqueue([message("b", key="k")])
    launch.complete(first)
    assert Looking(store).hash("unique_keys") == {"k": b"b"}


def test_a_due_time_ahead_is_scheduled_and_one_in_the_past_is_ready_now(store: RedisStore) -> None:
    now = server_ms(store.wire)
    store.enqueue([message("later", due=now + HOUR), message("late", due=now - HOUR), message("epoch", due=1)])
    store.enqueue([message("in-two-hours", delay=2 * HOUR), message("in-no-time", delay=0)])
    look = Looking(store)
    assert look.ranked("schedule") == ["later", "in-two-hours"]
    assert look.due("later") == now + HOUR
    assert look.listed("ready") == ["late", "epoch", "in-no-time"]


def test_a_delay_counts_from_the_clock_of_the_server(store: RedisStore) -> None:
    before = server_ms(store.wire)
    store.enqueue([message("a", delay=HOUR)])
    after = server_ms(store.wire)
    due = Looking(store).due("a")
    assert due is not None
    assert before + HOUR <= due < after + HOUR + 1


def test_messages_of_several_queues_arrive_in_theirs(store: RedisStore) -> None:
    store.enqueue([message("a", queue="one"), message("b", queue="two"), message("c", queue="one")])
    assert names(Launch(store, queue="one").reserve(9)) == ["a", "c"]
    assert names(Launch(store, queue="two").reserve(9)) == ["b"]
    assert store.queues() == ["one", "two"]


def test_more_messages_than_a_batch_holds_are_all_accepted_in_order(store: RedisStore) -> None:
    ids = [f"m{n:04}" for n in range(2 * producer.ENQUEUE_PAGE + 1)]
    assert [held.id for held in store.enqueue([message(name) for name in ids])] == ids
    assert Looking(store).listed("ready") == ids


def test_large_payloads_are_sent_in_pages_of_bounded_size(store: RedisStore) -> None:
    payload = b'{"x":"%b"}' % (b"x" * 600_000)
    sent: list[int] = []
    call = store.wire.call

    def counting(script: object, keys: object, args: list[object]) -> object:
        sent.append(sum(len(arg) for arg in args if isinstance(arg, bytes)))
        return call(script, keys, args)  # type: ignore[arg-type]

    store.wire.call = counting  # type: ignore[method-assign, assignment]
    store.enqueue([message(f"m{n}", payload=payload) for n in range(3)])
    assert max(sent) < 2 * producer.ENQUEUE_BYTES
    assert Looking(store).listed("ready") == ["m0", "m1", "m2"]


def test_a_batch_is_refused_whole_with_nothing_written(store: RedisStore) -> None:
    store.enqueue([message("first")])
    store.wire.command("SET", store.keys.queue(QUEUE, "ready_by_priority"), "another program's")
    before = snapshot(store.wire)
    with pytest.raises(StoreRefused):
        store.enqueue([message("a"), message("b", priority=1), message("c", delay=HOUR, key="k")])
    assert snapshot(store.wire) == before


def test_the_marker_of_a_queue_is_set_by_what_is_ready_and_never_twice(store: RedisStore) -> None:
    look = Looking(store)
    store.enqueue([message("scheduled", delay=HOUR)])
    assert look.marker() == 0
    for name in ("a", "b"):
        store.enqueue([message(name)])
        assert look.marker() == 1
    look.take_marker()
    store.enqueue([message("c", priority=3)])
    assert look.marker() == 1


def test_a_duplicate_wakes_nobody(store: RedisStore) -> None:
    store.enqueue([message("a"), message("b", delay=HOUR)])
    look = Looking(store)
    look.take_marker()
    look.take_marker("schedule_marker")
    store.enqueue([message("a"), message("b", delay=1)])
    assert (look.marker(), look.marker("schedule_marker")) == (0, 0)


def test_the_marker_of_the_schedule_is_set_only_by_an_earlier_head(store: RedisStore) -> None:
    look = Looking(store)
    set_by = []
    for name, delay in [("first", 2 * HOUR), ("later", 3 * HOUR), ("earlier", HOUR), ("last", 4 * HOUR)]:
        store.enqueue([message(name, delay=delay)])
        if look.marker("schedule_marker"):
            set_by.append(name)
        look.take_marker("schedule_marker")
    assert set_by == ["first", "earlier"]


def test_the_marker_of_the_schedule_is_never_set_twice(store: RedisStore) -> None:
    for delay in (3 * HOUR, 2 * HOUR, HOUR):
        store.enqueue([message(f"m{delay}", delay=delay)])
    assert Looking(store).marker("schedule_marker") == 1


def test_the_mover_is_told_of_a_queue_with_its_first_message_and_only_then(store: RedisStore) -> None:
    marker = store.keys.control("queues_marker")
    store.enqueue([message("a")])
    assert store.wire.command("LLEN", marker) == 1
    store.wire.command("DEL", marker)
    store.enqueue([message("b")])
    redis_store.RedisStore(store.wire, store.keys.namespace).enqueue([message("c")])
    assert store.wire.command("LLEN", marker) == 0


def test_a_ready_and_a_scheduled_message_carry_the_time_of_their_acceptance(
    store: RedisStore, inspector: Inspector
) -> None:
    before = server_ms(store.wire)
    store.enqueue([message("ready"), message("scheduled", delay=HOUR)])
    after = server_ms(store.wire)
    ready, scheduled = (inspector.message(name).row.timestamps for name in ("ready", "scheduled"))
    assert ready.scheduled_at == ready.enqueued_at
    assert scheduled.enqueued_at is None
    assert (scheduled.due_at or 0) - (scheduled.scheduled_at or 0) in (HOUR, HOUR + 1)  # rounded up

    def accepted(timestamps: Timestamps[int]) -> bool:
        return before <= (timestamps.scheduled_at or 0) <= after

    assert accepted(ready)
    assert accepted(scheduled)


@pytest.mark.parametrize("number", [1, 2])
def test_a_message_whose_acceptance_was_not_heard_is_no_duplicate_where_its_producer_starts_a_launch(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    started, once, unheard = list[int](), store.wire.once, [True]
    sending = producer.Producer(store.wire, NAMESPACE)
    sending.demand = LaunchDemand(store.keys, [QUEUE], lambda: started.append(1))
    enqueueing = store.wire.scripts["enqueue"].sha

    def lost(commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        answers = once(commands, blocking=blocking)
        if any(enqueueing in command for command in commands) and unheard:
            unheard.clear()
            raise Unanswered("lost", sent=True)
        return answers

    monkeypatch.setattr(store.wire, "once", lost)
    enqueued = sending.enqueue([message(f"m{n}", key=f"k{n}") for n in range(number)])
    assert ([each.duplicate for each in enqueued], unheard, started) == ([False] * number, [], [1])
