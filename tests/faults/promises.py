"""What the store promises, each as a short course of events: true where the promise is kept at its end.

Only what harms a user breaks a promise: which of several guards keeps it, and with which answer, is left open. So they
tell guards that cover each other from guards that do not.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import BadData, LeaseLost
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.queues.producer import Origin
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Claim, Reservation
from tests.conftest import NAMESPACE
from tests.store.acting import (
    HOUR,
    QUEUE,
    Launch,
    Looking,
    die,
    finish,
    message,
    names,
    park,
    release,
    retry,
)
from tests.store.servers import server_ms, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.queues.redis_store import RedisStore

    Promise = Callable[[RedisStore], bool]

GROUP = Group("consumer", (QUEUE,), 1)

STALE: dict[str, Callable[[Launch, Reservation], object]] = {
    "completes": lambda launch, reservation: launch.complete(reservation),
    "finishes": lambda launch, reservation: launch.settle(finish(reservation, "result", outgoing=b"[]")),
    "retries": lambda launch, reservation: launch.settle(retry(reservation)),
    "buries": lambda launch, reservation: launch.settle(die(reservation)),
    "parks": lambda launch, reservation: launch.settle(park(reservation)),
    "releases": lambda launch, reservation: launch.settle(release(reservation)),
    "begins": lambda launch, reservation: launch.begin(reservation),
    "checkpoints": lambda launch, reservation: launch.store.checkpoint(launch.claim, reservation, b"1"),
    "gives back": lambda launch, _: launch.store.unreserve(launch.claim, QUEUE, []),
}


def _stale(does: Callable[[Launch, Reservation], object]) -> Promise:
    def changes_nothing(store: RedisStore) -> bool:
        store.enqueue([message("a")])
        stale = Launch(store)
        (reservation,) = stale.reserve()
        Launch(store, fence=2).reserve()
        before = _without_markers(store)
        with suppress(LeaseLost):
            does(stale, reservation)
        return _without_markers(store) == before

    return changes_nothing


def _without_markers(store: RedisStore) -> dict[str, Any]:
    """A marker too many costs one look."""
    return {key: content for key, content in snapshot(store.wire).items() if not key.endswith(":k")}


# Handed out once


def _handed_out(store: RedisStore, *, fence: int = 1) -> list[str]:
    """What one launch is given, one page after the other, and completes."""
    launch, handed_out = Launch(store, fence), []
    for most in (9, 9):
        reserved = launch.reserve(most)
        launch.complete(*reserved)
        handed_out += names(reserved)
    return handed_out


def _an_id_enqueued_again_is_handed_out_once(store: RedisStore) -> bool:
    for _ in range(2):
        store.enqueue([message("a")])
    return _handed_out(store) == ["a"]


def _an_id_twice_in_a_call_is_handed_out_once(store: RedisStore) -> bool:
    store.enqueue([message("a"), message("a")])
    return _handed_out(store) == ["a"]


def _an_id_enqueued_again_after_its_end_is_not_handed_out_again(store: RedisStore) -> bool:
    store.enqueue([message("a")])
    _handed_out(store)
    store.enqueue([message("a")])
    return _handed_out(store) == []


def _an_entry_of_an_outbox_sent_again_is_handed_out_once(store: RedisStore) -> bool:
    for _ in range(2):
        store.enqueue([message("a")], Origin("other", 1, 0))
    return _handed_out(store) == ["a"]


def _an_entry_sent_again_after_its_end_is_not_handed_out_again(store: RedisStore) -> bool:
    store.enqueue([message("a")], Origin("other", 1, 0))
    _handed_out(store)
    store.enqueue([message("a")], Origin("other", 1, 0))
    return _handed_out(store) == []


def _what_is_promoted_is_handed_out_once(store: RedisStore) -> bool:
    store.enqueue([message("a", delay=HOUR)])
    store.wire.command("ZADD", store.keys.queue(QUEUE, "schedule"), 1, "a")
    launch = Launch(store)
    for _ in range(2):
        store.promote(launch.claim, QUEUE, 9)
    return _handed_out(store) == ["a"]


def _what_is_promoted_after_its_end_is_not_handed_out_again(store: RedisStore) -> bool:
    store.enqueue([message("a")])
    _handed_out(store)
    store.wire.command("ZADD", store.keys.queue(QUEUE, "schedule"), 1, "a")
    store.promote(Launch(store).claim, QUEUE, 9)
    return _handed_out(store) == []


def _what_has_ended_is_no_orphan(store: RedisStore) -> bool:
    store.enqueue([message("a")])
    _handed_out(store)
    return _handed_out(store, fence=2) == []


def _what_waits_for_its_next_attempt_is_no_orphan(store: RedisStore) -> bool:
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.settle(retry(launch.reserve()[0], HOUR))
    return _handed_out(store, fence=2) == []


def _what_is_recovered_twice_is_handed_out_once(store: RedisStore) -> bool:
    store.enqueue([message("a")])
    Launch(store).reserve()
    Launch(store, fence=2)
    store.maintenance.recover(QUEUE)
    return _handed_out(store, fence=2) == ["a"]


def _what_a_live_launch_has_is_no_orphan(store: RedisStore) -> bool:
    store.enqueue([message("a")])
    Launch(store).reserve(lasts_ms=0)
    store.maintenance.recover(QUEUE, [b"1"])
    return Launch(store, fence=2, slot=1).reserve() == []


def _what_is_given_back_twice_is_handed_out_once(store: RedisStore) -> bool:
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.reserve()
    for _ in range(2):
        store.unreserve(launch.claim, QUEUE, [])
    return _handed_out(store) == ["a"]


def _what_was_begun_for_the_only_time_is_not_handed_out_again(store: RedisStore) -> bool:
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.begin(launch.reserve()[0])
    store.requeue(launch.claim, QUEUE, [])
    return _handed_out(store, fence=2) == []


def _what_is_cancelled_is_not_handed_out(store: RedisStore) -> bool:
    store.enqueue([message("a"), message("b", priority=1)])
    for name in ("a", "b"):
        MessageActions(store.wire, NAMESPACE).cancel(QUEUE, name)
    return _handed_out(store) == []


def _what_is_in_hand_is_not_cancelled(store: RedisStore) -> bool:
    store.enqueue([message("a")])
    launch = Launch(store)
    reserved = launch.reserve()
    with suppress(BadData):
        MessageActions(store.wire, NAMESPACE).cancel(QUEUE, "a")
    return launch.complete(*reserved).stale == []


def _what_is_redriven_twice_is_handed_out_once(store: RedisStore) -> bool:
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.settle(die(launch.reserve()[0]))
    for _ in range(2):
        MessageActions(store.wire, NAMESPACE).redrive(QUEUE, ["a"])
    return _handed_out(store) == ["a"]


# Unique keys


def _a_key_of_what_has_ended_is_free(store: RedisStore) -> bool:
    store.enqueue([message("a", key="k")])
    _handed_out(store)
    return store.enqueue([message("b", key="k")])[0].id == "b"


def _a_key_of_what_is_cancelled_is_free(store: RedisStore) -> bool:
    store.enqueue([message("a", key="k")])
    MessageActions(store.wire, NAMESPACE).cancel(QUEUE, "a")
    return store.enqueue([message("b", key="k")])[0].id == "b"


def _a_key_is_held_while_its_message_is_there(store: RedisStore) -> bool:
    store.enqueue([message("a", key="k")])
    store.enqueue([message("b", key="k")])
    return _handed_out(store) == ["a"]


def _who_took_over_a_key_keeps_it(store: RedisStore) -> bool:
    store.enqueue([message("a", key="k", lifetime=HOUR)])
    store.wire.command("HSET", store.keys.queue(QUEUE, "unique_keys"), "k", "a\n1")
    store.enqueue([message("b", key="k")])
    launch = Launch(store)
    launch.complete(*launch.reserve())
    return store.enqueue([message("c", key="k")])[0].id == "b"


# Recurrences


def _recurrence(store: RedisStore, mover: Claim) -> Looking:
    look = Looking(store)
    store.maintenance.announce(mover, QUEUE)
    store.wire.command("HSET", look.key("recurrences"), "hourly", "{}")
    store.wire.command("ZADD", look.key("next_instants"), HOUR, "hourly")
    return look


def _recur(store: RedisStore, mover: Claim) -> None:
    record = rows.new_record(NewMessage("", QUEUE, "handler", b"{}"))
    arguments = [mover.lease_name, mover.fence, "hourly", HOUR, 2 * HOUR, 0, 0, "", "{}", "hourly@1", HOUR, record]
    script = store.wire.scripts["recur"]
    store.wire.call(script, store.keys.names_for(script.keys, QUEUE), arguments)


def _an_instant_seen_twice_is_enqueued_once(store: RedisStore) -> bool:
    """The message of the first look has not ended at the second."""
    mover = Claim("mover::0", "1", "mover:")
    look = _recurrence(store, mover)
    for _ in range(2):
        _recur(store, mover)
    return look.listed("ready") == ["hourly@1"]


def _an_instant_that_a_stale_mover_has_seen_too_is_enqueued_once(store: RedisStore) -> bool:
    stale, mover = (Claim("mover::0", fence, "mover:") for fence in ("1", "2"))
    look = _recurrence(store, stale)
    store.maintenance.announce(mover, QUEUE)
    _recur(store, mover)
    with suppress(LeaseLost):
        _recur(store, stale)
    return look.listed("ready") == ["hourly@1"]


def _what_a_stale_mover_could_not_read_goes_on_where_another_could(store: RedisStore) -> bool:
    stale, mover = (Claim("mover::0", fence, "mover:") for fence in ("1", "2"))
    look = _recurrence(store, stale)
    store.maintenance.announce(mover, QUEUE)
    _recur(store, mover)
    script = store.wire.scripts["quarantine"]
    with suppress(LeaseLost):
        keys = store.keys.names_for(script.keys, QUEUE)
        store.wire.call(script, keys, [stale.lease_name, stale.fence, "hourly", HOUR])
    return look.score("next_instants", "hourly") == 2 * HOUR


def _define(store: RedisStore, owner: str, *names_: str) -> None:
    script = store.wire.scripts["define"]
    arguments = [owner]
    for name in names_:
        arguments += (name, "{}", "99999999999999")
    store.wire.call(script, store.keys.names_for(script.keys, QUEUE), arguments)


def _what_another_owner_defines_stays(store: RedisStore) -> bool:
    _define(store, "one", "hourly")
    _define(store, "two", "daily")
    return Looking(store).hash("recurrences").keys() == {"hourly", "daily"}


def _what_two_owners_define_stays_until_both_have_it_no_more(store: RedisStore) -> bool:
    for owner in ("one", "two"):
        _define(store, owner, "hourly")
    _define(store, "one")
    stayed = Looking(store).hash("recurrences").keys() == {"hourly"}
    _define(store, "two")
    return stayed and Looking(store).hash("recurrences") == {}


def _what_was_replaced_over_an_hour_ago_begins_anew(store: RedisStore) -> bool:
    look, now = Looking(store), server_ms(store.wire)
    replaced, script = look.key("recurrences_replaced"), store.wire.scripts["define"]
    for definition, hours in (("one", 1), ("two", 5), ("one", 3)):
        arguments = ["owner", "hourly", definition, now + hours * HOUR]
        store.wire.call(script, store.keys.names_for(script.keys, QUEUE), arguments)
        if store.wire.command("PTTL", replaced) > 0:
            store.wire.command("DEL", replaced)
        for name in look.hash("recurrences_replaced"):
            store.wire.command("HSET", replaced, name, f"{now + HOUR} {now - 2 * HOUR} 1")
    return look.score("next_instants", "hourly") == now + 3 * HOUR


# Leases


def _take(leases: Leases, launch: str) -> Claim | None:
    taken = leases.acquire(GROUP, launch, "{}", "{}")
    return taken if isinstance(taken, Claim) else None


def _lapse(store: RedisStore) -> None:
    store.wire.command("DEL", store.keys.control(f"lease:{GROUP.name}:0"))


def _renewed(leases: Leases, claim: Claim | None) -> bool:
    return claim is not None and bool(leases.renew(claim, "{}"))


def _a_lease_has_one_holder(store: RedisStore) -> bool:
    leases = Leases(store.wire, NAMESPACE)
    first = _take(leases, "one")
    return _take(leases, "two") is None and _renewed(leases, first)


def _what_another_took_stays_with_it(does: Callable[[Leases, Claim], object]) -> Promise:
    """Whatever a launch does whose lease had lapsed: the other goes on renewing."""

    def stays(store: RedisStore) -> bool:
        leases = Leases(store.wire, NAMESPACE)
        first, at = _take(leases, "one"), server_ms(store.wire)
        _lapse(store)
        while server_ms(store.wire) == at:
            pass  # fences of one millisecond are told apart, or not, by a guard that is not looked at here
        second = _take(leases, "two")
        assert first
        does(leases, first)
        return _renewed(leases, second) and not _renewed(leases, first)

    return stays


def _what_is_given_back_is_not_revived(store: RedisStore) -> bool:
    leases = Leases(store.wire, NAMESPACE)
    claim = _take(leases, "one")
    assert claim
    leases.release(claim, "{}")
    return not _renewed(leases, claim)


PROMISES: dict[str, Promise] = {
    **{f"a stale launch that {word} changes nothing": _stale(does) for word, does in STALE.items()},
    **{
        promise.__name__.strip("_").replace("_", " "): promise
        for promise in (
            _an_id_enqueued_again_is_handed_out_once,
            _an_id_twice_in_a_call_is_handed_out_once,
            _an_id_enqueued_again_after_its_end_is_not_handed_out_again,
            _an_entry_of_an_outbox_sent_again_is_handed_out_once,
            _an_entry_sent_again_after_its_end_is_not_handed_out_again,
            _what_is_promoted_is_handed_out_once,
            _what_is_promoted_after_its_end_is_not_handed_out_again,
            _what_has_ended_is_no_orphan,
            _what_waits_for_its_next_attempt_is_no_orphan,
            _what_is_recovered_twice_is_handed_out_once,
            _what_a_live_launch_has_is_no_orphan,
            _what_is_given_back_twice_is_handed_out_once,
            _what_was_begun_for_the_only_time_is_not_handed_out_again,
            _what_is_cancelled_is_not_handed_out,
            _what_is_in_hand_is_not_cancelled,
            _what_is_redriven_twice_is_handed_out_once,
            _a_key_of_what_has_ended_is_free,
            _a_key_of_what_is_cancelled_is_free,
            _a_key_is_held_while_its_message_is_there,
            _who_took_over_a_key_keeps_it,
            _an_instant_seen_twice_is_enqueued_once,
            _an_instant_that_a_stale_mover_has_seen_too_is_enqueued_once,
            _what_a_stale_mover_could_not_read_goes_on_where_another_could,
            _what_another_owner_defines_stays,
            _what_two_owners_define_stays_until_both_have_it_no_more,
            _what_was_replaced_over_an_hour_ago_begins_anew,
            _a_lease_has_one_holder,
            _what_is_given_back_is_not_revived,
        )
    },
    "a stale launch that releases takes no lease": _what_another_took_stays_with_it(
        lambda leases, claim: leases.release(claim, "{}")
    ),
    "a stale fence breaks no lease": _what_another_took_stays_with_it(
        lambda leases, claim: leases.break_(claim.lease_name, claim.fence)
    ),
    "a stale launch that renews takes no lease": _what_another_took_stays_with_it(
        lambda leases, claim: _renewed(leases, claim)
    ),
}
