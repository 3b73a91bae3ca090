"""Ready messages of several priorities: smaller is sooner, a level of priority is worth an hour of waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.store.acting import HOUR, QUEUE, Launch, Looking, message, names, release

if TYPE_CHECKING:
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector

TICKS = 1024


def have_waited(store: RedisStore, look: Looking, ms: int, *ids: str) -> None:
    """Make messages of another priority than 0 that many ms older."""
    for name in ids:
        store.wire.command("ZINCRBY", look.key("ready_by_priority"), -ms * TICKS, name)


def test_smaller_is_sooner_and_first_in_first_out_among_equals(store: RedisStore) -> None:
    priorities = {"a": 1, "b": 0, "c": -1, "d": 1, "e": 0, "f": -1, "g": 4096, "h": -4096}
    for name, priority in priorities.items():
        store.enqueue([message(name, priority=priority)])
    assert names(Launch(store).reserve(9)) == ["h", "c", "f", "b", "e", "a", "d", "g"]


def test_equals_of_one_batch_keep_their_order(store: RedisStore) -> None:
    ids = [f"m{n}" for n in range(199, 0, -1)]
    store.enqueue([message(name, priority=7) for name in ids])
    assert names(Launch(store).reserve(200)) == ids


def test_the_order_is_the_same_one_by_one_and_all_at_once(store: RedisStore, look: Looking) -> None:
    store.enqueue([message(f"m{n}", priority=n % 5 - 2) for n in range(30)])
    have_waited(store, look, HOUR + 1, "m3", "m8", "m9")
    launch = Launch(store)
    at_once = launch.reserve(30)
    launch.settle(*map(release, reversed(at_once)))
    have_waited(store, look, HOUR + 1, "m3", "m8", "m9")
    one_by_one = [name for _ in range(30) for name in names(launch.reserve(1))]
    assert one_by_one == names(at_once)


def test_an_hour_of_waiting_is_worth_a_level(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("one", priority=1), message("two", priority=2), message("none")])
    have_waited(store, look, HOUR + 60_000, "one", "two")
    assert names(Launch(store).reserve(9)) == ["one", "none", "two"]


def test_less_than_an_hour_is_not(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("one", priority=1), message("none")])
    have_waited(store, look, HOUR - 60_000, "one")
    assert names(Launch(store).reserve(9)) == ["none", "one"]


def test_two_that_wait_age_alike(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("one", priority=1), message("two", priority=2)])
    have_waited(store, look, 500 * HOUR, "one", "two")
    assert names(Launch(store).reserve(9)) == ["one", "two"]


def test_nothing_starves_however_many_come_that_are_sooner(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("patient", priority=3)])
    launch, handed_out = Launch(store), list[str]()
    for half_hour in range(20):
        have_waited(store, look, HOUR // 2, *look.ranked("ready_by_priority"))
        store.enqueue([message(f"{half_hour}-{n}", priority=-1) for n in range(2)])
        handed_out += names(launch.reserve(1))
    assert "patient" in handed_out
    assert handed_out.index("patient") >= 8  # four levels apart: four hours


def test_what_is_cancelled_or_forgotten_at_the_head_does_not_hide_the_rest(
    store: RedisStore, look: Looking, inspector: Inspector
) -> None:
    store.enqueue([message("gone"), message("ranked", priority=1), message("after")])
    store.wire.command("HDEL", look.key("records"), "gone")
    assert names(Launch(store).reserve(3)) == ["after", "ranked"]
    assert inspector.message("gone").last_error == "malformed: its record is missing"


def test_one_that_cannot_be_read_does_not_take_the_place_of_one_that_can(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("junk"), message("sound")])
    store.wire.command("HSET", look.key("records"), "junk", "junk")
    assert names(Launch(store).step(wanted=1, wait=5.0).reserved) == ["sound"]


def test_what_is_cancelled_on_both_sides_of_a_message_lets_it_overtake_nobody(
    store: RedisStore, person: MessageActions
) -> None:
    store.enqueue([message("x"), message("a"), message("y"), message("sooner", priority=-1)])
    person.cancel(QUEUE, "x")
    person.cancel(QUEUE, "y")
    assert names(Launch(store).reserve(3)) == ["sooner", "a"]
