"""What people are shown of the store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import NotFound
from pollconsumer.core.lifecycle import State
from pollconsumer.store import server
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.reading import inspector as module
from pollconsumer.store.reading import ledger
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Claim
from tests.store.acting import HOUR, QUEUE, Launch, Looking, complete_ago, die, message, park, release, retry
from tests.store.servers import server_ms, snapshot

if TYPE_CHECKING:
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.client.wire import Wire
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector

STATES = {
    "ready": State.READY,
    "ranked": State.READY,
    "scheduled": State.SCHEDULED,
    "retried": State.SCHEDULED,
    "parked": State.SCHEDULED,
    "reserved": State.RESERVED,
    "completed": State.COMPLETED,
    "dead": State.DEAD,
    "released": State.READY,
}


@pytest.fixture
def one_of_each(store: RedisStore) -> RedisStore:
    store.enqueue([message(name) for name in ("completed", "dead", "retried", "released", "parked", "reserved")])
    launch = Launch(store)
    completed, dead, retried, released, parked, _ = launch.reserve(6)
    launch.step(
        completed=[completed],
        settled=[die(dead, "Fatal: no"), retry(retried, HOUR), release(released), park(parked, HOUR)],
    )
    store.enqueue([message("ready"), message("ranked", priority=2), message("scheduled", delay=HOUR)])
    return store


def test_every_message_is_in_the_state_that_its_timestamps_say(one_of_each: RedisStore, inspector: Inspector) -> None:
    del one_of_each
    assert {name: inspector.message(name).state for name in STATES} == STATES


def test_each_state_lists_its_messages(one_of_each: RedisStore, inspector: Inspector) -> None:
    del one_of_each
    for state in State:
        listed = {found.id for found in inspector.messages(state, QUEUE, 99)}
        assert listed == {name for name, held in STATES.items() if held is state}
    assert {found.id for found in inspector.messages(None, None, 99)} == set(STATES)


def test_the_counts_of_a_queue_are_what_its_indexes_hold(one_of_each: RedisStore, inspector: Inspector) -> None:
    look = Looking(one_of_each)
    one_of_each.wire.command("ZADD", look.key("schedule"), 1, "scheduled")
    (counts,) = inspector.overview().queues
    assert counts.oldest_ready_seconds is not None
    assert {state: getattr(counts, state) for state in State} == {
        state: [*STATES.values()].count(state) for state in State
    }
    assert (counts.name, counts.parked, counts.paused, counts.overdue) == (QUEUE, 1, False, 1)
    assert counts.skipped == 0
    assert counts.ready == len(look.listed("ready")) + len(look.ranked("ready_by_priority"))
    assert inspector.overview().overdue == 1


def test_looking_changes_nothing(one_of_each: RedisStore, inspector: Inspector) -> None:
    before = snapshot(one_of_each.wire)
    inspector.overview()
    inspector.leases()
    inspector.launches(9)
    inspector.message("dead")
    list(inspector.messages(None, None, 99))
    assert snapshot(one_of_each.wire) == before


def test_the_oldest_ready_message_is_found_in_either_index(store: RedisStore, inspector: Inspector) -> None:
    look = Looking(store)
    assert inspector.overview().queues == []
    store.enqueue([message("a"), message("ranked", priority=1)])
    for name, ago in (("a", 7_000_000), ("ranked", 9_000_000)):
        record = store.wire.command("HGET", look.key("records"), name)
        accepted = (server_ms(store.wire) - ago).to_bytes(6, "big")
        store.wire.command("HSET", look.key("records"), name, record[:4] + accepted + record[10:])
    found = inspector.overview().queues[0].oldest_ready_seconds
    assert found is not None
    assert 9000 <= found < 9100


@pytest.mark.parametrize("key", ["order", "concurrency"])
def test_messages_in_line_for_a_key_are_ready_and_are_not_the_oldest(
    store: RedisStore, inspector: Inspector, key: str
) -> None:
    given: dict[str, Any] = {key: "k"}
    store.enqueue([message("first", **given), message("behind", **given)])
    assert [each.id for each in Launch(store).reserve(2)] == [b"first"]
    found = inspector.overview().queues[0]
    assert (found.ready, found.oldest_ready_seconds) == (1, None)
    store.enqueue([message("free")])
    found = inspector.overview().queues[0]
    assert (found.ready, found.oldest_ready_seconds is None) == (2, False)


def test_a_queue_without_ready_messages_has_no_oldest(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message("a", delay=HOUR)])
    assert inspector.overview().queues[0].oldest_ready_seconds is None


def test_an_unknown_id_is_not_found(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message("a")])
    with pytest.raises(NotFound, match="b"):
        inspector.message("b")


def test_an_unknown_queue_is_not_found_and_the_known_ones_are_named(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message("a", queue="one"), message("b", queue="two")])
    with pytest.raises(NotFound, match="one, two"):
        list(inspector.messages(None, "three", 9))


def test_a_list_is_read_page_by_page_up_to_its_limit(
    store: RedisStore, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 3)
    ids = [f"m{n:02}" for n in range(10)]
    store.enqueue([message(name) for name in ids])
    assert [found.id for found in inspector.messages(State.READY, QUEUE, 99)] == ids
    assert [found.id for found in inspector.messages(State.READY, QUEUE, 4)] == ids[:4]
    assert list(inspector.messages(State.READY, QUEUE, 0)) == []


def test_a_malformed_payload_is_shown_as_none(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message("a", payload=b"{bad")])
    assert inspector.message("a").payload is None


@pytest.mark.parametrize(("before", "error"), [(park, None), (retry, "ValueError: no"), (die, "Fatal: no")])
def test_a_completed_message_has_an_error_only_if_it_failed(
    before: Any, error: str | None, store: RedisStore, person: MessageActions, inspector: Inspector
) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.settle(before(*launch.reserve()))
    assert inspector.message("a").last_error
    store.promote(launch.claim, QUEUE, 1)
    person.redrive(QUEUE, ["a"])
    launch.complete(*launch.reserve())
    found = inspector.message("a")
    assert (found.state, found.last_error) == (State.COMPLETED, error)


def test_durations_are_read_off_the_timestamps(one_of_each: RedisStore, inspector: Inspector) -> None:
    del one_of_each
    completed = inspector.message("completed").durations
    assert completed["handled_seconds"] == 0
    assert completed["waited_seconds"] is not None
    assert inspector.message("ready").durations == {"waited_seconds": None, "handled_seconds": None}


def test_the_rate_of_a_queue_is_of_what_it_completed_in_the_last_minute(
    store: RedisStore, inspector: Inspector
) -> None:
    complete_ago(store, {"a": 90_000, "b": 50_000, "c": 10_000})
    assert inspector.counts(QUEUE).load.completed_per_minute == 2


def test_the_rate_of_a_quick_queue_is_of_its_last_messages(
    store: RedisStore, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "COUNTED", 3)
    complete_ago(store, {f"m{n}": 50_000 - n * 10_000 for n in range(5)})
    assert inspector.counts(QUEUE).load.completed_per_minute == pytest.approx(3 / 30 * 60, rel=0.1)


# Launches and leases


def take(leases: Leases, launch: str, group: Group) -> Claim:
    description = {"role": group.role, "queues": group.queues, "host": "h", "pid": 7}
    entry = {"launch_id": launch, "role": group.role, "stop_reason": None}
    acquired = leases.acquire(group, launch, json.dumps(description), json.dumps(entry))
    assert isinstance(acquired, Claim)
    return acquired


def entry_of(acquired: Claim, launch: str, at: int, **fields: Any) -> str:
    claim = acquired
    known = {"launch_id": launch, "lineage": claim.lease_name, "fence": int(claim.fence), "acquired_ms": at}
    return json.dumps(known | {"ended_ms": at + 1000, "exit_code": 0, "stop_reason": "no_time_to_idle"} | fields)


CONSUMER = Group("consumer", ("mail",), 1)
MOVER = Group("mover", (), 1)


def test_earlier_launches_of_a_group_that_comes_rarely_are_read_beside_the_newest_of_all(
    leases: Leases, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "PAGE", 2)
    rare, once = Group("consumer", ("reports",), 1), Group("consumer", ("once",), 1)
    for at, group in enumerate([rare, once, *3 * [CONSUMER], rare, rare, *6 * [CONSUMER]]):
        acquired = take(leases, f"{group.queues[0]} {at}", group)
        leases.release(acquired, entry_of(acquired, f"{group.queues[0]} {at}", 1000 * at))

    def read(limit: int, of_each: int = 0) -> list[str]:
        return [entry["launch_id"] for entry in inspector.launches(limit, of_each)]

    assert read(2) == ["mail 12", "mail 11"]
    assert read(2, 2) == ["mail 12", "mail 11", "reports 6", "reports 5", "once 1"]
    assert read(2, 3) == ["mail 12", "mail 11", "mail 10", "reports 6", "reports 5", "once 1", "reports 0"]
    assert [each["gap_seconds"] for each in inspector.launches(2, 3)[3:5]] == [0.0, 4.0]


def test_the_ledger_is_newest_first_with_the_gap_since_the_launch_before(leases: Leases, inspector: Inspector) -> None:
    for launch, at in (("first", 1000), ("second", 2500), ("third", 3500)):
        acquired = take(leases, launch, CONSUMER)
        leases.release(acquired, entry_of(acquired, launch, at))
    ledger = inspector.launches(9)
    assert [(entry["launch_id"], entry["gap_seconds"]) for entry in ledger] == [
        ("third", 0.0),
        ("second", 0.5),
        ("first", None),
    ]
    assert [entry["launch_id"] for entry in inspector.launches(1)] == ["third"]
    assert inspector.launches(1)[0]["gap_seconds"] == 0.0


def test_the_ledger_says_how_long_a_launch_took_from_its_start_to_its_lease(
    leases: Leases, inspector: Inspector
) -> None:
    for launch, instants in (("early", {}), ("late", {"started_ms": 1000})):
        acquired = take(leases, launch, CONSUMER)
        leases.release(acquired, entry_of(acquired, launch, 59_700, **instants))
    assert {each["launch_id"]: each["waited_seconds"] for each in inspector.launches(9)} == {
        "early": None,
        "late": 58.7,
    }


def test_gaps_are_between_launches_of_one_lineage(leases: Leases, inspector: Inspector) -> None:
    for launch, at, group in (("c1", 1000, CONSUMER), ("m1", 5000, MOVER), ("c2", 9000, CONSUMER)):
        acquired = take(leases, launch, group)
        leases.release(acquired, entry_of(acquired, launch, at))
    gaps = {entry["launch_id"]: entry["gap_seconds"] for entry in inspector.launches(9)}
    assert gaps == {"c1": None, "m1": None, "c2": 7.0}


def test_a_launch_that_neither_ended_nor_holds_its_lease_has_died(
    leases: Leases, inspector: Inspector, wire: Wire
) -> None:
    gone = take(leases, "gone", CONSUMER)
    leases.renew(gone, entry_of(gone, "gone", 1, stop_reason=None, exit_code=None))
    wire.command("DEL", "{tests}:lease:consumer:mail:0")
    live = take(leases, "live", CONSUMER)
    description = json.dumps({"role": "consumer", "queues": ["mail"], "host": "h", "pid": 7})
    entry = entry_of(live, "live", 2, stop_reason=None, exit_code=None)
    leases.renew(live._replace(description=description), entry)
    ended = {entry["launch_id"]: (entry["stop_reason"], entry["exit_code"]) for entry in inspector.launches(9)}
    assert ended == {"live": (None, None), "gone": ("died", -1)}


def test_the_ledger_remembers_a_bounded_number_of_launches(
    leases: Leases, inspector: Inspector, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.store.leases.LAUNCHES_KEPT", 3)
    for n in range(5):
        acquired = take(leases, f"l{n}", CONSUMER)
        leases.release(acquired, entry_of(acquired, f"l{n}", n))
    assert [entry["launch_id"] for entry in inspector.launches(9)] == ["l4", "l3", "l2"]
    assert wire.command("HLEN", "{tests}:ledger") == 3


def test_a_lease_is_shown_with_its_holder(leases: Leases, inspector: Inspector) -> None:
    acquired = take(leases, "one", CONSUMER)
    assert inspector.leases() == [
        {
            "role": "consumer",
            "slot": 0,
            "queues": ["mail"],
            "holder": "one",
            "host": "h",
            "pid": 7,
            "fence": int(acquired.fence),
            "since_ms": acquired.at,
            "lineage": "consumer:mail:0",
            "working_on": [],
        }
    ]
    leases.release(acquired, "{}")
    assert inspector.leases() == []


def test_how_long_ago_a_mover_was_seen(leases: Leases, inspector: Inspector, wire: Wire) -> None:
    assert inspector.overview().mover_seen_seconds_ago is None
    acquired = take(leases, "one", MOVER)
    assert inspector.overview().mover_seen_seconds_ago == 0
    leases.release(acquired, entry_of(acquired, "one", 1))
    wire.command("HSET", "{tests}:seen", "mover", server_ms(wire) - HOUR)
    ago = inspector.overview().mover_seen_seconds_ago
    assert ago is not None
    assert 3600 <= ago < 3700


def test_what_somebody_else_wrote_into_ledger_and_leases_is_passed_over(
    store: RedisStore, inspector: Inspector
) -> None:
    control = store.keys.control
    store.wire.command("LPUSH", control("launches"), *"abcde")
    store.wire.command("HSET", control("ledger"), "a", "junk", "b", "[]", "c", "{}")
    for launch, long in (("d", "1e300"), ("e", "9" * 300)):  # no table could show them
        entry = f'{{"launch_id": "{launch}", "stop_reason": "empty", "handled": {long}}}'
        store.wire.command("HSET", control("ledger"), launch, entry)
    store.wire.command("SADD", control("leases"), "consumer:mail:0", "mover::0")
    store.wire.command("HSET", control("lease:consumer:mail:0"), "fence", "x")
    store.wire.command("HSET", control("lease:mover::0"), "holder", "junk")
    assert inspector.launches(9) == []
    assert inspector.leases() == []
    assert inspector.overview().leases == []


@pytest.mark.parametrize("cancelled", [16, 700])
@pytest.mark.parametrize("forgotten", [False, True])
def test_the_oldest_ready_message_is_found_behind_cancelled_ones(
    store: RedisStore, inspector: Inspector, person: MessageActions, look: Looking, cancelled: int, forgotten: bool
) -> None:
    ids = [f"m{n}" for n in range(cancelled)]
    store.enqueue([message(each) for each in [*ids, "oldest", "younger"]])
    store.enqueue([message("urgent", priority=-1)])
    record: bytes = look.hash("records")["oldest"]
    minute_ago = server_ms(store.wire) - 60_000
    store.wire.command("HSET", look.key("records"), "oldest", record[:4] + rows.pack6(minute_ago) + record[10:])
    assert len(person.cancel_all(QUEUE, ids)) == cancelled
    if forgotten:
        store.wire.command("HDEL", look.key("rows"), *ids)
        store.wire.command("HDEL", look.key("records"), *ids)
    found = inspector.overview().queues[0]
    assert (found.ready, found.cancelled) == (3, cancelled)
    assert found.oldest_ready_seconds is not None
    assert 60 <= found.oldest_ready_seconds < 120


def test_behind_more_cancelled_ones_than_are_searched_the_oldest_ready_message_is_as_old_as_the_last_of_these(
    store: RedisStore, inspector: Inspector, person: MessageActions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.store.reading.inspector.SEARCHED", 20)
    monkeypatch.setattr("pollconsumer.store.reading.inspector.PAGE", 10)
    ids = [f"m{n}" for n in range(40)]
    store.enqueue([message(each) for each in [*ids, "oldest"]])
    person.cancel_all(QUEUE, ids)
    assert inspector.overview().queues[0].oldest_ready_seconds is not None
    person.cancel(QUEUE, "oldest")
    assert inspector.overview().queues[0].ready == 0


def test_where_all_were_cancelled_no_ready_message_is_the_oldest(
    store: RedisStore, inspector: Inspector, person: MessageActions
) -> None:
    ids = [f"m{n}" for n in range(30)]
    store.enqueue([message(each) for each in ids])
    person.cancel_all(QUEUE, ids)
    assert inspector.overview().queues[0].oldest_ready_seconds is None
