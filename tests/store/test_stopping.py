"""Requests to stop what is in flight, as the store keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import BadData, NotFound
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.store.reading.inspector import Inspector
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, finish, message, park, release, retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore


@pytest.fixture
def launch(store: RedisStore) -> Launch:
    store.enqueue([message("a", key="k", concurrency="c", limit=1), message("b", concurrency="c", limit=1)])
    return Launch(store)


def shown(store: RedisStore, name: str = "a") -> tuple[str, int | None]:
    found = Inspector(store.wire, NAMESPACE).message(name, QUEUE)
    return found.state.value, None if found.stop_asked_at is None else epoch_ms(found.stop_asked_at)


@pytest.mark.parametrize("way", [retry, lambda r: park(r, HOUR), die, release])
def test_whatever_does_not_complete_it_cancels_it_and_frees_what_it_held(
    store: RedisStore, launch: Launch, person: MessageActions, way: Callable[..., object]
) -> None:
    (reservation,) = launch.reserve()
    person.stop(QUEUE, "a")
    assert shown(store)[1]
    assert launch.settle(way(reservation)).stale == []  # type: ignore[arg-type]
    look = Looking(store)
    assert shown(store) == ("cancelled", None)
    assert (look.listed("cancelled"), look.hash("unique_keys"), look.hash("stops")) == (["a"], {}, {})
    assert [r.name for r in launch.reserve(2)] == ["b"], "its place is free"


def test_a_completion_stands_and_shows_that_the_request_came_too_late(
    store: RedisStore, launch: Launch, person: MessageActions
) -> None:
    (reservation,) = launch.reserve()
    person.stop(QUEUE, "a")
    launch.settle(finish(reservation))
    state, asked_at = shown(store)
    assert (state, bool(asked_at)) == ("completed", True)
    with pytest.raises(BadData, match="completed already"):
        person.stop(QUEUE, "a")
    store.wire.run("trim", store.keys, QUEUE, [10, HOUR, 10, 0, 0, "", ""])
    assert Looking(store).hash("stops") == {}


@pytest.mark.parametrize("way", ["its heartbeat gives up", "the next launch recovers it", "begun at most once"])
def test_the_death_of_its_launch_cancels_it(
    store: RedisStore, launch: Launch, person: MessageActions, way: str
) -> None:
    (reservation,) = launch.reserve()
    if way == "begun at most once":
        launch.begin(reservation)
    person.stop(QUEUE, "a")
    if way == "its heartbeat gives up":
        store.requeue(launch.claim, QUEUE, [b"a"])
    launch = Launch(store, fence=2)
    assert shown(store)[0] == "cancelled"
    assert Looking(store).hash("stops") == {}
    assert [r.name for r in launch.reserve(2)] == ["b"]


def test_the_marker_is_that_of_the_launch_which_has_it(
    store: RedisStore, launch: Launch, person: MessageActions
) -> None:
    launch.reserve()
    for _ in range(2):
        person.stop(QUEUE, "a")
    marker = f"{store.keys.queue(QUEUE, 'stop_marker')}:1"
    assert store.wire.command("LLEN", marker) == 1
    assert 0 < store.wire.command("PTTL", marker) <= 60_000


def test_what_is_not_reserved_is_cancelled_and_what_is_unknown_is_not_found(
    store: RedisStore, launch: Launch, person: MessageActions
) -> None:
    store.enqueue([message("later", delay=HOUR)])
    for name in ("a", "later"):
        person.stop(QUEUE, name)
        assert shown(store, name) == ("cancelled", None)
        with pytest.raises(BadData, match="cancelled already"):
            person.stop(QUEUE, name)
    with pytest.raises(NotFound):
        person.stop(QUEUE, "unknown")
    assert launch.reserve(2)[0].name == "b"
