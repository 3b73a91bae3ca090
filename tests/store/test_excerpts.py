"""Bounded reads for the dashboard."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.durations import Histogram
from pollconsumer.core.lifecycle import State
from pollconsumer.dashboard.excerpts import SAMPLE, Excerpts
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.leases import write_histogram
from pollconsumer.store.records import rows
from pollconsumer.store.records.steps import Settlement
from pollconsumer.store.store import Store
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, complete_ago, message
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from pollconsumer.store.client.wire import Wire
    from pollconsumer.store.queues.redis_store import RedisStore


@pytest.fixture
def excerpts(wire: Wire) -> Excerpts:
    return Excerpts(Store(wire, NAMESPACE))


def ids(excerpts: Excerpts, state: State, count: int, *, queue: str | None = None, skip: int = 0) -> list[str]:
    return [found.id for found in excerpts.messages(state, count, queue=queue, skip=skip)]


def test_the_last_dead_letters_of_all_queues_come_first(store: RedisStore, excerpts: Excerpts) -> None:
    for number, queue in enumerate((QUEUE, "reports", QUEUE)):
        store.enqueue([message(f"m{number}", queue=queue)])
        launch = Launch(store, queue=queue)
        [reserved] = launch.reserve()
        launch.settle(Settlement.dead(reserved, reserved.reserved_at, reserved.reserved_at + 9 * number, error="no"))
    assert ids(excerpts, State.DEAD, 2) == ["m2", "m1"]
    assert ids(excerpts, State.DEAD, 9, queue="reports") == ["m1"]


def test_the_last_completed_messages_of_all_queues_come_first(store: RedisStore, excerpts: Excerpts) -> None:
    complete_ago(store, {"third": 3 * HOUR, "first": HOUR})
    complete_ago(store, {"fourth": 4 * HOUR, "second": 2 * HOUR}, "reports")
    assert ids(excerpts, State.COMPLETED, 3) == ["first", "second", "third"]


def test_the_next_of_the_schedule_come_first(store: RedisStore, excerpts: Excerpts) -> None:
    for name, delay, queue in (("late", 2 * HOUR, QUEUE), ("soon", 1000, "reports"), ("then", HOUR, QUEUE)):
        store.enqueue([message(name, delay=delay, queue=queue)])
    assert ids(excerpts, State.SCHEDULED, 2) == ["soon", "then"]


def test_pages_of_ready_messages_have_each_once_by_priority_and_by_age(store: RedisStore, excerpts: Excerpts) -> None:
    store.enqueue([message(f"plain{n}") for n in range(5)])
    store.enqueue([message("urgent", priority=-3), message("idle", priority=3)])
    pages = [ids(excerpts, State.READY, 3, queue=QUEUE, skip=skip) for skip in (0, 3, 6, 9)]
    assert pages == [["urgent", "idle", "plain0"], ["plain1", "plain2", "plain3"], ["plain4"], []]


def test_pages_of_completed_messages_have_each_once_the_newest_first(store: RedisStore, excerpts: Excerpts) -> None:
    store.enqueue([message(f"m{n}") for n in range(5)])
    launch = Launch(store)
    for _ in range(5):
        launch.complete(*launch.reserve())
    pages = [ids(excerpts, State.COMPLETED, 2, queue=QUEUE, skip=skip) for skip in (0, 2, 4, 6)]
    assert pages == [["m4", "m3"], ["m2", "m1"], ["m0"], []]


def test_a_cancelled_message_that_is_still_in_the_ready_list_is_not_shown_as_ready(
    store: RedisStore, excerpts: Excerpts, wire: Wire
) -> None:
    store.enqueue([message("a"), message("b")])
    MessageActions(wire, NAMESPACE).cancel(QUEUE, "a")
    assert ids(excerpts, State.READY, 9) == ["b"]
    assert ids(excerpts, State.CANCELLED, 9) == ["a"]


@pytest.mark.parametrize("count", [1, 7, SAMPLE, 3 * SAMPLE + 5])
def test_completions_are_counted_by_a_sample(count: int, store: RedisStore, excerpts: Excerpts, wire: Wire) -> None:
    """Of a list whose first half is older than what is asked for."""
    now, key = server_ms(wire), partial(store.keys.queue, QUEUE)
    instants = [now - 2 * HOUR + 2 * HOUR * number // count for number in range(1, count + 1)]
    for number, at in enumerate(instants):
        wire.command("HSET", key("rows"), f"m{number}", rows.BLANK[: rows.ENDED] + rows.pack6(at))
        wire.command("RPUSH", key("completed"), f"m{number}")
    found = excerpts.completions(QUEUE, now - HOUR)
    wanted = sum(at >= now - HOUR for at in instants)
    assert min(wanted, SAMPLE) - 2 <= len(found.instants) <= SAMPLE
    assert found.between(now - HOUR, now) == pytest.approx(wanted, abs=1 + wanted / SAMPLE)
    assert found.between(now - HOUR, now - HOUR // 2) == pytest.approx(wanted / 2, abs=2 + wanted / SAMPLE)


def test_a_queue_without_completed_messages_has_no_completions(excerpts: Excerpts) -> None:
    found = excerpts.completions(QUEUE, 0)
    assert (found.instants, found.samples, found.between(0, 9e12)) == ([], [], 0)


def test_samples_have_the_timestamps_of_their_messages(store: RedisStore, excerpts: Excerpts) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.complete(*launch.reserve())
    [sample] = excerpts.completions(QUEUE, 0).samples
    assert sample.completed_at
    assert sample.reserved_at


def test_durations_of_all_handlers_are_read_and_corrupt_ones_left_out(excerpts: Excerpts, wire: Wire) -> None:
    histogram = Histogram()
    for duration in (0.1, 0.2):
        histogram.add(duration)
    key = Keys(NAMESPACE).control("histograms")
    wire.command("HSET", key, "a", write_histogram(histogram), "b", "nonsense")
    found = excerpts.durations()
    assert {name: each.counts for name, each in found.items()} == {"a": histogram.counts}
