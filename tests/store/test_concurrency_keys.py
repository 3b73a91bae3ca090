"""Concurrency keys: at most so many messages with the same key in flight, the others in line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.lifecycle import State
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, finish, message, names, park, release, retry
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector
    from pollconsumer.store.records.reservations import Reservation
    from pollconsumer.store.records.steps import Completion, Settlement

ENDS: list[Callable[[Reservation], Settlement | Completion]] = [
    lambda r: retry(r, HOUR),
    die,
    lambda r: park(r, HOUR),
    finish,
]


def keyed(*ids: str, key: str = "k", limit: int = 1, priority: int = 0) -> list[NewMessage]:
    return [message(name, concurrency=key, limit=limit, priority=priority) for name in ids]


def waiting(look: Looking) -> list[str]:
    """Those in line that have not been offered a place, in the order of the line."""
    return [name for name in look.lined() if look.row(name).waiting]


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("priority", [0, 2])
def test_no_more_are_in_flight_than_the_limit_and_first_come_first(
    store: RedisStore, look: Looking, limit: int, priority: int
) -> None:
    ids = [f"m{n}" for n in range(8)]
    store.enqueue(keyed(*ids, limit=limit, priority=priority))
    launch, handed_out = Launch(store), list[str]()
    reserved = launch.reserve(9)
    while reserved:
        assert len(look.ranked("in_flight")) <= limit
        assert look.hash("places_taken") == {"k": str(len(look.ranked("in_flight"))).encode()}
        handed_out += names(reserved)
        reserved = launch.step(completed=reserved, wanted=9).reserved
    assert handed_out == ids
    assert look.hash("places_taken") == {}
    assert look.lined() == []


def test_other_messages_go_past_those_in_line(store: RedisStore) -> None:
    store.enqueue([*keyed("a", "b", "c"), message("x"), *keyed("d", key="other"), message("y", priority=1)])
    assert names(Launch(store).reserve(4)) == ["a", "x", "d", "y"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("priority", [0, 2])
def test_the_first_in_line_is_offered_the_place_of_whatever_leaves(
    store: RedisStore, look: Looking, end: Callable[[Reservation], Settlement | Completion], priority: int
) -> None:
    store.enqueue(keyed("a", "b", "c", priority=priority))
    launch = Launch(store)
    (a,) = launch.reserve(9)
    look.take_marker()
    launch.settle(end(a))
    assert look.marker() == 1
    assert waiting(look) == ["c"]
    assert names(launch.reserve(9)) == ["b"]


def test_places_that_fall_free_together_are_taken_in_the_order_of_the_line(store: RedisStore) -> None:
    store.enqueue(keyed("a", "b", "c", "d", "e", limit=2))
    launch = Launch(store)
    a, b = launch.reserve(9)
    launch.settle(retry(a, HOUR), die(b))
    assert [names(launch.reserve(1)) for _ in range(3)] == [["c"], ["d"], []]


def test_those_in_line_stand_by_priority_and_age(store: RedisStore) -> None:
    store.enqueue(keyed("a", "b") + keyed("late", priority=5) + keyed("soon", priority=-5))
    launch, order = Launch(store), list[str]()
    reserved = launch.reserve(1)
    assert launch.reserve(9) == []
    store.enqueue(keyed("sooner", priority=-6))
    assert launch.reserve(9) == []
    while reserved:
        order += names(reserved)
        reserved = launch.step(completed=reserved, wanted=9).reserved
    assert order == ["soon", "sooner", "a", "b", "late"]


def test_what_is_released_goes_before_those_that_waited_behind_it(store: RedisStore) -> None:
    store.enqueue(keyed("a", "b", "c", "d", limit=2))
    launch = Launch(store)
    reserved = launch.reserve(9)
    launch.settle(*map(release, reversed(reserved)))
    again = launch.reserve(9)
    assert names(again) == ["a", "b"]
    assert names(launch.step(completed=again, wanted=9).reserved) == ["c", "d"]


def test_what_a_launch_that_died_had_in_flight_leaves_its_place(store: RedisStore, look: Looking) -> None:
    store.enqueue(keyed("a", "b", "c"))
    Launch(store).reserve(9)
    successor = Launch(store, fence=2)
    assert look.hash("places_taken") == {}
    order = []
    while reserved := successor.reserve(9):
        order += names(reserved)
        successor.complete(*reserved)
    assert order == ["a", "b", "c"]


def test_what_is_skipped_leaves_its_place(store: RedisStore) -> None:
    store.enqueue(keyed("a", "b"))
    launch = Launch(store)
    (reserved,) = launch.reserve(9)
    launch.begin(reserved)
    assert names(Launch(store, fence=2).reserve(9)) == ["b"]


def test_what_was_reserved_unknown_to_its_holder_leaves_its_place(store: RedisStore, look: Looking) -> None:
    store.enqueue(keyed("a", "b"))
    launch = Launch(store)
    launch.reserve(9)
    assert store.unreserve(launch.claim, QUEUE, []) == 1
    assert look.hash("places_taken") == {}
    assert names(launch.reserve(9)) == ["a"]


@pytest.mark.parametrize("priority", [0, 2])
@pytest.mark.parametrize("away", ["cancel", "reschedule"])
def test_a_place_offered_to_one_that_is_taken_away_is_offered_to_the_next(
    store: RedisStore, look: Looking, person: MessageActions, inspector: Inspector, priority: int, away: str
) -> None:
    store.enqueue(keyed("a", "b", "c", priority=priority))
    launch = Launch(store)
    launch.complete(*launch.reserve(9))
    look.take_marker()
    if away == "cancel":
        person.cancel(QUEUE, "b")
    else:
        person.change(QUEUE, "b", delay=HOUR)
    assert look.marker() == 1
    assert waiting(look) == []
    assert inspector.overview().queues[0].ready == 1
    assert names(launch.reserve(9)) == ["c"]
    assert inspector.overview().queues[0].ready == 0


@pytest.mark.parametrize("priority", [0, 2])
def test_what_is_taken_out_of_the_line_is_not_handed_out(
    store: RedisStore, look: Looking, person: MessageActions, inspector: Inspector, priority: int
) -> None:
    store.enqueue(keyed("a", "b", "c", "d", priority=priority))
    launch = Launch(store)
    (a,) = launch.reserve(9)
    person.cancel(QUEUE, "b")
    person.change(QUEUE, "c", delay=HOUR)
    assert waiting(look) == ["d"]
    assert inspector.overview().queues[0].ready == 1
    assert names(launch.step(completed=[a], wanted=9).reserved) == ["d"]


def test_one_that_stands_among_the_ready_twice_is_set_aside_once(
    store: RedisStore, look: Looking, person: MessageActions, inspector: Inspector
) -> None:
    """Rescheduled and ready again, its id stands in the list at its old place and at its new one."""
    store.enqueue(keyed("first", "twice"))
    launch = Launch(store)
    (first,) = launch.reserve(1)
    person.change(QUEUE, "twice", delay=HOUR)
    person.change(QUEUE, "twice", delay=0)
    for _ in range(3):
        assert launch.reserve(1) == []
    assert waiting(look) == ["twice"]
    assert inspector.overview().queues[0].ready == 1
    (twice,) = launch.step(completed=[first], wanted=9).reserved
    assert launch.begin(twice) == []
    assert inspector.overview().queues[0].ready == 0


def test_offering_over_and_over_offers_nothing_anew(store: RedisStore, look: Looking) -> None:
    """The mover does it every second, whether anybody is there to reserve or not."""
    store.enqueue(keyed("a", "b", "c", "d", "e", limit=2))
    launch = Launch(store)
    launch.complete(*launch.reserve(9))
    look.take_marker()
    for _ in range(5):
        assert store.maintenance.offer_places(QUEUE) == 0
    assert look.marker() == 0
    assert waiting(look) == ["e"]
    assert names(launch.reserve(9)) == ["c", "d"]


def test_a_step_that_frees_and_takes_places_of_many_keys_leaves_their_numbers(store: RedisStore, look: Looking) -> None:
    """Whatever else it writes to keep the server from searching a list."""
    store.enqueue([message(f"m{n}", concurrency=f"k{n % 40}", limit=2) for n in range(100)])
    launch = Launch(store)
    reserved = launch.reserve(50)
    assert look.hash("places_taken") == {f"k{n}": b"2" if n < 10 else b"1" for n in range(40)}
    reserved = launch.step(completed=reserved, wanted=45).reserved
    assert look.hash("places_taken") == {f"k{n % 40}": b"2" if n in range(50, 55) else b"1" for n in range(50, 90)}
    launch.complete(*reserved)
    assert look.hash("places_taken") == {}


def test_a_stale_completion_gives_back_no_place(store: RedisStore, look: Looking) -> None:
    store.enqueue(keyed("a", "b", "c", limit=3))
    launch = Launch(store)
    reserved = launch.reserve(9)
    launch.settle(release(reserved[1]))
    while server_ms(store.wire) == reserved[1].reserved_at:
        pass  # reserved again in the same millisecond, its row would be the same
    assert names(launch.reserve(9)) == ["b"]
    assert launch.complete(*reserved).stale == [b"b"]
    assert look.hash("places_taken") == {"k": b"1"}


def test_what_is_completed_gives_back_its_place_even_if_its_record_is_missing(store: RedisStore, look: Looking) -> None:
    store.enqueue(keyed("a", "b"))
    launch = Launch(store)
    reserved = launch.reserve(9)
    store.wire.command("HDEL", look.key("records"), "a")
    launch.complete(*reserved)
    assert names(launch.reserve(9)) == ["b"]


@pytest.mark.parametrize("counted", ["none", "-3", ""])
def test_a_number_of_places_that_is_none_counts_anew(store: RedisStore, look: Looking, counted: str) -> None:
    store.enqueue(keyed("a", "b"))
    store.wire.command("HSET", look.key("places_taken"), "k", counted)
    launch = Launch(store)
    for name in ["a", "b"]:
        reserved = launch.reserve()
        assert names(reserved) == [name]
        launch.complete(*reserved)
    assert look.hash("places_taken") == {}


@pytest.mark.parametrize("counted", [b"7", None])
def test_counts_that_went_wrong_are_healed(store: RedisStore, look: Looking, counted: bytes | None) -> None:
    store.enqueue(keyed("a", "b", "c") + keyed("p", "q", "r", key="2", limit=2))
    launch = Launch(store)
    reserved = launch.reserve(9)
    store.wire.command("HDEL", look.key("records"), "a")
    launch.settle(die(reserved[0]))
    assert look.hash("places_taken") == {"k": b"1", "2": b"2"}  # nobody could tell which key it was that had one less
    look.take_marker()
    if counted is None:
        store.wire.command("DEL", look.key("places_taken"))
    else:
        store.wire.command("HSET", look.key("places_taken"), "2", counted)
    assert store.maintenance.offer_places(QUEUE) == 1
    assert look.hash("places_taken") == {"2": b"2"}
    assert look.marker() == 1
    assert names(launch.reserve(9)) == ["b"]


def test_with_too_many_in_flight_the_counts_are_trusted(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.store.queues.maintenance.MOST_COUNTED", 1)
    store.enqueue(keyed("a", "b", "c", limit=2))
    Launch(store).reserve(9)
    store.wire.command("HSET", look.key("places_taken"), "k", 1)
    assert store.maintenance.offer_places(QUEUE) == 1
    assert look.hash("places_taken") == {"k": b"1"}


def test_more_keys_than_one_call_looks_at_are_all_healed(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.store.queues.maintenance.MOST_LINES", 3)
    for n in range(10):
        store.enqueue(keyed(f"{n}a", f"{n}b", key=f"k{n}"))
    Launch(store).reserve(99)
    for name in look.ranked("in_flight"):
        store.wire.command("ZREM", look.key("in_flight"), name)
    offered = 0
    for _ in range(10_000):
        offered += store.maintenance.offer_places(QUEUE)
        if offered == 10:
            break
    assert offered == 10


def test_a_line_whose_first_has_vanished_moves_on(store: RedisStore, look: Looking, inspector: Inspector) -> None:
    store.enqueue(keyed("a", "no row", "no record", "nothing", "b"))
    launch = Launch(store)
    reserved = launch.reserve(9)
    store.wire.command("HDEL", look.key("rows"), "no row", "nothing")
    store.wire.command("HDEL", look.key("records"), "no record", "nothing")
    launch.complete(*reserved)
    order = []
    for _ in range(9):
        store.maintenance.offer_places(QUEUE)
        reserved = launch.reserve(9)
        order += names(reserved)
        launch.complete(*reserved)
    assert order == ["no row", "b"]
    assert [letter.id for letter in inspector.messages(State.DEAD, QUEUE, 9)] == ["no record", "nothing"]
    assert look.lined() == []


def test_another_limit_holds_for_messages_enqueued_from_then_on(store: RedisStore) -> None:
    store.enqueue(keyed("a", "b") + keyed("c", "d", "e", limit=2))
    launch = Launch(store)
    order = []
    reserved = launch.reserve(9)
    while reserved:
        order.append(names(reserved))
        reserved = launch.step(completed=reserved, wanted=9).reserved
    assert order == [["a", "c"], ["b"], ["d", "e"]]


def test_those_in_line_are_ready_for_people(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue(keyed("a", "b", "c", "d"))
    launch = Launch(store)
    launch.complete(*launch.reserve(9))
    assert [found.id for found in inspector.messages(State.READY, QUEUE, 9)] == ["b", "c", "d"]
    assert inspector.overview().queues[0].ready == 3
    assert inspector.message("c").row.waiting


def test_a_parked_message_that_finds_its_places_taken_is_parked_no_more(
    store: RedisStore, inspector: Inspector
) -> None:
    store.enqueue(keyed("a", "b"))
    launch = Launch(store)
    launch.settle(*map(park, launch.reserve(1)))
    assert names(launch.reserve(1)) == ["b"]
    store.promote(launch.claim, QUEUE, 9)
    assert launch.reserve(1) == []
    assert not inspector.message("a").row.parked
    assert inspector.overview().queues[0].parked == 0


def test_a_step_looks_at_a_bounded_number_and_says_that_there_may_be_more(store: RedisStore, look: Looking) -> None:
    store.enqueue([*keyed(*(f"m{n}" for n in range(900))), message("x")])
    launch = Launch(store)
    (first,) = launch.reserve(1)
    looks = 0
    while not (stepped := launch.step(wanted=1)).reserved:
        looks += 1
        assert stepped.more_in == 0
        assert look.marker() == 1
    assert names(stepped.reserved) == ["x"]
    assert 2 <= looks <= 20
    assert names(launch.step(completed=[first], wanted=1).reserved) == ["m1"]
