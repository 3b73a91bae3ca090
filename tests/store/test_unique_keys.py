"""Unique keys: held by one unfinished message, for as long as it is unfinished or for a lifetime."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, finish, message, names, retry

if TYPE_CHECKING:
    from pollconsumer.store.interventions import Interventions
    from pollconsumer.store.redis_store import RedisStore


def held_by(store: RedisStore, key: str = "k", lifetime: int = 0) -> str:
    """Who a further message with the key would be a duplicate of; "probe" if of none."""
    (answer,) = store.enqueue([message("probe", key=key, lifetime=lifetime)])
    return answer.id


def test_a_lifetime_ends_while_the_message_goes_on(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a", key="k", lifetime=20)])
    until = time.monotonic() + 10
    while held_by(store) == "a" and time.monotonic() < until:
        time.sleep(0.005)
    assert held_by(store) == "probe"
    assert look.listed("ready") == ["a", "probe"]


def test_within_its_lifetime_a_key_is_held(store: RedisStore) -> None:
    store.enqueue([message("a", key="k", lifetime=HOUR)])
    assert held_by(store) == "a"


def test_a_lapsed_holder_that_ends_leaves_the_key_to_the_next(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a", key="k", lifetime=HOUR)])
    store.wire.command("HSET", look.key("unique_keys"), "k", "a\n1")
    store.enqueue([message("b", key="k")])
    launch = Launch(store)
    (a,) = launch.reserve()
    launch.complete(a)
    assert held_by(store) == "b"


@pytest.mark.parametrize("lifetime", [0, HOUR])
@pytest.mark.parametrize("end", ["complete", "finish", "die", "cancel", "skip"])
def test_a_key_is_free_when_its_message_has_ended(
    store: RedisStore, look: Looking, person: Interventions, end: str, lifetime: int
) -> None:
    store.enqueue([message("a", key="k", lifetime=lifetime)])
    launch = Launch(store)
    if end == "cancel":
        person.cancel(QUEUE, "a")
    else:
        (a,) = launch.reserve()
        if end == "complete":
            launch.complete(a)
        elif end == "skip":
            launch.begin(a)
            Launch(store, fence=2)
        else:
            launch.settle(finish(a) if end == "finish" else die(a))
    assert look.hash("unique_keys") == {}
    assert held_by(store) == "probe"


def test_a_key_is_held_through_retries(store: RedisStore) -> None:
    store.enqueue([message("a", key="k")])
    launch = Launch(store)
    launch.settle(*map(retry, launch.reserve()))
    assert held_by(store) == "a"


@pytest.mark.parametrize("key", ["k", "a\nb", "\n", "ü" * 127])
def test_any_text_may_be_a_key(store: RedisStore, look: Looking, key: str) -> None:
    store.enqueue([message("a", key=key, lifetime=HOUR)])
    assert held_by(store, key, HOUR) == "a"
    launch = Launch(store)
    launch.complete(*launch.reserve())
    assert look.hash("unique_keys") == {}


def test_an_id_that_begins_like_the_holders_frees_nothing(store: RedisStore) -> None:
    store.enqueue([message("ab", key="k", lifetime=HOUR), message("a", key="k")])
    store.enqueue([message("a", key="other")])
    store.wire.command("HSET", store.keys.queue(QUEUE, "unique_keys"), "other", "ab\n9999999999999")
    launch = Launch(store)
    ab, a = launch.reserve(2)
    assert names([ab, a]) == ["ab", "a"]
    launch.complete(a)
    assert held_by(store, "other") == "ab"


@pytest.mark.parametrize("holder", ["nobody", "ended", "", "\n", "nobody\n9999999999999"])
def test_a_key_that_stands_for_nobody_swallows_nothing(store: RedisStore, look: Looking, holder: str) -> None:
    store.enqueue([message("ended")])
    launch = Launch(store)
    launch.complete(*launch.reserve())
    store.wire.command("HSET", look.key("unique_keys"), "k", holder)
    assert held_by(store) == "probe"


def test_a_dead_letter_takes_its_key_again_when_redriven(store: RedisStore, person: Interventions) -> None:
    store.enqueue([message("a", key="k", lifetime=HOUR)])
    launch = Launch(store)
    launch.settle(*map(die, launch.reserve()))
    assert person.redrive(QUEUE, ["a"]) == ["a"]
    assert held_by(store) == "a"
    launch.complete(*launch.reserve())
    assert held_by(store) == "probe"


def test_a_dead_letter_whose_key_is_anothers_by_now_stays(store: RedisStore, person: Interventions) -> None:
    store.enqueue([message("a", key="k")])
    launch = Launch(store)
    launch.settle(*map(die, launch.reserve()))
    store.enqueue([message("b", key="k")])
    assert person.redrive(QUEUE, ["a"]) == []
    launch.complete(*launch.reserve())
    assert person.redrive(QUEUE, ["a"]) == ["a"]


def test_of_two_dead_letters_with_one_key_one_returns(store: RedisStore, person: Interventions) -> None:
    launch = Launch(store)
    for name in ("a", "b"):
        store.enqueue([message(name, key="k")])
        launch.settle(*map(die, launch.reserve()))
    assert person.redrive(QUEUE, ["a", "b"]) == ["a"]


def test_a_dead_letter_that_lost_its_row_does_not_stand_in_its_own_way(
    store: RedisStore, look: Looking, person: Interventions
) -> None:
    store.enqueue([message("a", key="k")])
    launch = Launch(store)
    launch.settle(*map(die, launch.reserve()))
    store.wire.command("HDEL", look.key("rows"), "a")
    store.wire.command("HSET", look.key("unique_keys"), "k", "a")
    assert person.redrive(QUEUE, ["a"]) == ["a"]


def test_what_is_buried_for_its_row_frees_its_key_and_may_return(
    store: RedisStore, look: Looking, person: Interventions
) -> None:
    store.enqueue([message("a", key="k", concurrency="c")])
    store.wire.command("HSET", look.key("rows"), "a", "junk")
    launch = Launch(store)
    assert launch.reserve() == []
    assert look.hash("unique_keys") == {}
    assert person.redrive(QUEUE, ["a"]) == ["a"]
    (a,) = launch.reserve()
    assert look.hash("places_taken") == {"c": b"1"}
    launch.complete(a)
    assert (look.hash("unique_keys"), look.hash("places_taken")) == ({}, {})
