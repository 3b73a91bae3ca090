"""Results, and messages accepted with the completion of another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.outbox import pack
from tests.store.acting import HOUR, QUEUE, Launch, Looking, finish, message
from tests.store.servers import server_ms, snapshot

if TYPE_CHECKING:
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector

OTHER = "other"


def complete_with(store: RedisStore, *children: object, result: str = "") -> None:
    """A message "parent", completed with what is to be sent on."""
    store.enqueue([message("parent")])
    launch = Launch(store)
    (parent,) = launch.reserve()
    outgoing = pack(children, server_ms(store.wire)) if children else b""  # type: ignore[arg-type]
    assert launch.settle(finish(parent, result, outgoing=outgoing)).stale == []


def test_a_result_is_kept_for_its_time_and_forgotten_then(
    store: RedisStore, look: Looking, inspector: Inspector
) -> None:
    complete_with(store, result='{"n":1}')
    assert inspector.message("parent").result == {"n": 1}
    assert store.maintenance.trim(QUEUE) == 0
    assert look.hash("results") == {"parent": b'{"n":1}'}
    look.time_passes_for_results()
    store.maintenance.trim(QUEUE)
    assert (look.hash("results"), look.runs_of_results()) == ({}, [])
    assert inspector.message("parent").result is None


def test_a_result_outlives_its_message(store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pollconsumer.store.queues.maintenance.KEEP_FINISHED", 0)
    complete_with(store, result="1")
    assert store.maintenance.trim(QUEUE) == 1
    assert look.hash("results") == {"parent": b"1"}


def test_a_result_is_not_that_of_a_later_message_with_the_same_id(
    store: RedisStore, look: Looking, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete_with(store, result="1")
    assert store.enqueue([message("parent"), message("other")])[0].duplicate
    assert inspector.message("parent").result == 1
    monkeypatch.setattr("pollconsumer.store.queues.maintenance.KEEP_FINISHED", 0)
    store.maintenance.trim(QUEUE)
    look.forget_ids()
    assert not store.enqueue([message("parent")])[0].duplicate
    assert inspector.message("parent").result is None


def completed_again(store: RedisStore, look: Looking, result: str) -> None:
    """A message with the id of one that is forgotten, and that was completed in another millisecond."""
    store.maintenance.trim(QUEUE)
    look.forget_ids()
    before = server_ms(store.wire)
    while server_ms(store.wire) == before:
        pass
    complete_with(store, result=result)


def test_a_result_outlives_the_time_of_that_of_an_earlier_message_with_the_same_id(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.store.queues.maintenance.KEEP_FINISHED", 0)
    for result in "123":
        completed_again(store, look, result)
    assert look.runs_of_results() == [["parent"]] * 3
    for _ in range(2):
        look.time_passes_for_results()
        store.maintenance.trim(QUEUE)
        assert look.hash("results")["parent"] == b"3"
    look.time_passes_for_results()
    store.maintenance.trim(QUEUE)
    assert (look.hash("results"), look.runs_of_results()) == ({}, [])


def test_results_with_the_same_id_are_forgotten_when_the_time_of_all_is_over(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.store.queues.maintenance.KEEP_FINISHED", 0)
    for result in "123":
        completed_again(store, look, result)
    look.time_passes_for_results(3)
    store.maintenance.trim(QUEUE)
    assert (look.hash("results"), look.runs_of_results()) == ({}, [])


def test_what_is_trimmed_at_once_has_a_limit_and_each_result_its_turn(store: RedisStore, look: Looking) -> None:
    store.enqueue([message(f"m{n:02}") for n in range(90)])
    launch = Launch(store)
    reserved = launch.reserve(90)
    launch.settle(*(finish(each, "1") for each in reserved[:30]))
    for each in reserved[30:]:  # each is a run
        launch.settle(finish(each, "1"))
    look.time_passes_for_results(61)
    limits = [40, 1, 1, 90, "", "", ""]
    left = [len(look.hash("results"))]
    while left[-1]:
        store.wire.run("trim", store.keys, QUEUE, limits)
        left.append(len(look.hash("results")))
    assert left == [90, 50, 10, 0]


def test_results_that_an_earlier_version_listed_one_by_one_are_forgotten(store: RedisStore, look: Looking) -> None:
    complete_with(store, result="1")
    store.wire.command("DEL", look.key("result_runs"))
    store.wire.command("ZADD", look.key("result_ends"), 1, "parent")
    store.maintenance.trim(QUEUE)
    assert (look.hash("results"), look.ranked("result_ends")) == ({}, [])


def test_settling_again_after_a_lost_reply_sends_nothing_twice(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("parent")])
    launch = Launch(store)
    (parent,) = launch.reserve()
    settlement = finish(parent, "1", outgoing=pack([message("child")], 0))
    launch.settle(settlement)
    before = snapshot(store.wire)
    assert launch.settle(settlement).stale == []
    assert snapshot(store.wire) == before
    assert len(look.listed("outbox")) == 1


def test_what_was_taken_over_sends_nothing(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("parent")])
    launch = Launch(store)
    (parent,) = launch.reserve(lasts_ms=0)
    store.maintenance.recover(QUEUE, [])
    launch.settle(finish(parent, "1", outgoing=pack([message("child")], 0)))
    assert (look.listed("outbox"), look.hash("results")) == ([], {})


def test_what_is_sent_arrives_in_its_own_queue_whole(store: RedisStore, look: Looking, inspector: Inspector) -> None:
    children = [
        message("same", payload=b'{"x":"\xc3\xbc"}', priority=3, key="k", lifetime=HOUR),
        message("else", queue=OTHER, concurrency="c", limit=2),
        message("later", queue=OTHER, delay=HOUR),
    ]
    complete_with(store, *children)
    assert look.ranked("ready_by_priority") == []
    assert outbox.send(store, QUEUE, print) == 3
    assert look.listed("outbox") == []
    same = inspector.message("same")
    assert (same.payload, same.row.priority, same.queue) == ({"x": "ü"}, 3, QUEUE)
    assert store.enqueue([message("probe", key="k")])[0].id == "same"
    other = Looking(store, OTHER)
    assert other.listed("ready") == ["else"]
    due = other.due("later")
    assert due is not None
    assert due <= server_ms(store.wire) + HOUR
    Launch(store, queue=OTHER).reserve()
    assert other.hash("places_taken") == {"c": b"1"}


def test_a_sender_that_dies_between_sending_and_saying_so_sends_nothing_twice(
    store: RedisStore, look: Looking, inspector: Inspector
) -> None:
    complete_with(store, message("child", queue=OTHER), message("sibling"))
    (entry,) = store.wire.command("LRANGE", look.key("outbox"), 0, -1)
    assert outbox.send(store, QUEUE, print) == 2
    launch = Launch(store, queue=OTHER)
    launch.complete(*launch.reserve())
    store.wire.command("RPUSH", look.key("outbox"), entry)
    assert outbox.send(store, QUEUE, print) == 2
    assert inspector.message("child").state == "completed"
    assert Looking(store, OTHER).listed("ready") == []
    assert look.listed("ready") == ["sibling"]


def test_two_senders_at_once_send_everything_once(store: RedisStore, look: Looking) -> None:
    for n in range(50):
        entry = pack([message(f"m{n}", queue=OTHER)], 0)
        store.wire.command("RPUSH", look.key("outbox"), b"%d\n%b" % (n + 1, entry))
    enqueue, rivals = store.producer.enqueue_sent_on, 0

    def rivalled(*entries: object) -> object:
        nonlocal rivals
        rivals += 1
        if rivals == 2:
            outbox.send(store, QUEUE, print)
        return enqueue(*entries)  # type: ignore[arg-type]

    store.producer.enqueue_sent_on = rivalled  # type: ignore[method-assign, assignment]
    outbox.send(store, QUEUE, print)
    assert rivals > 2
    assert look.listed("outbox") == []
    assert Looking(store, OTHER).listed("ready") == [f"m{n}" for n in range(50)]


def test_a_page_of_entries_is_sent_in_one_round_trip_and_removed_in_another(store: RedisStore, look: Looking) -> None:
    for n in range(outbox.PAGE_ENTRIES):
        entry = pack([message(f"m{n}", queue=OTHER)], 0)
        store.wire.command("RPUSH", look.key("outbox"), b"%d\n%b" % (n + 1, entry))
    store.producer.register(OTHER)
    trips, once = 0, store.wire.once

    def counted(*commands: object, **options: object) -> object:
        nonlocal trips
        trips += 1
        return once(*commands, **options)  # type: ignore[arg-type]

    store.wire.once = counted  # type: ignore[assignment, method-assign]
    assert outbox.send(store, QUEUE, print) == outbox.PAGE_ENTRIES
    assert trips == 3  # they are read, too
    assert Looking(store, OTHER).listed("ready") == [f"m{n}" for n in range(outbox.PAGE_ENTRIES)]


def test_a_child_with_a_key_that_is_held_is_a_duplicate(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("holder", key="k", delay=HOUR)])
    complete_with(store, message("child", key="k"))
    outbox.send(store, QUEUE, print)
    assert look.listed("ready") == []
    assert look.listed("outbox") == []


GOOD = {"id": "i", "queue": "q", "handler": "h", "payload": "{}"}


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"7",
        b'{"id": 1}',
        b"[7]",
        b"[[]]",
        b"[{}]",
        *(
            json.dumps([GOOD | wrong]).encode()
            for wrong in (
                {"id": 7},
                {"id": "a b"},
                {"queue": "}:r"},
                {"handler": None},
                {"handler": "a\nb"},
                {"payload": 7},
                {"priority": "high"},
                {"priority": 1 << 40},
                {"key": 7},
                {"key": "k" * 300},
                {"key_lifetime": "long"},
                {"due": "now"},
                {"due": 1 << 60},
                {"delay": 5},
                {"concurrency_key": "c", "concurrency_limit": 999},
                {"concurrency_key": 7},
                {"answers": {"queue": "}:r", "id": "a", "name": "n", "value": {"id": "b", "state": "completed"}}},
                {"answers": {"queue": "q", "id": 7, "name": "n", "value": {"id": "b", "state": "completed"}}},
                {"answers": {"queue": "q", "id": "a", "name": "n", "value": {"id": "b"}}},
                {"answers": {"queue": "q", "id": "a", "name": "n", "value": "b"}},
                {"ended": {"as": "d", "ids": "a", "sequel": {"answers": {"queue": "q", "id": "b"}}}},
                {"ended": {"as": "d", "ids": "a", "sequel": {"answers": {"queue": "q", "id": "b", "as": 7}}}},
            )
        ),
    ],
)
def test_what_somebody_else_wrote_there_is_kept_for_a_person_and_holds_up_nothing(
    store: RedisStore, look: Looking, garbage: bytes
) -> None:
    store.wire.command("RPUSH", look.key("outbox"), garbage, pack([message("child")], 0))
    assert outbox.send(store, QUEUE, print) == 1
    assert (look.listed("ready"), look.listed("outbox")) == (["child"], [])
    assert store.wire.command("LRANGE", look.key("quarantine"), 0, -1) == [garbage]


def test_what_a_newer_version_is_to_send_on_is_left_for_it_and_holds_nothing_up(
    store: RedisStore, look: Looking
) -> None:
    complete_with(store, message("old", queue=OTHER))
    (entry,) = store.wire.command("LRANGE", look.key("outbox"), 0, -1)
    (given,) = json.loads(entry.partition(b"\n")[2])
    newer = json.dumps([given | {"id": "new", "of a later version": 1}]).encode()
    store.wire.command("LPUSH", look.key("outbox"), *[newer] * 30)
    assert outbox.send(store, QUEUE, print) == 1
    assert look.listed("outbox") == [newer.decode()] * 30
    assert Looking(store, OTHER).listed("ready") == ["old"]
