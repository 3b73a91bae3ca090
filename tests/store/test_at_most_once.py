"""Handled at most once: the store knows before the handler begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import LeaseLost
from pollconsumer.core.lifecycle import State
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Reservation
from pollconsumer.store.records.steps import Share
from tests.store.acting import HOUR, QUEUE, Launch, Looking, message, names, park, release, retry
from tests.store.servers import snapshot

if TYPE_CHECKING:
    from pollconsumer.store.queues.interventions import Interventions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector
    from pollconsumer.store.records.reservations import DeadLetter
    from pollconsumer.store.records.steps import Done


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


def test_those_before_it_are_completed_in_the_same_round_trip(store: RedisStore, look: Looking) -> None:
    store.enqueue([message(name) for name in "abcd"])
    launch = Launch(store)
    a, b, c, _ = launch.reserve(4)
    launch.begin(a)
    row, before = b.row, a.row
    for _ in range(2):  # the reply may have been lost
        b.row = row
        assert launch.begin(b, a, c) == []
        assert look.listed("completed") == ["a", "c"]
        assert look.ranked("in_flight") == ["b", "d"]
    assert look.row("a").timestamps.completed_at == a.reserved_at
    assert before == a.row
    assert launch.complete(a, b, c).stale == []
    assert look.listed("completed") == ["a", "c", "b"]


def test_several_are_begun_together(store: RedisStore, look: Looking) -> None:
    store.enqueue([message(name) for name in "abcd"])
    launch = Launch(store)
    a, *others = launch.reserve(4)
    row = a.row
    for _ in range(2):  # the reply may have been lost
        for each in (a, *others):
            each.row = row
        assert launch.begin(a, with_it=others[:2]) == []
        assert [each.begun for each in (a, *others)] == [True, True, True, False]
    store.upkeep.recover(QUEUE, [])
    assert look.ranked("in_flight") == [*"abcd"]
    assert launch.complete(a, *others).stale == []


def test_of_those_begun_together_one_that_was_taken_over_has_not_begun(store: RedisStore, look: Looking) -> None:
    store.enqueue([message(name) for name in "abc"])
    launch = Launch(store)
    a, b, c = launch.reserve(3)
    store.wire.command("HDEL", look.key("rows"), "b")
    assert launch.begin(a, with_it=[b, c]) == [b"b"]
    assert [each.begun for each in (a, b, c)] == [True, False, True]


def test_a_completion_is_bare_if_it_leaves_and_frees_nothing(store: RedisStore) -> None:
    store.enqueue([message("a"), message("b", key="key"), message("c")])
    launch = Launch(store)
    a, b, c = launch.reserve(3)
    launch.begin(a)
    occurrence = Reservation.alone(QUEUE, b"x@2026-01-01T00:00:00Z", a.row, rows.bare_record(a.row))
    bare: list[Done] = [(a, 0.0, 0.001, None), (c, 0.001, 1.5, None)]
    others: list[Done] = [(b, 0.0, 0.0, None), (c, 0.0, 0.0, (HOUR, b"1", b"", b"")), (occurrence, 0.0, 0.0, None)]
    for done in (*bare, *others):
        share = Share(QUEUE)
        share.complete([done])
        assert share.is_bare() == (done in bare)


def test_one_before_it_that_was_taken_over_is_reported_and_does_not_keep_it_from_beginning(
    store: RedisStore, look: Looking
) -> None:
    store.enqueue([message("a"), message("b")])
    launch = Launch(store)
    (stale,) = launch.reserve(lasts_ms=0)
    store.upkeep.recover(QUEUE, [])
    current, b = launch.reserve(2)
    assert launch.begin(b, stale) == [b"a"]
    assert look.ranked("in_flight") == ["a", "b"]
    assert launch.complete(current, b).stale == []


def test_under_an_older_fence_nothing_is_begun_or_completed(store: RedisStore) -> None:
    store.enqueue([message("a"), message("b")])
    launch = Launch(store)
    a, b = launch.reserve(2)
    store.upkeep.announce(Launch(store, fence=2).holder, QUEUE)
    before = snapshot(store.wire)
    with pytest.raises(LeaseLost):
        launch.begin(b, a)
    assert snapshot(store.wire) == before


def test_what_was_taken_over_cannot_be_begun(store: RedisStore) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    (reservation,) = launch.reserve(lasts_ms=0)
    store.upkeep.recover(QUEUE, [])
    row = reservation.row
    assert launch.begin(reservation) == [b"a"]
    assert reservation.row == row


def test_what_was_begun_is_not_given_back(store: RedisStore, look: Looking) -> None:
    """Its launch may ask for that, where a reply was lost, or have died."""
    store.enqueue([message("a")])
    launch = Launch(store)
    begun(launch)
    assert store.unreserve(launch.holder, QUEUE, []) == 0
    assert (look.ranked("in_flight"), look.listed("ready")) == (["a"], [])


def test_what_was_recorded_as_begun_and_was_not_is_given_back_uncharged(
    store: RedisStore, look: Looking, inspector: Inspector
) -> None:
    store.enqueue([message(name) for name in "abcd"])
    launch = Launch(store)
    a, *others = launch.reserve(4)
    launch.begin(a, with_it=others)
    store.give_up(launch.holder, QUEUE, [], ended=[b"a"], spent=[b"b"], uncalled=[b"c", b"d"])
    assert look.ranked("dead_letters") == ["a", "b"]
    assert (look.listed("ready"), look.ranked("in_flight")) == (["c", "d"], [])
    found = inspector.message("c")
    assert (found.attempts, found.state) == (0, State.READY)
    Launch(store, fence=2).reserve(2)
    assert names(Launch(store, fence=3).reserve(2)) == ["c", "d"]  # they had not begun this time


def test_who_recovers_hears_of_each_that_is_skipped(store: RedisStore) -> None:
    store.enqueue([message("a", handler="send")])
    begun(Launch(store))
    told: list[DeadLetter] = []
    successor = Launch(store, fence=2, announced=False)
    assert store.upkeep.announce(successor.holder, QUEUE, on_dead_letter=told.append) == 1
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
    assert store.upkeep.recover(QUEUE, []) == 1
    assert look.ranked("dead_letters") == ["a"]


def test_what_was_skipped_may_be_redriven_and_is_handled_afresh(store: RedisStore, person: Interventions) -> None:
    store.enqueue([message("a")])
    begun(Launch(store))
    launch = Launch(store, fence=2)
    assert person.redrive(QUEUE, ["a"]) == ["a"]
    launch.reserve()
    assert names(Launch(store, fence=3).reserve()) == ["a"]  # it had not begun this time


def test_what_is_put_off_or_tried_again_has_not_begun(store: RedisStore) -> None:
    """A process that dies between reserving it and beginning must not lose it."""
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.settle(release(begun(launch)))
    launch.reserve()
    successor = Launch(store, fence=2)
    successor.settle(retry(begun(successor)))
    store.promote(successor.holder, QUEUE, 1)
    successor.reserve()
    last = Launch(store, fence=3)
    last.settle(park(begun(last)))
    store.promote(last.holder, QUEUE, 1)
    last.reserve()
    assert names(Launch(store, fence=4).reserve()) == ["a"]
