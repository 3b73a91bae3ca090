"""Orphans: reserved by a launch that is gone, and offered again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import LeaseLost, StoreRefused
from pollconsumer.core.lifecycle import State
from pollconsumer.store.queues import maintenance
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, message, names
from tests.store.servers import server_ms, snapshot

if TYPE_CHECKING:
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector


AT_MOST_ONCE = "skipped: its process died after it was recorded as begun, and it is delivered at most once"


@pytest.fixture
def look(store: RedisStore) -> Looking:
    return Looking(store)


@pytest.mark.parametrize("priority", [0, 3])
def test_a_new_holder_offers_again_first_what_the_one_before_it_had_reserved(store: RedisStore, priority: int) -> None:
    store.enqueue([message(name, priority=priority) for name in ("a", "b", "c")])
    Launch(store, fence=1).reserve(2)
    successor = Launch(store, fence=2)
    assert successor.recovered == 2
    assert names(successor.reserve(9)) == ["a", "b", "c"]


@pytest.mark.parametrize("priority", [0, 3])
def test_orphans_come_back_in_the_order_in_which_they_were_reserved(store: RedisStore, priority: int) -> None:
    ids = ["9", "10", "11", "2", "1"]
    store.enqueue([message(name, priority=priority) for name in ids])
    launch = Launch(store, fence=1)
    (first,) = launch.reserve(1, lasts_ms=HOUR + 9)  # as of one whose request was long under way
    while server_ms(store.wire) == first.reserved_at:
        pass
    launch.reserve(3)
    assert names(Launch(store, fence=2).reserve(9)) == ids


@pytest.mark.parametrize("priority", [0, 3])
def test_what_a_lost_reply_had_reserved_comes_back_in_its_order(store: RedisStore, priority: int) -> None:
    ids = ["9", "10", "11", "2", "1"]
    store.enqueue([message(name, priority=priority) for name in ids])
    launch = Launch(store)
    launch.reserve(4)
    assert store.unreserve(launch.claim, QUEUE, []) == 4
    assert names(launch.reserve(9)) == ids


def test_the_attempt_of_an_orphan_stays_counted(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message("a")])
    attempts = [Launch(store, fence=fence).reserve()[0].attempt for fence in (1, 2, 3)]
    assert attempts == [1, 2, 3]
    Launch(store, fence=4)
    found = inspector.message("a")
    assert (found.state, found.row.attempts, found.row.timestamps.reserved_at) == (State.READY, 3, None)
    assert found.last_error == "died: its launch died while it was in flight", "what each attempt was charged for"


def test_why_a_message_died_is_kept_as_its_error_where_it_is_known(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message(name) for name in ("hung", "beside", "once", "other")])
    launch = Launch(store)
    hung, beside, once, other = launch.reserve(4)
    launch.begin(once)
    launch.begin(other)
    known = {each.id: f"killed: {each.name} did not stop" for each in (hung, once)}
    store.requeue(launch.claim, QUEUE, [each.id for each in (hung, beside)], known=known)
    found = {each: inspector.message(each) for each in ("hung", "beside", "once", "other")}
    assert {name: (each.state, each.last_error, each.row.attempts) for name, each in found.items()} == {
        "hung": (State.READY, "killed: hung did not stop", 1),
        "beside": (State.READY, "died: its launch died while it was in flight", 1),
        "once": (State.DEAD, "killed: once did not stop", 1),
        "other": (State.DEAD, AT_MOST_ONCE, 1),
    }
    assert [each.crashes for each in Launch(store, fence=2).reserve(9)] == [1, 1]


def test_what_the_current_holder_has_reserved_is_left_alone(store: RedisStore) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    reserved = launch.reserve()
    before = snapshot(store.wire)
    assert store.maintenance.recover(QUEUE) == 0
    assert snapshot(store.wire) == before
    assert launch.complete(*reserved).stale == []


def test_announcing_again_with_the_same_fence_recovers_nothing(store: RedisStore) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.reserve()
    assert store.maintenance.announce(launch.claim, QUEUE) == 0


def test_another_slot_keeps_what_it_has_reserved(store: RedisStore) -> None:
    store.enqueue([message("a"), message("b")])
    first, second = Launch(store, fence=1, slot=0), Launch(store, fence=2, slot=1)
    first.reserve()
    kept = second.reserve()
    successor = Launch(store, fence=3, slot=0)
    assert names(successor.reserve(9)) == ["a"]
    assert second.complete(*kept).stale == []


def test_past_its_hard_end_is_recovered_unless_its_holder_lives(store: RedisStore) -> None:
    store.enqueue([message("past"), message("within")])
    launch = Launch(store, fence=7)
    launch.reserve(lasts_ms=0)
    launch.reserve(lasts_ms=60_000)
    assert store.maintenance.recover(QUEUE) == 0
    assert store.maintenance.recover(QUEUE, [b"6", b"7"]) == 0
    assert store.maintenance.recover(QUEUE, [b"6"]) == 1
    assert names(launch.reserve(9)) == ["past"]


def test_what_cannot_be_read_takes_no_neighbour_with_it(store: RedisStore, look: Looking) -> None:
    store.enqueue([message(name) for name in ("a", "short row", "b", "junk record", "c")])
    store.wire.command("HSET", look.key("rows"), "short row", "x")
    store.wire.command("HSET", look.key("records"), "junk record", "junk")
    assert names(Launch(store, fence=1).reserve(9)) == ["a", "b", "c"]
    assert sorted(look.ranked("dead_letters")) == ["junk record", "short row"]
    store.wire.command("HSET", look.key("rows"), "b", "x")
    Launch(store, fence=2)
    assert sorted(look.listed("ready")) == ["a", "b", "c"]


def test_recovering_wakes_the_consumer(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a")])
    Launch(store, fence=1).reserve()
    look.take_marker()
    Launch(store, fence=2)
    assert look.marker() == 1


def test_more_orphans_than_a_batch_holds_are_all_recovered_in_order(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "RECOVER_PAGE", 4)
    ids = [f"m{n}" for n in range(11)]
    store.enqueue([message(name) for name in ids])
    Launch(store, fence=1).reserve(11)
    assert Launch(store, fence=2).recovered == 11
    assert look.listed("ready") == ids
    assert look.ranked("in_flight") == []


def test_orphans_behind_reservations_that_stand_are_found(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "RECOVER_PAGE", 3)
    store.enqueue([message(f"m{n:02}") for n in range(12)])
    standing, gone = Launch(store, fence=1, slot=0), Launch(store, fence=2, slot=1)
    kept = []
    for _ in range(3):
        kept += names(standing.reserve(3, lasts_ms=60_000))
        gone.reserve(1, lasts_ms=90_000)
    assert Launch(store, fence=3, slot=1).recovered == 3
    assert sorted(look.ranked("in_flight")) == sorted(kept)


def test_an_older_holder_cannot_announce_itself(store: RedisStore) -> None:
    Launch(store, fence=2)
    before = snapshot(store.wire)
    with pytest.raises(LeaseLost):
        Launch(store, fence=1)
    assert snapshot(store.wire) == before


def test_fences_are_compared_as_numbers(store: RedisStore) -> None:
    Launch(store, fence=9)
    Launch(store, fence=10)
    with pytest.raises(LeaseLost):
        Launch(store, fence=9)


def test_a_reservation_whose_row_is_gone_is_offered_again(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.reserve()
    store.wire.command("HDEL", look.key("rows"), "a")
    assert store.maintenance.recover(QUEUE) == 1
    assert look.ranked("in_flight") == []
    assert names(launch.reserve()) == ["a"]


@pytest.mark.parametrize("name", ["ready", "rows", "schedule", "ready_marker", "parked"])
def test_a_queue_with_a_key_of_a_wrong_type_is_refused_with_its_name(
    store: RedisStore, look: Looking, name: str
) -> None:
    store.wire.command("SET", look.key(name), "another program's")
    with pytest.raises(StoreRefused, match=re.escape(f"{look.key(name)} is a string")):
        Launch(store)


@pytest.mark.parametrize("priority", [0, 3])
def test_what_was_reserved_unknown_to_its_holder_is_given_back_first_and_uncharged(
    store: RedisStore, look: Looking, priority: int
) -> None:
    store.enqueue([message(name, priority=priority) for name in ("a", "b", "c", "d")])
    launch = Launch(store)
    launch.reserve(3)
    look.take_marker()
    assert store.unreserve(launch.claim, QUEUE, [b"b"]) == 2
    assert look.ranked("in_flight") == ["b"]
    assert look.marker() == 1
    again = launch.reserve(9)
    assert names(again) == ["a", "c", "d"]
    assert [r.attempt for r in again] == [1, 1, 1]


def test_only_ones_own_reservations_are_given_back(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a"), message("b")])
    first, second = Launch(store, fence=1, slot=0), Launch(store, fence=2, slot=1)
    first.reserve()
    second.reserve()
    assert store.unreserve(first.claim, QUEUE, []) == 1
    assert look.ranked("in_flight") == ["b"]


def test_an_overtaken_holder_gives_nothing_back(store: RedisStore) -> None:
    store.enqueue([message("a")])
    old = Launch(store, fence=1)
    old.reserve()
    store.wire.command("HSET", store.keys.queue(QUEUE, "announced"), old.claim.lease_name, "2")
    before = snapshot(store.wire)
    with pytest.raises(LeaseLost):
        store.unreserve(old.claim, QUEUE, [])
    assert snapshot(store.wire) == before


def test_who_gives_up_does_not_take_its_successors_word_out_of_the_queue(store: RedisStore) -> None:
    store.enqueue([message("a")])
    old, new = Launch(store, fence=1), Launch(store, fence=2)
    reserved = new.reserve()
    store.wire.call("retire", [store.keys.queue(QUEUE, "announced")], [old.claim.lease_name, old.claim.fence])
    assert store.maintenance.recover(QUEUE) == 0
    assert new.complete(*reserved).stale == []


def test_a_successor_whose_announcement_is_lost_with_the_servers_last_second_has_lost_its_lease(
    store: RedisStore,
) -> None:
    store.enqueue([message("a")])
    store.requeue(Launch(store).claim, QUEUE, [])
    with pytest.raises(LeaseLost):
        Launch(store, fence=2, announced=False).reserve()


def test_the_first_launch_of_a_group_whose_announcement_is_lost_has_lost_its_lease(store: RedisStore) -> None:
    store.enqueue([message("a")])
    Launch(store, slot=1)
    with pytest.raises(LeaseLost):
        Launch(store, fence=2, announced=False).reserve()


def test_what_a_dead_holder_had_ended_is_charged_with_the_attempt_and_not_with_the_death(store: RedisStore) -> None:
    store.enqueue([message(name) for name in ("ended", "hand", "last", "ahead")])
    launch = Launch(store)
    launch.reserve(9)
    store.requeue(launch.claim, QUEUE, [b"hand"], [b"ended"], [b"last"])
    found = {r.name: (r.attempt, r.crashes, r.spent) for r in Launch(store, fence=2).reserve(9)}
    assert found == {
        "ended": (2, 0, False),
        "hand": (2, 1, False),
        "last": (2, 255, True),
        "ahead": (1, 0, False),
    }


def test_a_redriven_message_has_all_its_attempts_before_it(store: RedisStore, person: MessageActions) -> None:
    store.enqueue([message("last")])
    launch = Launch(store)
    launch.reserve()
    store.requeue(launch.claim, QUEUE, [], [], [b"last"])
    successor = Launch(store, fence=2)
    successor.settle(die(successor.reserve()[0]))
    person.redrive(QUEUE, ["last"])
    again = successor.reserve()[0]
    assert (again.attempt, again.crashes, again.spent) == (1, 0, False)
