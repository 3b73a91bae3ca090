"""Changes of what waits: its priority, its payload."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import BadData, NotFound
from pollconsumer.core.lifecycle import State
from pollconsumer.store.reading.inspector import Inspector
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, message, names, retry

if TYPE_CHECKING:
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore

LARGE = b'{"text":"%b"}' % (b"x" * 2000)


def test_a_ready_message_stands_behind_those_of_its_new_priority(store: RedisStore, person: MessageActions) -> None:
    store.enqueue([message("a"), message("b", priority=-3), message("c", priority=-3), message("d", priority=5)])
    person.change(QUEUE, "a", priority=-3)
    person.change(QUEUE, "b", priority=0)
    person.change(QUEUE, "d", priority=-4)
    assert names(Launch(store).reserve(9)) == ["d", "c", "a", "b"]


def test_one_that_comes_later_now_is_not_handed_out_before_its_turn(store: RedisStore, person: MessageActions) -> None:
    store.enqueue([message(name) for name in "abc"])
    person.change(QUEUE, "a", priority=5)
    launch = Launch(store)
    assert names(launch.reserve(2)) == ["b", "c"]
    assert names(launch.reserve(9)) == ["a"]
    assert Inspector(store.wire, NAMESPACE).counts(QUEUE).ready == 0


def test_one_that_was_put_off_stands_once_and_behind_those_that_became_ready_before_it(
    store: RedisStore, person: MessageActions
) -> None:
    store.enqueue([message(name) for name in "abc"])
    person.change(QUEUE, "a", delay=HOUR)
    person.change(QUEUE, "a", delay=0)
    inspector = Inspector(store.wire, NAMESPACE)
    assert [each.id for each in inspector.messages(State.READY, QUEUE, 9)] == ["b", "c", "a"]
    assert inspector.counts(QUEUE).ready == 3
    launch = Launch(store)
    assert names(launch.reserve(1)) == ["b"]
    assert names(launch.reserve(9)) == ["c", "a"]
    assert inspector.counts(QUEUE).ready == 0


def test_a_scheduled_message_has_its_new_priority_when_it_is_due(
    store: RedisStore, person: MessageActions, look: Looking
) -> None:
    store.enqueue([message("a", delay=HOUR), message("b")])
    person.change(QUEUE, "a", priority=-1)
    assert look.ranked("schedule") == ["a"]
    person.change(QUEUE, "a", delay=0)
    assert names(Launch(store).reserve(9)) == ["a", "b"]


def test_one_that_is_ready_keeps_its_place_under_the_priority_that_it_has(
    store: RedisStore, person: MessageActions
) -> None:
    store.enqueue([message("a"), message("b")])
    person.change(QUEUE, "a", priority=0, payload=b'{"n":1}')
    assert names(Launch(store).reserve(9)) == ["a", "b"]


@pytest.mark.parametrize("first", [b'{"n":1}', LARGE])
@pytest.mark.parametrize("later", [b'{"n":2}', LARGE])
@pytest.mark.parametrize("delay", [None, HOUR])
@pytest.mark.parametrize("digest", ["", "a1" * 8])
def test_it_is_handled_with_its_new_payload(
    store: RedisStore, person: MessageActions, first: bytes, later: bytes, delay: int | None, digest: str
) -> None:
    new = message("a", payload=first, delay=delay, key="k", digest=digest, headers={"n": "1"})
    store.enqueue([new])
    person.change(QUEUE, "a", payload=later, delay=0 if delay else None)
    launch = Launch(store)
    (a,) = launch.reserve()
    assert (a.payload, a.handler, a.attempt) == (later, "handler", 1)
    assert store.enqueue([message("b", key="k")]) == [("a", True)]
    assert store.enqueue([new]) == [("a", True)]
    launch.complete(a)
    assert store.enqueue([message("b", key="k"), new]) == [("b", False), ("a", True)]


def test_one_that_waits_to_be_retried_keeps_its_attempts_and_its_due_time(
    store: RedisStore, person: MessageActions, look: Looking
) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.settle(retry(launch.reserve()[0], HOUR))
    due = look.due("a")
    person.change(QUEUE, "a", payload=LARGE, priority=7)
    assert look.due("a") == due
    person.change(QUEUE, "a", delay=0)
    (a,) = launch.reserve()
    assert (a.payload, a.attempt) == (LARGE, 2)


def test_in_line_for_a_concurrency_key_its_priority_counts(store: RedisStore, person: MessageActions) -> None:
    store.enqueue([message(name, concurrency="c") for name in "abc"])
    launch = Launch(store)
    (a,) = launch.reserve(9)
    person.change(QUEUE, "c", priority=-1)
    person.change(QUEUE, "b", payload=LARGE)
    assert launch.reserve(9) == []
    launch.complete(a)
    (c,) = launch.reserve(9)
    assert c.name == "c"
    launch.complete(c)
    (b,) = launch.reserve(9)
    assert b.payload == LARGE


@pytest.mark.parametrize("priority", [0, 7])
def test_one_that_is_ready_keeps_its_turn_where_it_is_to_be_due_now(
    store: RedisStore, person: MessageActions, priority: int
) -> None:
    store.enqueue([message("a", priority=priority), message("b", priority=priority)])
    person.change(QUEUE, "a", delay=0)
    assert names(Launch(store).reserve(9)) == ["a", "b"]


def test_the_next_attempt_is_due_when_the_message_is(store: RedisStore, person: MessageActions, look: Looking) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.settle(retry(launch.reserve()[0], HOUR))
    person.change(QUEUE, "a", delay=2 * HOUR)
    times = look.row("a").timestamps
    assert times.next_attempt_at == times.due_at


def test_what_is_in_hand_or_not_there_is_not_changed(store: RedisStore, person: MessageActions, look: Looking) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    (a,) = launch.reserve()
    before = look.hash("rows"), look.hash("records")
    with pytest.raises(BadData, match="cannot change: a; it is reserved already"):
        person.change(QUEUE, "a", payload=LARGE, priority=1)
    assert (look.hash("rows"), look.hash("records")) == before
    launch.complete(a)
    with pytest.raises(BadData, match="it is completed already"):
        person.change(QUEUE, "a", priority=1)
    with pytest.raises(NotFound):
        person.change(QUEUE, "b", priority=1)
