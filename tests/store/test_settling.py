"""The step: settling what was handled and reserving what comes next."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.errors import BadData, LeaseLost
from pollconsumer.core.lifecycle import State
from pollconsumer.interface.memory_store import MemoryOpener, VirtualClock
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Reservation
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, finish, message, names, park, release, retry
from tests.store.servers import server_ms, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector
    from pollconsumer.store.records.steps import Settlement

OUTCOMES = [retry, die, release, park]


@pytest.fixture
def look(store: RedisStore) -> Looking:
    return Looking(store)


def test_one_step_settles_and_reserves(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a"), message("b")])
    launch = Launch(store)
    first = launch.reserve()
    stepped = launch.step(completed=first, wanted=1)
    assert names(stepped.reserved) == ["b"]
    assert look.listed("completed") == ["a"]
    assert look.ranked("in_flight") == ["b"]


def test_a_step_reserves_no_more_than_asked_for(store: RedisStore, look: Looking) -> None:
    store.enqueue([message(f"m{n}", priority=n % 3 - 1) for n in range(9)])
    launch = Launch(store)
    assert len(launch.reserve(4)) == 4
    assert launch.step(wanted=0).reserved == []
    assert len(look.ranked("in_flight")) == 4


def test_a_reservation_charges_the_attempt_and_lasts_until_the_hard_end(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a")])
    before = server_ms(store.wire)
    (reservation,) = Launch(store, fence=77).reserve(lasts_ms=5000)
    after = server_ms(store.wire)
    assert before <= reservation.reserved_at <= after
    assert look.score("in_flight", "a") == reservation.reserved_at + 5000
    row = look.row("a")
    assert row.attempts == reservation.attempt == 1
    assert row.timestamps.reserved_at == reservation.reserved_at


KINDS: list[dict[str, Any]] = [
    {},
    {"handler": "another"},
    {"payload": b'{"a":1}'},
    {"payload": b'{"b":"%b"}' % (b"b" * 2000)},
    {"payload": b'{"c":"\\n"}'},
    {"key": "k"},
    {"key": "a key\nhandler\n"},
    {"concurrency": "c", "limit": 99},
    {"concurrency": "another key\nhandler\n", "limit": 99},
    {"concurrency": "c", "limit": 98},
    {"key": "k", "concurrency": "c", "limit": 99},
    {"key": "k", "concurrency": "another key\nhandler\n", "limit": 98},
    {"key": "k", "concurrency": "c", "limit": 99, "handler": "another"},
    {"key": "k", "headers": {"a": "b"}},
    {"key": "k", "payload": b'{"b":"%b"}' % (b"b" * 2000)},
    {"concurrency": "c", "limit": 99, "rate_key": "r", "rate": "99/1h"},
    {"priority": 2},
    {"digest": "00" * 8},
    {"digest": "0a" * 8},
]
RETRIED = "retried"


def having(store: RedisStore, kinds: list[dict[str, Any] | str]) -> tuple[Launch, list[NewMessage]]:
    """A launch, and a ready message of each kind."""
    launch, look = Launch(store), Looking(store)
    options: list[dict[str, Any]] = [{} if isinstance(kind, str) else kind for kind in kinds]
    every = [
        message(f"m{n}", **each | ({"key": f"{each['key']}{n}"} if "key" in each else {}))
        for n, each in enumerate(options)
    ]
    for each, kind in zip(every, kinds, strict=True):
        store.enqueue([each])
        if kind == RETRIED:
            store.wire.command("LREM", look.key("ready"), 0, each.id)
            store.wire.command("LPUSH", look.key("ready"), each.id)
            launch.settle(*(retry(first) for first in launch.reserve()))
            store.promote(launch.claim, QUEUE, 9)
    return launch, every


SOME = st.lists(st.sampled_from([*KINDS, RETRIED]), min_size=1, max_size=12)


@pytest.mark.crossing
@given(SOME | SOME.map(lambda kinds: kinds * 2))
def test_each_of_those_reserved_at_once_is_as_it_was_enqueued_and_as_if_it_were_reserved_alone(
    kinds: list[dict[str, Any] | str],
) -> None:
    opener = MemoryOpener(NAMESPACE, VirtualClock(datetime(2026, 1, 1, tzinfo=UTC)))
    store = opener.store()
    launch, every = having(store, kinds)
    reserved, look = {each.name: each for each in launch.reserve(99)}, Looking(store)
    assert reserved.keys() == {each.id for each in every}
    for each, kind in zip(every, kinds, strict=True):
        found = reserved[each.id]
        assert (found.handler, found.payload) == (each.handler, each.payload)
        assert (found.unique_key, found.concurrency_key) == (each.key.encode(), each.concurrency_key.encode())
        assert found.row == store.wire.command("HGET", look.key("rows"), each.id)
        assert found.attempt == 1 + (kind == RETRIED)
        assert rows.read_row(found.row).priority == each.priority
    in_flight = Counter(each.concurrency_key for each in every if each.concurrency_key)
    assert look.hash("places_taken") == {key: b"%d" % number for key, number in in_flight.items()}
    launch.complete(*reserved.values())
    assert look.hash("unique_keys") == look.hash("places_taken") == {}
    opener.close()

    opener = MemoryOpener(NAMESPACE, VirtualClock(datetime(2026, 1, 1, tzinfo=UTC)))
    launch, _ = having(opener.store(), kinds)
    alone = {one.name: one.row for _ in kinds for one in launch.reserve()}
    assert alone == {name: one.row for name, one in reserved.items()}
    opener.close()


@pytest.mark.parametrize("together", [True, False], ids=["of one enqueue", "of several"])
def test_each_of_those_completed_at_once_has_its_own_instants_result_and_follow_ups(
    store: RedisStore, look: Looking, together: bool
) -> None:
    every = [message(f"m{n}", handler=f"handler {n // 4}") for n in range(8)]
    for page in [every] if together else [[each] for each in every]:
        store.enqueue(page)
    launch = Launch(store)
    reserved = launch.reserve(9)
    took = [0.001, 0.001, 0.002, 0.002] * 2
    extras = {1: (HOUR, b"1", b"", b""), 3: (HOUR, b"3", b"follow-ups of 3", b""), 6: (HOUR, b"6", b"", b"")}
    launch.settle(*((each, 0.0, took[n], extras.get(n)) for n, each in enumerate(reserved)))
    ended = [look.row(f"m{n}").timestamps.completed_at for n in range(8)]
    assert ended == [each.server_ms(took[n]) for n, each in enumerate(reserved)]
    assert look.listed("completed") == [each.id for each in every]
    assert look.hash("results") == {f"m{n}": b"%d" % n for n in extras}
    assert [entry.partition("\n")[2] for entry in look.listed("outbox")] == ["follow-ups of 3"]
    assert look.ranked("in_flight") == []


def test_results_of_messages_in_a_row_are_one_run_unless_they_are_kept_for_another_time(
    store: RedisStore, look: Looking
) -> None:
    store.enqueue([message(f"m{n}") for n in range(8)])
    launch = Launch(store)
    outcomes = [("1", HOUR), ("2", HOUR), ("", HOUR), ("4", HOUR), ("5", 2 * HOUR), ("6", 2 * HOUR), ("7", HOUR)]
    launch.settle(*(finish(each, *outcome) for each, outcome in zip(launch.reserve(7), outcomes, strict=True)))
    assert look.runs_of_results() == [["m0", "m1"], ["m3"], ["m6"], ["m4", "m5"]]
    assert look.hash("results") == {f"m{n}": b"%d" % (n + 1) for n in (0, 1, 3, 4, 5, 6)}


def test_one_of_those_completed_at_once_that_is_no_longer_the_callers_leaves_the_others_as_they_are(
    store: RedisStore, look: Looking
) -> None:
    store.enqueue([message(f"m{n}") for n in range(5)])
    launch = Launch(store)
    reserved = launch.reserve(9)
    launch.settle(release(reserved[2]))
    done = [(each, 0.0, 0.0, (HOUR, each.id, b"", b"")) for each in reserved]
    assert launch.settle(*done).stale == [b"m2"]
    assert look.listed("completed") == ["m0", "m1", "m3", "m4"]
    assert look.hash("results") == {name: name.encode() for name in look.listed("completed")}
    assert look.listed("ready") == ["m2"]
    assert launch.settle(*done).stale == [b"m2"]  # the same after a lost reply
    assert look.listed("completed") == ["m0", "m1", "m3", "m4"]


def test_completing_keeps_the_row_and_the_payload_until_trimmed(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message("a", payload=b'{"x":1}')])
    launch = Launch(store)
    launch.complete(*launch.reserve())
    found = inspector.message("a")
    assert (found.state, found.payload, found.row.attempts) == (State.COMPLETED, {"x": 1}, 1)


@pytest.mark.parametrize("options", [{}, {"key": "k"}, {"concurrency": "c"}, {"priority": 3}, {"delay": 0}])
def test_a_completed_message_is_shown_whole_and_is_no_other_scripts_corrupt_row(
    store: RedisStore, look: Looking, inspector: Inspector, person: MessageActions, options: dict[str, Any]
) -> None:
    store.enqueue([message("a", handler="its handler", payload=b'{"n":1}', **options)])
    launch = Launch(store)
    (reserved,) = launch.reserve()
    launch.step(completed=[reserved])
    shown = inspector.message("a")
    assert (shown.handler, shown.payload, shown.state) == ("its handler", {"n": 1}, "completed")
    times = shown.row.timestamps
    assert times.enqueued_at == times.scheduled_at
    assert times.reserved_at == times.started_at == times.completed_at == reserved.reserved_at
    for key, score in (("schedule", 1), ("in_flight", 1), ("ready_by_priority", 1)):
        store.wire.command("ZADD", look.key(key), score, "a")
    store.wire.command("RPUSH", look.key("ready"), "a")
    store.promote(launch.claim, QUEUE, 9)
    store.maintenance.recover(QUEUE, [])
    store.maintenance.repair(QUEUE)
    with pytest.raises(BadData, match="completed"):
        person.cancel(QUEUE, "a")
    assert launch.reserve(9) == []
    assert look.ranked("dead_letters") == []


@pytest.mark.parametrize("delay", [None, HOUR], ids=["ready", "scheduled"])
def test_completing_drops_a_large_record(
    store: RedisStore, inspector: Inspector, look: Looking, delay: int | None
) -> None:
    store.enqueue([message("a", payload=b'{"x":"%b"}' % (b"x" * 2000), delay=delay)])
    store.wire.command("ZADD", look.key("schedule"), "XX", 1, "a")
    launch = Launch(store)
    store.promote(launch.claim, QUEUE, 1)
    launch.complete(*launch.reserve())
    assert look.hash("records") == {}
    assert (inspector.message("a").state, inspector.message("a").payload) == (State.COMPLETED, None)


def test_a_retry_waits_in_the_schedule_for_its_delay(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    before = server_ms(store.wire)
    launch.settle(retry(reservation, HOUR, "ValueError: again"))
    after = server_ms(store.wire)
    due = look.due("a")
    assert due is not None
    assert before + HOUR <= due <= after + HOUR
    assert (look.ranked("in_flight"), look.listed("ready")) == ([], [])
    row = look.row("a")
    assert (row.attempts, row.timestamps.next_attempt_at, row.timestamps.reserved_at) == (1, due, None)
    assert row.timestamps.failed_at == reservation.reserved_at
    assert look.hash("errors") == {"a": b"ValueError: again"}


def test_a_retry_wakes_the_mover_only_as_the_new_head_of_the_schedule(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a"), message("b")])
    launch = Launch(store)
    a, b = launch.reserve(2)
    launch.settle(retry(a, HOUR))
    assert look.marker("schedule_marker") == 1
    look.take_marker("schedule_marker")
    launch.settle(retry(b, 2 * HOUR))
    assert look.marker("schedule_marker") == 0


def test_the_attempts_of_a_retried_message_go_on_counting(store: RedisStore) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    attempts = []
    for _ in range(4):
        (reservation,) = launch.reserve()
        attempts.append(reservation.attempt)
        launch.settle(retry(reservation))
        store.promote(launch.claim, QUEUE, 1)
    assert attempts == [1, 2, 3, 4]


def test_a_dead_letter_is_set_aside_with_its_error(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    launch.settle(die(reservation, "Fatal: no"))
    assert (look.ranked("dead_letters"), look.score("dead_letters", "a")) == (["a"], reservation.reserved_at)
    assert (look.ranked("in_flight"), look.ranked("schedule"), look.listed("completed")) == ([], [], [])
    assert look.hash("errors") == {"a": b"Fatal: no"}
    assert look.row("a").timestamps.dead_at == reservation.reserved_at


def test_a_parked_message_waits_uncharged_and_is_marked_until_it_is_reserved_again(
    store: RedisStore, look: Looking, inspector: Inspector
) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.settle(*[park(r) for r in launch.reserve()])
    row = look.row("a")
    assert (row.parked, row.attempts, inspector.overview().queues[0].parked) == (True, 0, 1)
    assert look.ranked("schedule") == ["a"]
    store.promote(launch.claim, QUEUE, 1)
    (reservation,) = launch.reserve()
    assert (reservation.attempt, look.row("a").parked) == (1, False)
    assert inspector.overview().queues[0].parked == 0


@pytest.mark.parametrize("priority", [0, 5])
def test_a_released_message_is_offered_again_first_and_uncharged(store: RedisStore, priority: int) -> None:
    store.enqueue([message(name, priority=priority) for name in ("a", "b")])
    launch = Launch(store)
    launch.settle(*map(release, launch.reserve()))
    again = launch.reserve(2)
    assert names(again) == ["a", "b"]
    assert [r.attempt for r in again] == [1, 1]


@pytest.mark.parametrize("priority", [0, 5])
def test_messages_released_last_to_first_keep_their_order(store: RedisStore, priority: int) -> None:
    store.enqueue([message(name, priority=priority) for name in ("a", "b", "c", "d")])
    launch = Launch(store)
    launch.settle(*map(release, reversed(launch.reserve(3))))
    assert names(launch.reserve(9)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("priority", [0, -5, 5])
def test_a_message_may_be_released_and_reserved_again_in_one_step(store: RedisStore, priority: int) -> None:
    store.enqueue([message("a", priority=priority)])
    launch = Launch(store)
    assert names(launch.step(settled=map(release, launch.reserve()), wanted=1).reserved) == ["a"]


def test_a_release_wakes_whoever_idles_at_the_queue(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    reserved = launch.reserve()
    look.take_marker()
    launch.settle(*map(release, reserved))
    assert look.marker() == 1


def test_what_a_step_leaves_ready_keeps_the_marker_up_for_the_next(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a"), message("b"), message("c", priority=1)])
    launch = Launch(store)
    left = []
    for _ in range(3):
        look.take_marker()
        launch.reserve()
        left.append(look.marker())
    assert left == [1, 1, 0]


def test_a_waiting_step_takes_the_marker_and_the_message_at_once(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    assert names(launch.step(wanted=1, wait=30.0).reserved) == ["a"]
    assert look.marker() == 0


def test_a_waiting_step_that_nothing_wakes_looks_all_the_same(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    look.take_marker()
    assert names(launch.step(wanted=1, wait=0.01).reserved) == ["a"]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_reservation_that_was_taken_over_settles_nothing_and_is_reported(
    store: RedisStore, outcome: Callable[[Reservation], Settlement]
) -> None:
    store.enqueue([message("a", key="k")])
    launch = Launch(store)
    (stale,) = launch.reserve(lasts_ms=0)
    store.maintenance.recover(QUEUE, [])
    (current,) = launch.reserve()
    assert current.attempt == 2
    before = snapshot(store.wire)
    assert launch.settle(outcome(stale)).stale == [b"a"]
    assert launch.complete(stale).stale == [b"a"]
    assert snapshot(store.wire) == before
    assert launch.complete(current).stale == []


def test_one_stale_reservation_does_not_keep_its_neighbours_from_settling(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a"), message("b"), message("c")])
    launch = Launch(store)
    (stale,) = launch.reserve(lasts_ms=0)
    others = launch.reserve(2)
    store.maintenance.recover(QUEUE, [])
    assert launch.complete(stale, *others).stale == [b"a"]
    assert look.listed("completed") == ["b", "c"]


def test_a_result_is_kept_with_its_own_message_and_none_of_a_stale_one(store: RedisStore, look: Looking) -> None:
    store.enqueue([message(name) for name in "abcd"])
    launch = Launch(store)
    a, b, c, d = launch.reserve(4)
    store.wire.command("HSET", look.key("rows"), "b", "changed meanwhile".ljust(70))
    stepped = launch.step(completed=[a], settled=[finish(b, '"of b"'), retry(c, HOUR), finish(d, '"of d"', HOUR)])
    assert stepped.stale == [b"b"]
    assert look.hash("results") == {"d": b'"of d"'}
    assert look.runs_of_results() == [["d"]]
    assert look.listed("completed") == ["a", "d"]
    launch.settle(finish(d, '"of d"', HOUR))
    assert look.hash("results") == {"d": b'"of d"'}


def test_a_large_batch_is_reserved_in_its_order_and_leaves_nothing_else_in_flight(
    store: RedisStore, look: Looking
) -> None:
    expected = [f"m{n}" for n in range(100)]
    store.enqueue([message(name) for name in expected])
    launch = Launch(store)
    reserved = launch.reserve(100)
    assert names(reserved) == look.ranked("in_flight") == expected
    launch.complete(*reserved)
    assert look.ranked("in_flight") == []


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_settling_again_what_is_settled_already_changes_nothing_and_is_not_stale(
    store: RedisStore, outcome: Callable[[Reservation], Settlement]
) -> None:
    store.enqueue([message("a"), message("b")])
    launch = Launch(store)
    a, b = launch.reserve(2)
    launch.step(completed=[a], settled=[outcome(b)])
    before = snapshot(store.wire)
    assert launch.step(completed=[a], settled=[outcome(b)]).stale == []
    assert snapshot(store.wire) == before


@pytest.mark.parametrize("priority", [0, 1])
def test_a_message_whose_record_is_missing_becomes_a_malformed_dead_letter(
    store: RedisStore, inspector: Inspector, look: Looking, priority: int
) -> None:
    store.enqueue([message("a", priority=priority), message("b", priority=priority)])
    store.wire.command("HDEL", look.key("records"), "a")
    assert names(Launch(store).reserve(2)) == ["b"]
    assert (look.ranked("dead_letters"), look.ranked("in_flight")) == (["a"], ["b"])
    found = inspector.message("a")
    assert (found.state, found.last_error) == (State.DEAD, "malformed: its record is missing")


def test_a_retried_message_whose_record_is_missing_keeps_what_its_row_says(
    store: RedisStore, inspector: Inspector, look: Looking
) -> None:
    store.enqueue([message("a", priority=3, handler="mail.send")])
    launch = Launch(store)
    launch.settle(*map(retry, launch.reserve()))
    store.promote(launch.claim, QUEUE, 1)
    store.wire.command("HDEL", look.key("records"), "a")
    assert launch.reserve() == []
    row = inspector.message("a").row
    assert (row.priority, row.handler, row.attempts) == (3, "mail.send", 1)
    assert inspector.message("a").state is State.DEAD


def test_attempts_are_counted_no_further_than_the_row_has_room_for(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.settle(*map(retry, launch.reserve()))
    row = store.wire.command("HGET", look.key("rows"), "a")
    store.wire.command("HSET", look.key("rows"), "a", row[:4] + b"\xff\xff" + row[6:])
    store.promote(launch.claim, QUEUE, 1)
    assert launch.reserve()[0].attempt == 65535


def test_an_overtaken_holder_changes_nothing_and_puts_the_marker_back(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a"), message("b"), message("c"), message("d")])
    old = Launch(store, fence=1)
    reserved = old.reserve(3)
    Launch(store, fence=2)
    before = snapshot(store.wire)
    assert look.marker() == 1
    with pytest.raises(LeaseLost):
        old.step(completed=reserved[:1], settled=[retry(reserved[1]), die(reserved[2])], wanted=1, wait=30.0)
    assert snapshot(store.wire) == before


def test_a_step_tells_of_a_successor_of_its_own_group_only(store: RedisStore) -> None:
    launch = Launch(store)
    store.wire.command("SET", f"{store.keys.queue(QUEUE, 'successor_waits')}:consumer:{QUEUE},other", 1)
    assert not launch.step().successor
    store.wire.command("SET", f"{store.keys.queue(QUEUE, 'successor_waits')}:{launch.claim.group}", 1)
    assert launch.step().successor


def test_a_call_made_between_lease_and_announcement_reaches_the_new_holder(store: RedisStore) -> None:
    leases, group = Leases(store.wire, store.keys.namespace), Group("consumer", (QUEUE,), 1)
    launch = Launch(store, fence=7, announced=False)
    leases.call_for_hand_over(group, 7, 30)
    store.maintenance.announce(launch.claim, QUEUE)
    assert launch.step().successor


def test_the_call_by_which_a_holder_got_its_lease_is_dropped_when_it_announces_itself(store: RedisStore) -> None:
    leases, group = Leases(store.wire, store.keys.namespace), Group("consumer", (QUEUE,), 1)
    Launch(store, fence=6)
    leases.call_for_hand_over(group, 6, 30)
    assert not Launch(store, fence=7).step().successor


def test_a_step_goes_through_several_queues_in_one_round_trip(store: RedisStore) -> None:
    from pollconsumer.store.records.reservations import Claim
    from pollconsumer.store.records.steps import QueueStep

    store.enqueue([message("a", queue="one"), message("b", queue="two")])
    claim = Claim("consumer:one,two:0", "1", "consumer:one,two")
    for queue in ("one", "two"):
        store.maintenance.announce(claim, queue)
    stepped = store.step(claim, [QueueStep("one", 5), QueueStep("two", 5)], lasts_ms=HOUR, now=lambda: 0.0)
    assert [(r.queue, r.id) for r in stepped.reserved] == [("one", b"a"), ("two", b"b")]


def test_an_instant_is_reckoned_from_the_reservation_by_the_monotonic_clock(store: RedisStore) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    assert reservation.server_ms(2.5) == reservation.reserved_at + 2500


def test_a_completed_row_tells_when_its_handler_started_and_ended(store: RedisStore, look: Looking) -> None:
    from pollconsumer.store.records.steps import QueueStep

    store.enqueue([message("a")])
    launch = Launch(store)
    (r,) = launch.reserve()
    queue_step = QueueStep(QUEUE)
    queue_step.complete([(r, 0.003, 0.009, None)])
    store.step(launch.claim, [queue_step], lasts_ms=HOUR, now=lambda: 0.0)
    timestamps = look.row("a").timestamps
    assert timestamps.started_at == r.reserved_at + 3
    assert timestamps.completed_at == r.reserved_at + 9


def test_the_step_tells_of_the_dead_letters_that_it_makes(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("lost", handler="send"), message("behind")])
    store.wire.command("RPUSH", look.key("ready"), "ghost")
    launch = Launch(store)
    launch.settle(release(launch.reserve()[0]))  # so that it has a row
    store.wire.command("HDEL", look.key("records"), "lost")
    stepped = launch.step(wanted=9)
    assert names(stepped.reserved) == ["behind"]
    told = [(dead.message.name, dead.message.handler, dead.problem) for dead in stepped.dead_letters]
    assert told == [
        ("lost", "send", "malformed: its record is missing"),
        ("ghost", "", "malformed: its record is missing"),
    ]
    assert launch.step(wanted=9).dead_letters == []
