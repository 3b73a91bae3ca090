"""Forgetting what has finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import NotFound
from pollconsumer.store.queues import maintenance
from pollconsumer.store.records.steps import Kept, QueueStep, Retention
from tests.store.acting import HOUR, QUEUE, Launch, Looking, complete_ago, die, message, retry

if TYPE_CHECKING:
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector


@pytest.fixture
def look(store: RedisStore) -> Looking:
    return Looking(store)


def test_the_oldest_beyond_the_number_kept_are_forgotten(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "KEEP_FINISHED", 2)
    complete_ago(store, dict.fromkeys(["a", "b", "c", "d"], 0))
    assert store.maintenance.trim(QUEUE) == 2
    assert look.listed("completed") == ["c", "d"]
    assert sorted(look.hash("rows")) == sorted(look.hash("records")) == ["c", "d"]
    assert store.maintenance.trim(QUEUE) == 0


def test_a_step_that_trims_forgets_what_was_finished_before_it(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "KEEP_FINISHED", 1)
    launch = Launch(store)
    store.enqueue([message(name) for name in ("a", "b", "c", "d", "e")])
    a, b, c = launch.reserve(3)
    launch.complete(a, b)
    store.maintenance.trim("other")  # loads the script: one that is loaded within a write runs after the others
    queue_steps = [QueueStep(QUEUE, wanted=1), QueueStep(QUEUE, wanted=1)]
    queue_steps[0].trims = Retention()
    queue_steps[0].complete([(c, 0.0, 0.0, None)])
    stepped = store.step(launch.claim, queue_steps, lasts_ms=HOUR, now=lambda: 0.0)
    assert [each.id for each in stepped.reserved] == [b"d", b"e"]
    assert look.listed("completed") == ["b", "c"]


def test_what_is_older_than_the_age_kept_is_forgotten(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "KEEP_FINISHED_MS", 2 * HOUR)
    complete_ago(store, {"a": 4 * HOUR, "b": 3 * HOUR, "c": HOUR, "d": 0})
    assert store.maintenance.trim(QUEUE) == 2
    assert look.listed("completed") == ["c", "d"]


def test_what_an_interrupted_step_listed_is_kept_until_it_has_ended(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    [reserved] = launch.reserve()
    store.wire.command("RPUSH", look.key("completed"), "a")
    assert store.maintenance.trim(QUEUE) == 0
    assert [*look.hash("records")] == ["a"]
    launch.complete(reserved)
    assert store.maintenance.trim(QUEUE) == 0


def test_an_entry_without_a_message_does_not_keep_those_after_it(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "KEEP_FINISHED_MS", 2 * HOUR)
    complete_ago(store, {"a": 4 * HOUR, "b": HOUR})
    store.wire.command("LPUSH", look.key("completed"), "nobody")
    store.maintenance.trim(QUEUE)
    assert look.listed("completed") == ["b"]


def test_one_call_forgets_a_bounded_number(store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "KEEP_FINISHED", 0)
    monkeypatch.setattr(maintenance, "TRIM_PAGE", 2)
    complete_ago(store, dict.fromkeys(["a", "b", "c"], 0))
    assert [store.maintenance.trim(QUEUE) for _ in range(3)] == [2, 1, 0]
    assert look.hash("rows") == {}


def test_a_forgotten_message_leaves_no_trace_and_its_neighbours_theirs(
    store: RedisStore, look: Looking, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "KEEP_FINISHED", 0)
    store.enqueue([message("tried"), message("dead"), message("waiting", delay=HOUR)])
    launch = Launch(store)
    tried, dead = launch.reserve(2)
    launch.settle(retry(tried), die(dead, "Fatal: kept"))
    store.promote(launch.claim, QUEUE, 9)
    launch.complete(*launch.reserve())
    assert store.maintenance.trim(QUEUE) == 1
    with pytest.raises(NotFound):
        inspector.message("tried")
    assert look.hash("errors") == {"dead": b"Fatal: kept"}
    assert sorted(look.hash("rows")) == sorted(look.hash("records")) == ["dead", "waiting"]


@pytest.mark.parametrize(
    ("kept", "left"),
    [
        (Kept(2), ["c", "d"]),
        (Kept(None, 2 * HOUR), ["c", "d"]),
        (Kept(3, 2 * HOUR), ["c", "d"]),
        (Kept(1, 9 * HOUR), ["d"]),
        (Kept(0), []),
        (Kept(), ["a", "b", "c", "d"]),
    ],
)
def test_a_queue_keeps_what_it_is_told_and_another_what_is_usual(
    store: RedisStore, look: Looking, kept: Kept, left: list[str]
) -> None:
    ages = {"a": 4 * HOUR, "b": 3 * HOUR, "c": HOUR, "d": 0}
    complete_ago(store, ages)
    assert store.maintenance.trim("another", Retention(Kept(0))) == store.maintenance.trim(QUEUE) == 0
    assert store.maintenance.trim(QUEUE, Retention(kept)) == 4 - len(left)
    assert look.listed("completed") == sorted(look.hash("records")) == left


@pytest.mark.parametrize(
    ("kept", "left"),
    [
        (Kept(2), ["c", "d"]),
        (Kept(None, 2 * HOUR), ["c", "d"]),
        (Kept(1, 9 * HOUR), ["d"]),
        (Kept(0), []),
        (Kept(), ["a", "b", "c", "d"]),
    ],
)
def test_dead_letters_are_kept_for_ever_unless_a_queue_is_told_otherwise(
    store: RedisStore, look: Looking, kept: Kept, left: list[str]
) -> None:
    store.enqueue([message(name) for name in "abcd"])
    launch = Launch(store)
    reserved = launch.reserve(4)
    launch.settle(*map(die, reserved))
    for name, age in {"a": 4 * HOUR, "b": 3 * HOUR, "c": HOUR, "d": 0}.items():
        store.wire.command("ZADD", look.key("dead_letters"), reserved[0].reserved_at - age, name)
    assert store.maintenance.trim(QUEUE, Retention(dead=kept)) == 4 - len(left)
    assert look.ranked("dead_letters") == sorted(look.hash("records")) == sorted(look.hash("errors")) == left
    assert all(each.duplicate for each in store.enqueue([message(name) for name in "abcd"]))  # their ids are remembered
