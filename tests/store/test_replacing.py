"""Messages that replace the one that waits with their unique key, and keys that are held until the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.outbox import pack, read_entry
from pollconsumer.store.records import rows
from tests.store.acting import HOUR, QUEUE, Launch, Looking, finish, message, names, release, retry
from tests.store.servers import server_ms, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.producer import Enqueued
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.records.reservations import Reservation
    from pollconsumer.store.records.steps import Completion, Settlement

LARGE = b'{"text":"%b"}' % (b"x" * 2000)


def replacing(name: str, payload: bytes = b"{}", *, at_most: int = 0, **options: object) -> NewMessage:
    new: NewMessage = message(name, payload=payload, key="k", **options)  # type: ignore[arg-type]  # as message has them
    return new._replace(key_rule=f"r{at_most}")


def put(store: RedisStore, *wanted: NewMessage) -> list[Enqueued]:
    return store.enqueue(wanted)


def payloads(launch: Launch, most: int = 9) -> dict[str, bytes]:
    return {each.name: each.payload for each in launch.reserve(most)}


@pytest.mark.parametrize("first", [b'{"n":1}', LARGE])
@pytest.mark.parametrize("later", [b'{"n":2}', LARGE])
@pytest.mark.parametrize("priority", [0, 7])
def test_one_that_waits_gets_the_payload_and_the_due_time_of_the_later_one(
    store: RedisStore, look: Looking, first: bytes, later: bytes, priority: int
) -> None:
    put(store, replacing("a", first, delay=HOUR, priority=priority))
    before = look.due("a") or 0
    assert put(store, replacing("b", later, delay=2 * HOUR)) == [("a", True)]
    assert (look.due("a") or 0) >= before + HOUR
    assert look.ranked("schedule") == ["a"]
    assert put(store, replacing("c", later)) == [("a", True)]
    assert look.ranked("schedule") == []
    assert payloads(Launch(store)) == {"a": later}
    assert look.row("a").priority == priority
    assert look.row("a").handler == "handler"


def test_what_is_sent_with_it_makes_no_difference(store: RedisStore) -> None:
    put(store, replacing("a", b'{"n":1}'))
    before, after = message("before"), message("after")
    assert put(store, before, replacing("b", b'{"n":2}'), after) == [("before", False), ("a", True), ("after", False)]
    assert payloads(Launch(store)) == {"a": b'{"n":2}', "before": b"{}", "after": b"{}"}


@pytest.mark.parametrize("priority", [0, 7])
@pytest.mark.parametrize("concurrency", ["", "c"])
def test_one_that_is_ready_goes_back_into_the_schedule(store: RedisStore, priority: int, concurrency: str) -> None:
    put(store, replacing("a", b'{"n":1}', priority=priority, concurrency=concurrency))
    assert put(store, replacing("b", b'{"n":2}', delay=HOUR)) == [("a", True)]
    launch = Launch(store)
    assert launch.reserve(9) == []
    put(store, replacing("c", b'{"n":3}'))
    assert payloads(launch) == {"a": b'{"n":3}'}


def test_one_that_was_ready_and_put_off_has_lost_its_turn(store: RedisStore) -> None:
    put(store, replacing("a", b'{"n":1}'), message("other"))
    put(store, replacing("b", b'{"n":2}', delay=HOUR))
    put(store, replacing("c", b'{"n":3}'))
    launch = Launch(store)
    assert payloads(launch, 1) == {"other": b"{}"}
    assert payloads(launch) == {"a": b'{"n":3}'}


def test_one_that_is_ready_and_stays_so_keeps_its_turn(store: RedisStore) -> None:
    put(store, replacing("a", b'{"n":1}'), message("other"))
    put(store, replacing("b", b'{"n":2}'))
    assert payloads(Launch(store), 1) == {"a": b'{"n":2}'}


def test_one_that_waits_in_line_for_its_concurrency_key_gets_the_payload(store: RedisStore, look: Looking) -> None:
    put(store, message("first", concurrency="c"))
    launch = Launch(store)
    (first,) = launch.reserve()
    put(store, replacing("a", b'{"n":1}', concurrency="c"))
    assert launch.reserve(9) == []
    assert look.lined() == ["a"]
    put(store, replacing("b", LARGE))
    launch.complete(first)
    assert payloads(launch) == {"a": LARGE}


def test_it_is_due_at_the_latest_so_long_after_it_was_enqueued(store: RedisStore, look: Looking) -> None:
    put(store, replacing("a", delay=HOUR, at_most=2 * HOUR))
    accepted = server_ms(store.wire)
    put(store, replacing("b", delay=50 * HOUR, at_most=2 * HOUR))
    assert abs((look.due("a") or 0) - accepted - 2 * HOUR) < HOUR / 2
    put(store, replacing("c", due=accepted + 50 * HOUR, at_most=HOUR))
    assert abs((look.due("a") or 0) - accepted - HOUR) < HOUR / 2


def test_the_first_one_is_due_at_the_latest_so_long_after_it_was_enqueued(store: RedisStore, look: Looking) -> None:
    now = server_ms(store.wire)
    put(store, replacing("a", due=now + 50 * HOUR, at_most=2 * HOUR))
    assert abs((look.due("a") or 0) - now - 2 * HOUR) < HOUR / 2


def test_one_that_has_waited_as_long_as_it_may_stays_ready(store: RedisStore, look: Looking) -> None:
    put(store, replacing("a"))
    record = store.wire.command("HGET", look.key("records"), "a")
    an_hour_earlier = (look.enqueued_at("a") - HOUR).to_bytes(6, "big")
    store.wire.command("HSET", look.key("records"), "a", record[:4] + an_hour_earlier + record[10:])
    put(store, replacing("b", b'{"n":2}', delay=HOUR, at_most=HOUR))
    assert payloads(Launch(store)) == {"a": b'{"n":2}'}


@pytest.mark.parametrize("end", [finish, lambda r: retry(r, HOUR), release])
def test_while_one_is_in_hand_one_waits_behind_it(
    store: RedisStore, look: Looking, end: Callable[[Reservation], Settlement | Completion]
) -> None:
    put(store, replacing("a", b'{"n":1}'))
    launch = Launch(store)
    (a,) = launch.reserve()
    assert put(store, replacing("b", b'{"n":2}')) == [("b", False)]
    assert put(store, replacing("c", b'{"n":3}')) == [("b", True)]
    launch.settle(end(a))
    assert put(store, replacing("d", b'{"n":4}')) == [("b", True)]
    assert payloads(launch) == {"b": b'{"n":4}'} | ({"a": b'{"n":1}'} if end is release else {})
    assert look.hash("unique_keys") == {"k": b"b"}


def test_one_that_waits_to_be_retried_begins_anew(store: RedisStore, look: Looking) -> None:
    put(store, replacing("a", b'{"n":1}'))
    launch = Launch(store)
    (a,) = launch.reserve()
    store.checkpoint(launch.claim, a, b'{"at":5}')
    launch.settle(retry(a, HOUR))
    put(store, replacing("b", b'{"n":2}'))
    (again,) = launch.reserve()
    assert (again.payload, again.attempt, rows.generation(again.row), again.has_checkpoint) == (b'{"n":2}', 1, 1, False)
    assert look.hash("checkpoints") == {}


def test_one_without_an_attempt_stays_in_its_generation(store: RedisStore) -> None:
    put(store, replacing("a", delay=HOUR))
    put(store, replacing("b"))
    (a,) = Launch(store).reserve()
    assert (a.attempt, rows.generation(a.row)) == (1, 0)


def test_after_the_end_the_next_one_is_new(store: RedisStore) -> None:
    put(store, replacing("a"))
    launch = Launch(store)
    launch.complete(*launch.reserve())
    assert put(store, replacing("b")) == [("b", False)]


def test_a_repeated_call_replaces_nothing_again(store: RedisStore) -> None:
    put(store, replacing("a", b'{"n":1}'))
    put(store, replacing("b", b'{"n":2}'))
    put(store, replacing("c", b'{"n":3}'))
    before = snapshot(store.wire)
    assert put(store, replacing("b", b'{"n":2}', delay=HOUR), replacing("a")) == [("a", True), ("a", True)]
    assert snapshot(store.wire) == before
    launch = Launch(store)
    launch.complete(*launch.reserve())
    assert put(store, replacing("b", b'{"n":2}')) == [("b", True)]
    assert launch.reserve() == []


def test_expiry_counts_from_the_new_due_time(store: RedisStore) -> None:
    put(store, replacing("a", delay=HOUR, expires=HOUR))
    put(store, replacing("b", delay=50 * HOUR, expires=HOUR))
    put(store, replacing("c", expires=HOUR))
    now = server_ms(store.wire)
    (a,) = Launch(store).reserve()
    assert abs(a.common.expires - now - HOUR) < HOUR / 2


def test_a_lifetime_of_the_key_begins_anew(store: RedisStore, look: Looking) -> None:
    put(store, replacing("a", delay=HOUR, lifetime=HOUR))
    store.wire.command("HSET", look.key("unique_keys"), "k", f"a\n{server_ms(store.wire) + 60_000}")
    put(store, replacing("b", delay=HOUR, lifetime=HOUR))
    assert int(look.hash("unique_keys")["k"].split(b"\n")[1]) > server_ms(store.wire) + HOUR / 2


def test_only_the_one_that_waits_is_looked_at_in_a_page(store: RedisStore) -> None:
    answers = put(store, message("x"), replacing("a", b'{"n":1}'), message("y"), replacing("b", b'{"n":2}'))
    assert answers == [("x", False), ("a", False), ("y", False), ("a", True)]
    assert payloads(Launch(store)) == {"x": b"{}", "a": b'{"n":2}', "y": b"{}"}


def test_one_that_was_sent_from_an_outbox_replaces_too(store: RedisStore) -> None:
    put(store, replacing("a", b'{"n":1}', delay=HOUR))
    sent = replacing("b", b'{"n":2}', at_most=HOUR)
    entry = read_entry("origin", b"1\n" + pack([sent], 0))
    assert entry is not None
    assert entry.messages == [sent]
    launch = Launch(store)
    put(store, message("first", queue="origin"))
    there = Launch(store, queue="origin")
    (first,) = there.reserve()
    there.settle(finish(first, outgoing=pack([sent], 0)))
    assert outbox.send(store, "origin", lambda *_: None) == 1
    assert payloads(launch) == {"a": b'{"n":2}'}


def test_a_cancelled_one_is_not_replaced(store: RedisStore, person: MessageActions) -> None:
    put(store, replacing("a", delay=HOUR))
    person.cancel(QUEUE, "a")
    assert put(store, replacing("b")) == [("b", False)]


def until_start(name: str) -> NewMessage:
    return message(name, key="k")._replace(key_rule="s")


def test_a_key_until_the_start_is_held_while_its_message_waits(store: RedisStore) -> None:
    assert put(store, until_start("a"), until_start("b")) == [("a", False), ("a", True)]
    assert put(store, until_start("c")) == [("a", True)]
    launch = Launch(store)
    (a,) = launch.reserve()
    assert put(store, until_start("d")) == [("d", False)]
    assert put(store, until_start("e"), message("f", key="k")) == [("d", True), ("d", True)]
    launch.complete(a)
    assert put(store, until_start("g")) == [("d", True)]
    assert names(launch.reserve(9)) == ["d"]
