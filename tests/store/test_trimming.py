"""Forgetting what has finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import NotFound
from pollconsumer.store import redis_store
from pollconsumer.store.reservations import Share
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, message, retry

if TYPE_CHECKING:
    from pollconsumer.store.inspector import Inspector
    from pollconsumer.store.redis_store import RedisStore


def finish(store: RedisStore, ages_ms: dict[str, int]) -> None:
    """Messages that were completed so many ms ago."""
    launch = Launch(store)
    store.enqueue([message(name) for name in ages_ms])
    share = Share(QUEUE)
    for r in launch.reserve(len(ages_ms)):
        ended = -ages_ms[r.id.decode()] / 1000
        share.complete([(r, ended, ended, None)])
    store.step(launch.holder, [share], lasts_ms=HOUR, now=lambda: 0.0)


@pytest.fixture
def look(store: RedisStore) -> Looking:
    return Looking(store)


def test_the_oldest_beyond_the_number_kept_are_forgotten(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_store, "KEEP_FINISHED", 2)
    finish(store, dict.fromkeys(["a", "b", "c", "d"], 0))
    assert store.trim(QUEUE) == 2
    assert look.finished() == ["c", "d"]
    assert sorted(look.hash("rows")) == sorted(look.hash("records")) == ["c", "d"]
    assert store.trim(QUEUE) == 0


def test_what_is_older_than_the_age_kept_is_forgotten(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_store, "KEEP_FINISHED_MS", 2 * HOUR)
    finish(store, {"a": 4 * HOUR, "b": 3 * HOUR, "c": HOUR, "d": 0})
    assert store.trim(QUEUE) == 2
    assert look.finished() == ["c", "d"]


def test_one_call_forgets_a_bounded_number(store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_store, "KEEP_FINISHED", 0)
    monkeypatch.setattr(redis_store, "TRIM_BATCH", 2)
    finish(store, dict.fromkeys(["a", "b", "c"], 0))
    assert [store.trim(QUEUE) for _ in range(3)] == [2, 1, 0]
    assert look.hash("rows") == {}


def test_a_forgotten_message_leaves_no_trace_and_its_neighbours_theirs(
    store: RedisStore, look: Looking, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_store, "KEEP_FINISHED", 0)
    store.enqueue([message("tried"), message("dead"), message("waiting", delay=HOUR)])
    launch = Launch(store)
    tried, dead = launch.reserve(2)
    launch.settle(retry(tried), die(dead, "Fatal: kept"))
    store.promote(launch.holder, QUEUE, 9)
    launch.complete(*launch.reserve())
    assert store.trim(QUEUE) == 1
    with pytest.raises(NotFound):
        inspector.message("tried")
    assert look.hash("errors") == {"dead": b"Fatal: kept"}
    assert sorted(look.hash("rows")) == sorted(look.hash("records")) == ["dead", "waiting"]
