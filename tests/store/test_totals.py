"""Totals of all launches never fall, and count each thing once."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.store.actions import MessageActions
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.reading.ledger import LAST_BUCKET, SKIPPED, SKIPPED_AT, Spans
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Claim
from tests.conftest import NAMESPACE
from tests.store.acting import QUEUE, Launch, chosen, die, expire, message, park, release, retry

if TYPE_CHECKING:
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector

GROUP = Group("consumer", ("mail",), 1)


# What is settled


@pytest.fixture
def key(store: RedisStore) -> str:
    return store.keys.queue(QUEUE, "totals")


def test_what_a_step_settles_is_counted_by_handler_and_outcome(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message(name) for name in "abcdef"])
    launch = Launch(store)
    a, b, c, d, e, f = launch.reserve(6)
    launch.step(completed=[a], settled=[retry(b), die(c), release(d), park(e), expire(f)])
    assert inspector.totals().settled == {
        (QUEUE, "handler", "completed"): 1,
        (QUEUE, "handler", "retried"): 1,
        (QUEUE, "handler", "dead"): 1,
        (QUEUE, "handler", "released"): 1,
        (QUEUE, "", "parked"): 1,
        (QUEUE, "handler", "expired"): 1,
    }


def test_messages_that_are_completed_alike_count_each(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message(name) for name in "abc"])
    launch = Launch(store)
    launch.step(completed=launch.reserve(3))
    assert inspector.totals().settled == {(QUEUE, "handler", "completed"): 3}


def test_a_step_that_is_repeated_after_a_lost_reply_counts_once(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message("a"), message("b")])
    launch = Launch(store)
    a, b = launch.reserve(2)
    for _ in range(2):
        launch.step(completed=[a], settled=[retry(b)])
    assert inspector.totals().settled == {(QUEUE, "handler", "completed"): 1, (QUEUE, "handler", "retried"): 1}


def test_skipped_occurrences_are_counted_by_queue(store: RedisStore, key: str, inspector: Inspector) -> None:
    store.enqueue([message("a")])
    store.wire.command("HSET", key, SKIPPED, 3, SKIPPED_AT, 1_900_000_000_000)
    assert inspector.totals().skipped == {QUEUE: 3}
    assert inspector.totals().settled == {}


def test_what_is_stale_is_not_counted(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message("a"), message("b")])
    launch = Launch(store)
    a, b = launch.reserve(2)
    store.unreserve(launch.claim, QUEUE, [b.id])
    assert launch.step(completed=[a, b]).stale == [b"a"]
    assert inspector.totals().settled == {(QUEUE, "handler", "completed"): 1}


def test_how_long_handlers_took_is_counted_if_they_ran(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message(name) for name in "abc"])
    launch = Launch(store)
    a, b, c = launch.reserve(3)
    launch.step(settled=[(a, 0.0, 0.005, None), (b, 0.0, 0.005, None), release(c)])
    assert inspector.totals().durations == {"handler": Spans(0.01, Counter({3: 2}))}


def test_the_last_bucket_takes_all_that_are_longer(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message("a")])
    launch = Launch(store)
    (a,) = launch.reserve()
    launch.step(settled=[(a, 0.0, 100 * 86400.0, None)])
    assert inspector.totals().durations["handler"].counts == {LAST_BUCKET: 1}


def test_lateness_is_that_of_first_attempts_with_a_due_time(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message("a", delay=20), message("b")])
    launch = Launch(store)
    promote_all(launch)
    a, b = sorted(launch.reserve(2), key=lambda reservation: reservation.id)
    launch.step(completed=[b], settled=[retry(a, delay_ms=0)])
    promote_all(launch)
    launch.step(completed=launch.reserve())
    found = inspector.totals()
    assert sum(found.lateness[QUEUE].counts.values()) == 1
    assert sum(found.waits[QUEUE].counts.values()) == 3


def test_the_digest_behind_the_name_of_a_handler_is_no_part_of_it(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([chosen("a", b'{"x":"%b"}' % (b"x" * 2000))])
    launch = Launch(store)
    (a,) = launch.reserve()
    assert b"\0" in a.row[rows.HANDLER :]
    launch.complete(a)
    assert inspector.totals().settled == {(QUEUE, "handler", "completed"): 1}


def test_dead_letters_that_the_store_makes_are_counted(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue([message("a"), message("b")])
    store.wire.command("HSET", store.keys.queue(QUEUE, "records"), "a", "corrupt")
    first = Launch(store, fence=1)
    (b,) = first.reserve(2)
    first.begin(b)
    Launch(store, fence=2)
    assert inspector.totals().settled == {(QUEUE, "", "dead"): 1, (QUEUE, "handler", "dead"): 1}


def test_completions_that_an_earlier_version_left_uncounted_are_counted_once(
    store: RedisStore, inspector: Inspector
) -> None:
    store.enqueue([message("a"), message("b")])
    a, b = Launch(store).reserve(2)
    left = [(1000).to_bytes(6) + (1000 + took).to_bytes(6) + each.row for took, each in [(5, a), (90, b)]]
    store.wire.command("RPUSH", store.keys.queue(QUEUE, "uncounted"), *left, b"no completion")
    for _ in range(2):
        store.maintenance.trim(QUEUE)
        assert inspector.totals().settled == {(QUEUE, "handler", "completed"): 2}
        assert inspector.totals().durations == {"handler": Spans(0.095, Counter({3: 1, 7: 1}))}


def test_a_message_that_was_to_stop_counts_as_stopped(store: RedisStore, inspector: Inspector) -> None:
    interventions = MessageActions(store.wire, NAMESPACE)
    store.enqueue([message("a"), message("b")])
    launch = Launch(store, fence=1)
    a, _ = launch.reserve(2)
    for name in "ab":
        interventions.stop(QUEUE, name)
    launch.settle(release(a))
    Launch(store, fence=2)  # recovers the other
    assert inspector.totals().settled == {(QUEUE, "handler", "stopped"): 2}


def test_beyond_a_number_of_totals_handlers_that_were_never_handled_share_one(
    store: RedisStore, inspector: Inspector, key: str
) -> None:
    store.wire.command("HSET", key, *(part for number in range(1000) for part in (f"release\n{number}\n", 1)))
    store.enqueue([message("a"), message("b")])
    launch = Launch(store)
    a, b = launch.reserve(2)
    launch.step(completed=[a], settled=[expire(b)])
    settled = inspector.totals().settled
    assert settled[QUEUE, "", "expired"] == settled[QUEUE, "handler", "completed"] == 1


@pytest.mark.parametrize("command", [("HSET", "complete\nhandler\n0", "junk"), ("SET", "junk")])
def test_corrupt_totals_prevent_no_settlement(
    store: RedisStore, inspector: Inspector, key: str, command: tuple[str, ...]
) -> None:
    store.enqueue([message("a"), message("b")])
    launch = Launch(store)
    a, b = launch.reserve(2)
    store.wire.command(command[0], key, *command[1:])
    assert not launch.step(completed=[a], settled=[expire(b)]).stale
    assert [inspector.message(name).state for name in ("a", "b")] == ["completed", "expired"]


def test_corrupt_totals_are_passed_over_and_begin_again(store: RedisStore, inspector: Inspector, key: str) -> None:
    corrupt = ("waiting\n\n99", "waiting\n\nx", "waiting\nmail\n1", b"\xff", "complete\na", "complete\na\nx", "a\nb\n1")
    store.wire.command("HSET", key, "complete\nhandler\n0", "junk", *(part for name in corrupt for part in (name, 4)))
    store.enqueue([message("a")])
    assert inspector.totals().settled == {(QUEUE, "handler", "completed"): 0}
    assert inspector.totals().waits == {}
    launch = Launch(store)
    launch.complete(*launch.reserve())
    assert inspector.totals().settled == {(QUEUE, "handler", "completed"): 1}


def promote_all(launch: Launch) -> None:
    while launch.store.wire.command("ZCARD", launch.store.keys.queue(QUEUE, "schedule")):
        launch.store.promote(launch.claim, QUEUE, 9)


# How launches ended


def entry(reason: str | None, **fields: Any) -> str:
    return json.dumps({"launch_id": "a", "stop_reason": reason} | fields)


def take(leases: Leases, launch: str = "a") -> Claim:
    acquired = leases.acquire(GROUP, launch, "{}", entry(None))
    assert isinstance(acquired, Claim)
    return acquired


def test_a_launch_is_counted_once_by_its_role_and_stop_reason(leases: Leases, inspector: Inspector) -> None:
    for launch, reason in (("a", "empty"), ("b", "empty"), ("c", "memory")):
        claim = take(leases, launch)
        for exit_seconds in (None, 0.2):  # at its end, and at its exit
            leases.release(claim, entry(reason, exit_seconds=exit_seconds))
    assert inspector.totals().launches == {("consumer", "empty"): 2, ("consumer", "memory"): 1}


def test_a_launch_whose_lease_another_has_is_counted_too(leases: Leases, inspector: Inspector) -> None:
    claim = take(leases)
    leases.break_(claim.lease_name, claim.fence)
    take(leases, "b")
    leases.release(claim, entry("lease_lost", run_id='"stop_reason": "empty"'))
    assert inspector.totals().launches == {("consumer", "lease_lost"): 1}
