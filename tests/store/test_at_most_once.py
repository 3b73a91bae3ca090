"""Handled at most once: the store knows before the handler begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import LeaseLost
from pollconsumer.core.lifecycle import State
from pollconsumer.store.records.reservations import Reservation
from tests.store.acting import QUEUE, Launch, Looking, message, names, park, release, retry
from tests.store.servers import snapshot

if TYPE_CHECKING:
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector
    from pollconsumer.store.records.reservations import DeadLetter


def begun(launch: Launch) -> Reservation:
    (reservation,) = launch.reserve()
    assert launch.begin(reservation) == []
    return reservation


def test_what_was_begun_is_completed_as_any_other(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    reservation = begun(launch)
    assert look.ranked("in_flight") == ["a"]
    assert launch.complete(reservation).stale == []
    assert look.listed("completed") == ["a"]


def test_beginning_again_after_a_lost_reply_changes_nothing(store: RedisStore) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    row = reservation.row
    launch.begin(reservation)
    before = snapshot(store.wire)
    reservation.row = row
    assert launch.begin(reservation) == []
    assert snapshot(store.wire) == before


def test_several_are_begun_together(store: RedisStore, look: Looking) -> None:
    store.enqueue([message(name) for name in "abcd"])
    launch = Launch(store)
    a, *others = launch.reserve(4)
    row = a.row
    for _ in range(2):  # the reply may have been lost
        for each in (a, *others):
            each.row = row
        assert launch.begin(a, *others[:2]) == []
        assert [each.begun for each in (a, *others)] == [True, True, True, False]
    store.maintenance.recover(QUEUE, [])
    assert look.ranked("in_flight") == [*"abcd"]
    assert launch.complete(a, *others).stale == []


def test_of_those_begun_together_one_that_was_taken_over_has_not_begun(store: RedisStore, look: Looking) -> None:
    store.enqueue([message(name) for name in "abc"])
    launch = Launch(store)
    a, b, c = launch.reserve(3)
    store.wire.command("HDEL", look.key("rows"), "b")
    assert launch.begin(a, b, c) == [b"b"]
    assert [each.begun for each in (a, b, c)] == [True, False, True]


def test_under_an_older_fence_nothing_is_begun(store: RedisStore) -> None:
    store.enqueue([message("a"), message("b")])
    launch = Launch(store)
    a, b = launch.reserve(2)
    store.maintenance.announce(Launch(store, fence=2).claim, QUEUE)
    before = snapshot(store.wire)
    with pytest.raises(LeaseLost):
        launch.begin(b, a)
    assert snapshot(store.wire) == before


def test_what_was_taken_over_cannot_be_begun(store: RedisStore) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    (reservation,) = launch.reserve(lasts_ms=0)
    store.maintenance.recover(QUEUE, [])
    row = reservation.row
    assert launch.begin(reservation) == [b"a"]
    assert reservation.row == row


def test_what_was_begun_is_not_given_back(store: RedisStore, look: Looking) -> None:
    """Its launch may ask for that, where a reply was lost, or have died."""
    store.enqueue([message("a")])
    launch = Launch(store)
    begun(launch)
    assert store.unreserve(launch.claim, QUEUE, []) == 0
    assert (look.ranked("in_flight"), look.listed("ready")) == (["a"], [])


def test_who_recovers_hears_of_each_that_is_skipped(store: RedisStore) -> None:
    store.enqueue([message("a", handler="send")])
    begun(Launch(store))
    told: list[DeadLetter] = []
    successor = Launch(store, fence=2, announced=False)
    assert store.maintenance.announce(successor.claim, QUEUE, on_dead_letter=told.append) == 1
    ((death, problem),) = told
    assert (death.name, death.handler, death.attempt) == ("a", "send", 1)
    assert problem.startswith("skipped: ")


def test_a_death_while_it_is_handled_skips_it(store: RedisStore, look: Looking, inspector: Inspector) -> None:
    store.enqueue([message("a"), message("b")])
    launch = Launch(store)
    begun(launch)
    launch.reserve()
    successor = Launch(store, fence=2)
    assert successor.recovered == 2
    assert names(successor.reserve(9)) == ["b"]
    found = inspector.message("a")
    assert found.state is State.DEAD
    assert found.last_error is not None
    assert found.last_error.startswith("skipped: ")
    assert look.hash("counters")["skipped"] == b"1"
    assert look.ranked("dead_letters") == ["a"]


def test_past_its_hard_end_it_is_skipped_too(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    (reservation,) = launch.reserve(lasts_ms=0)
    launch.begin(reservation)
    assert store.maintenance.recover(QUEUE, []) == 1
    assert look.ranked("dead_letters") == ["a"]


def test_what_was_skipped_may_be_redriven_and_is_handled_afresh(store: RedisStore, person: MessageActions) -> None:
    store.enqueue([message("a")])
    begun(Launch(store))
    launch = Launch(store, fence=2)
    assert person.redrive(QUEUE, ["a"]) == ["a"]
    launch.reserve()
    assert names(Launch(store, fence=3).reserve()) == ["a"]  # it had not begun this time


def test_what_is_deferred_or_tried_again_has_not_begun(store: RedisStore) -> None:
    """A process that dies between reserving it and beginning must not lose it."""
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.settle(release(begun(launch)))
    launch.reserve()
    successor = Launch(store, fence=2)
    successor.settle(retry(begun(successor)))
    store.promote(successor.claim, QUEUE, 1)
    successor.reserve()
    last = Launch(store, fence=3)
    last.settle(park(begun(last)))
    store.promote(last.claim, QUEUE, 1)
    last.reserve()
    assert names(Launch(store, fence=4).reserve()) == ["a"]
