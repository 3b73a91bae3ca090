"""Totals of all launches never fall, and count each thing once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pollconsumer.store import totals
from pollconsumer.store.leases import Acquired, Group, Leases
from pollconsumer.store.totals_reading import Spans
from tests.conftest import NAMESPACE

if TYPE_CHECKING:
    from pollconsumer.store.inspector import Inspector
    from pollconsumer.store.reservations import Holder
    from pollconsumer.store.wire import Wire

GROUP = Group("consumer", ("mail",), 1)
KEY = f"{{{NAMESPACE}}}:totals"


def entry(reason: str | None, **fields: Any) -> str:
    return json.dumps({"launch_id": "a", "stop_reason": reason} | fields)


def take(leases: Leases, launch: str = "a") -> Holder:
    acquired = leases.acquire(GROUP, launch, "{}", entry(None))
    assert isinstance(acquired, Acquired)
    return acquired.holder


def test_what_launches_counted_is_added_up(leases: Leases, inspector: Inspector) -> None:
    holder, done = take(leases), totals.settled("mail", "send", "completed")
    leases.count(holder, 1, {done: 3, totals.bucket("waiting", "mail", 2): 3, totals.total("waiting", "mail"): 9000})
    leases.count(holder, 2, {done: 4, totals.settled("mail", "send", "dead"): 1})
    found = inspector.totals()
    assert found.settled == {("mail", "send", "completed"): 7, ("mail", "send", "dead"): 1}
    assert found.waits == {"mail": Spans(0.009, {2: 3})}
    assert found.durations == found.lateness == {}


def test_a_call_that_is_repeated_after_a_lost_reply_counts_once(leases: Leases, inspector: Inspector) -> None:
    holder, done = take(leases), totals.settled("mail", "send", "completed")
    for _ in range(2):
        leases.count(holder, 1, {done: 3})
    assert inspector.totals().settled == {("mail", "send", "completed"): 3}
    leases.release(holder, "consumer", "a", entry("empty"))
    leases.count(take(leases, "b"), 1, {done: 3})  # the first call of another launch
    assert inspector.totals().settled == {("mail", "send", "completed"): 6}


def test_a_launch_is_counted_once_by_its_role_and_stop_reason(leases: Leases, inspector: Inspector) -> None:
    for launch, reason in (("a", "empty"), ("b", "empty"), ("c", "memory")):
        holder = take(leases, launch)
        for exit_seconds in (None, 0.2):  # at its end, and at its exit
            leases.release(holder, "consumer", launch, entry(reason, exit_seconds=exit_seconds))
    assert inspector.totals().launches == {("consumer", "empty"): 2, ("consumer", "memory"): 1}


def test_a_launch_whose_lease_another_has_is_counted_too(leases: Leases, inspector: Inspector) -> None:
    holder = take(leases)
    leases.break_(holder.lineage, holder.fence)
    take(leases, "b")
    leases.release(holder, "consumer", "a", entry("lease_lost", run_id='"stop_reason": "empty"'))
    assert inspector.totals().launches == {("consumer", "lease_lost"): 1}


def test_corrupt_totals_are_passed_over_and_begin_again(leases: Leases, inspector: Inspector, wire: Wire) -> None:
    done = totals.settled("mail", "send", "completed")
    wire.command("HSET", KEY, done, "junk", "waiting\nmail\n99", 4, "waiting\nmail\nx", 4, b"\xff", 4, "settled\na", 4)
    assert inspector.totals().settled == {("mail", "send", "completed"): 0}
    assert inspector.totals().waits == {}
    leases.count(take(leases), 1, {done: 2})
    assert inspector.totals().settled == {("mail", "send", "completed"): 2}
