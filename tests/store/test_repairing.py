"""Messages that stand nowhere, because a script was cut short between its writes, are put in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import StoreRefused
from pollconsumer.core.lifecycle import State
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, message, names, park
from tests.store.servers import server_ms, snapshot

if TYPE_CHECKING:
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector


def lose(store: RedisStore, look: Looking, key: str, id: str) -> None:  # noqa: A002  its name
    """Take an id out of the index where it stands, and leave the rest."""
    remove = ("LREM", look.key(key), 0, id) if key == "ready" else ("ZREM", look.key(key), id)
    assert store.wire.command(*remove) == 1


@pytest.mark.parametrize(
    ("options", "key", "state"),
    [
        ({}, "ready", State.READY),
        ({"priority": -3}, "ready_by_priority", State.READY),
        ({"key": "unique"}, "ready", State.READY),
        ({"concurrency": "one at a time"}, "ready", State.READY),
        ({"delay": HOUR}, "schedule", State.SCHEDULED),
    ],
)
def test_a_message_that_was_accepted_and_never_became_ready_is_handled_once(
    store: RedisStore, look: Looking, inspector: Inspector, options: dict[str, Any], key: str, state: State
) -> None:
    store.enqueue([message("half", **options)])
    score = look.due("half") if key == "schedule" else None
    lose(store, look, key, "half")
    launch = Launch(store)
    assert store.enqueue([message("half", **options)])[0].duplicate
    assert store.maintenance.repair(QUEUE) == 1
    assert store.maintenance.repair(QUEUE) == 0
    assert [found.id for found in inspector.messages(state, QUEUE, 9)] == ["half"]
    if key == "schedule":
        assert score is not None
        assert score <= (look.due("half") or 0) <= score + 1
    else:
        reserved = launch.reserve(9)
        assert names(reserved) == ["half"]
        launch.complete(*reserved)
        assert store.maintenance.repair(QUEUE) == 0
        assert launch.reserve(9) == []


@pytest.mark.parametrize("name", ["ready", "completed", "in_flight", "ready_by_priority"])
def test_what_a_key_that_changed_its_type_cuts_short_is_handled_by_the_next_launch(
    store: RedisStore, look: Looking, name: str
) -> None:
    store.enqueue([message("a"), message("b", priority=1), message("c")])
    first = Launch(store)
    reserved = first.reserve(1)
    store.wire.command("SET", look.key(name), "another program's")
    with pytest.raises(StoreRefused):
        first.step(completed=reserved, wanted=9)
    store.wire.command("DEL", look.key(name))
    second = Launch(store, 2)
    while store.maintenance.repair(QUEUE):
        pass
    again = second.reserve(9)
    second.complete(*again)
    assert {"b", "c"} <= set(names(again)) <= {"a", "b", "c"}
    assert "a" in names(again) or look.row("a").timestamps.completed_at
    assert second.reserve(9) == []


def test_a_reservation_that_stands_nowhere_is_an_orphan_like_others(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a")])
    Launch(store).reserve()
    lose(store, look, "in_flight", "a")
    assert store.maintenance.repair(QUEUE) == 1
    assert Launch(store, 2).recovered == 1


def test_a_dead_letter_that_stands_nowhere_is_listed_again(
    store: RedisStore, look: Looking, inspector: Inspector
) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.settle(die(launch.reserve()[0]))
    died = look.score("dead_letters", "a")
    lose(store, look, "dead_letters", "a")
    assert store.maintenance.repair(QUEUE) == 1
    assert look.score("dead_letters", "a") == died
    assert [found.id for found in inspector.messages(State.DEAD, QUEUE, 9)] == ["a"]


def everything(store: RedisStore) -> Launch:
    several = [message(f"ready-{n}") for n in range(3)] + [message(f"ranked-{n}", priority=n) for n in (-1, 1)]
    several += [message("scheduled", delay=HOUR), message("large", payload=b" " * 2000 + b"{}")]
    several += [message(name, concurrency="key", priority=priority) for name in "uvw" for priority in (0,)]
    store.enqueue(several)
    launch = Launch(store)
    reserved = {one.name: one for one in launch.reserve(99)}
    launch.step(completed=[reserved.pop("large")], settled=[die(reserved.pop("ready-0"))])
    store.enqueue([message("last"), message("last of all", priority=7)])
    return launch


def test_where_everything_has_its_place_nothing_changes(store: RedisStore) -> None:
    everything(store)
    before = snapshot(store.wire)
    assert store.maintenance.repair(QUEUE) == 0
    assert snapshot(store.wire) == before


def test_finished_messages_without_a_record_do_not_hide_one_that_is_lost(store: RedisStore, look: Looking) -> None:
    everything(store)
    lose(store, look, "ready", "last")
    assert store.maintenance.repair(QUEUE) == 1
    assert look.listed("ready") == ["last"]


def test_one_that_is_lost_among_many_is_found_by_one_launch_after_the_other(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.store.queues.maintenance.REPAIR_PAGES", 2)
    store.enqueue([message(f"{n}", payload=b'{"a": "%s"}' % (b"x" * 100)) for n in range(900)])
    lose(store, look, "ready", "700")
    found = [store.maintenance.repair(QUEUE)]
    while found[-1] == 0:
        found.append(store.maintenance.repair(QUEUE))
        assert len(found) <= 9
    assert sorted(look.listed("ready"), key=int) == [str(n) for n in range(900)]
    assert store.maintenance.repair(QUEUE) == 0


def test_in_a_long_list_it_is_found_once_all_before_it_are_handled(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("lost")])
    lose(store, look, "ready", "lost")
    accepted = server_ms(store.wire)
    while server_ms(store.wire) <= accepted:
        pass
    store.enqueue([message(f"{n}") for n in range(1100)])
    assert store.maintenance.repair(QUEUE) == 1
    assert look.listed("ready")[-1] == "lost"


def test_what_a_newer_version_wrote_is_left_where_it_is(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("newer")])
    lose(store, look, "ready", "newer")
    store.wire.command("HSET", look.key("records"), "newer", b"Cof a form that is not known here")
    before = snapshot(store.wire)
    assert store.maintenance.repair(QUEUE) == 0
    assert snapshot(store.wire) == before


def test_what_somebody_else_wrote_as_a_record_becomes_a_dead_letter(store: RedisStore, look: Looking) -> None:
    launch = Launch(store)
    store.wire.command("HSET", look.key("records"), "foreign", b"{}")
    assert store.maintenance.repair(QUEUE) == 1
    assert launch.reserve() == []
    assert look.ranked("dead_letters") == ["foreign"]
    assert store.maintenance.repair(QUEUE) == 0


def test_what_waits_for_nothing_and_what_is_not_parked_is_counted_no_more(
    store: RedisStore, look: Looking, inspector: Inspector
) -> None:
    everything(store)
    (reserved,) = (launch := Launch(store, 2)).reserve(1)
    launch.settle(park(reserved))

    def counts() -> tuple[int, ...]:
        (queue,) = inspector.overview().queues
        return queue.ready, queue.scheduled, queue.reserved, queue.parked

    before = counts()
    ghosts = (b"no line", b"key\0", b"key\0" + b"0" * 19 + b"nobody", b"key\0" + b"0" * 19 + b"v", b"\xff\0" * 9)
    for ghost in ghosts:
        store.wire.command("ZADD", look.key("waiting_for_place"), 0, ghost)
    store.wire.command("SADD", look.key("parked"), "nobody", "last", b"\xff")
    assert counts() != before
    store.maintenance.repair(QUEUE)
    assert counts() == before


def test_those_in_line_behind_what_is_no_message_are_offered_its_place(store: RedisStore, look: Looking) -> None:
    store.enqueue([message(name, concurrency="key") for name in "ab"])
    launch = Launch(store)
    a, *_ = launch.reserve(9)
    store.wire.command("ZADD", look.key("waiting_for_place"), 0, b"key\0" + b"0" * 19 + b"nobody")
    launch.complete(a)
    store.maintenance.repair(QUEUE)
    assert names(launch.reserve(9)) == ["b"]
