"""Unique keys: held by one unfinished message, for as long as it is unfinished or for a lifetime."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import BadData
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.reading.inspector import MessageSelector, Selection
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, finish, message, names, retry

if TYPE_CHECKING:
    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.client.wire import Wire
    from pollconsumer.store.queues.redis_store import RedisStore
    from tests.store.servers import Server


def held_by(store: RedisStore, key: str = "k", lifetime: int = 0) -> str:
    """Who a further message with the key would be a duplicate of; "probe" if of none."""
    (answer,) = store.enqueue([message("probe", key=key, lifetime=lifetime)])
    return answer.id


def test_a_lifetime_ends_while_the_message_goes_on(store: RedisStore, look: Looking, server: Server) -> None:
    store.enqueue([message("a", key="k", lifetime=20)])
    until = time.monotonic() + 10
    while held_by(store) == "a" and time.monotonic() < until:
        server.pass_time(0.005)
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
    store: RedisStore, look: Looking, person: MessageActions, end: str, lifetime: int
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


def test_a_dead_letter_takes_its_key_again_when_redriven(store: RedisStore, person: MessageActions) -> None:
    store.enqueue([message("a", key="k", lifetime=HOUR)])
    launch = Launch(store)
    launch.settle(*map(die, launch.reserve()))
    assert person.redrive(QUEUE, ["a"]) == ["a"]
    assert held_by(store) == "a"
    launch.complete(*launch.reserve())
    assert held_by(store) == "probe"


def test_a_dead_letter_whose_key_is_anothers_by_now_stays(store: RedisStore, person: MessageActions) -> None:
    store.enqueue([message("a", key="k")])
    launch = Launch(store)
    launch.settle(*map(die, launch.reserve()))
    store.enqueue([message("b", key="k")])
    assert person.redrive(QUEUE, ["a"]) == []
    launch.complete(*launch.reserve())
    assert person.redrive(QUEUE, ["a"]) == ["a"]


def test_of_two_dead_letters_with_one_key_one_returns(store: RedisStore, person: MessageActions) -> None:
    launch = Launch(store)
    for name in ("a", "b"):
        store.enqueue([message(name, key="k")])
        launch.settle(*map(die, launch.reserve()))
    assert person.redrive(QUEUE, ["a", "b"]) == ["a"]


def test_a_dead_letter_that_lost_its_row_does_not_stand_in_its_own_way(
    store: RedisStore, look: Looking, person: MessageActions
) -> None:
    store.enqueue([message("a", key="k")])
    launch = Launch(store)
    launch.settle(*map(die, launch.reserve()))
    store.wire.command("HDEL", look.key("rows"), "a")
    store.wire.command("HSET", look.key("unique_keys"), "k", "a")
    assert person.redrive(QUEUE, ["a"]) == ["a"]


def test_what_is_buried_for_its_row_frees_its_key_and_may_return(
    store: RedisStore, look: Looking, person: MessageActions
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


# Whose a key is

MAIL, INVOICE = "mail", "invoice"


def of_handler(id: str, handler: str, key: str = "42") -> NewMessage:  # noqa: A002  its name
    return new_message(handler, {}, id=id, queue=QUEUE, key=key)


@pytest.mark.parametrize("key", ["42", "k" * 240, "k" * 255, "*?[a-z]^\\", "\u00fc" * 127])
@pytest.mark.parametrize("handlers", [(MAIL, INVOICE), ("x" * 200, "x" * 199 + "y"), ("\u00fc" * 200, MAIL)])
def test_a_key_is_that_of_its_handler(
    store: RedisStore, wire: Wire, look: Looking, key: str, handlers: tuple[str, str]
) -> None:
    one, other = handlers
    given = [of_handler("a", one, key), of_handler("b", other, key), of_handler("c", one, key)]
    assert [each.id for each in store.enqueue(given)] == ["a", "b", "a"]
    selecting = MessageSelector(wire, NAMESPACE)
    assert {each.id for each in selecting.messages(Selection(key=key))} == {"a", "b"}
    assert [each.id for each in selecting.messages(Selection(key=key, handler=other))] == ["b"]
    assert list(selecting.messages(Selection(key=key[:-1]))) == []
    launch = Launch(store)
    launch.complete(*launch.reserve(9))
    assert look.hash("unique_keys") == {}


def test_a_key_of_the_queue_is_shared_by_those_who_say_so(store: RedisStore) -> None:
    shared = [new_message(each, {}, id=each, queue=QUEUE, key="42", key_scope="queue") for each in (MAIL, INVOICE)]
    assert [each.id for each in store.enqueue(shared)] == [MAIL, MAIL]
    assert [each.id for each in store.enqueue([of_handler("own", INVOICE)])] == ["own"]


@pytest.mark.parametrize("due", [None, HOUR])
@pytest.mark.parametrize("payload", [b"{}", b'{"x":"%b"}' % (b"x" * 3000)])
def test_a_key_that_a_message_of_an_earlier_version_holds_is_held_for_its_handler_until_it_ends(
    store: RedisStore, look: Looking, due: int | None, payload: bytes
) -> None:
    store.enqueue([message("old", handler=MAIL, key="42", delay=due, payload=payload)])
    assert look.hash("unique_keys") == {"42": b"old"}
    assert [each.id for each in store.enqueue([of_handler("mail", MAIL), of_handler("invoice", INVOICE)])] == [
        "old",
        "invoice",
    ]
    launch = Launch(store)
    if due:
        store.wire.command("ZADD", look.key("schedule"), 5, "old")
        store.promote(launch.claim, QUEUE, 9)
    launch.complete(*launch.reserve(9))
    assert [each.id for each in store.enqueue([of_handler("mail", MAIL)])] == ["mail"]


def test_a_dead_letter_is_not_redriven_while_its_handler_has_an_earlier_message_with_the_key(
    store: RedisStore, person: MessageActions
) -> None:
    launch = Launch(store)
    store.enqueue([of_handler("dead", MAIL)])
    launch.settle(*map(die, launch.reserve()))
    store.enqueue([message("old", handler=MAIL, key="42")])
    assert person.redrive(QUEUE, ["dead"]) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key_scope": "queue"}, "give the key, too"),
        ({"key": "42", "key_scope": "all"}, "handler or queue"),
        ({"key": ""}, "1 to 255 bytes"),
        ({"key": "a\0b"}, "without a zero"),
        ({"key": "k" * 256}, "255 bytes"),
    ],
)
def test_a_scope_or_a_key_that_is_none_is_refused(options: Any, said: str) -> None:
    with pytest.raises(BadData, match=said):
        new_message(MAIL, {}, **options)
