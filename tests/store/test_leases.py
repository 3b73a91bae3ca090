"""The lease: who may hold it, in which order, and what becomes of those who stopped holding it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.durations import GENERATION, LAST, Histogram
from pollconsumer.core.errors import StoreRefused
from pollconsumer.store.leases import TTL, Group, HeldLeases, Leases, TurnedAway
from pollconsumer.store.records.reservations import Claim
from tests.conftest import NAMESPACE
from tests.store.servers import server_ms, snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pollconsumer.store.client.connection import Command
    from pollconsumer.store.client.wire import Wire
    from tests.store.servers import Server

GROUP = Group("consumer", ("mail",), 1)
TWO_SLOTS = Group("consumer", ("mail",), 2)
FENCES = f"{{{NAMESPACE}}}:fences"


def acquire(
    leases: Leases, launch: str, group: Group = GROUP, *, dead: tuple[str, ...] = ()
) -> Claim | HeldLeases | TurnedAway:
    return leases.acquire(group, launch, "{}", "{}", dead=dead)


def take(leases: Leases, launch: str, group: Group = GROUP) -> Claim:
    acquired = acquire(leases, launch, group)
    assert isinstance(acquired, Claim)
    return acquired


def renew(leases: Leases, claim: Claim) -> bool | None:
    return leases.renew(claim, "{}")


def requeue_all(leases: Leases, claim: Claim) -> bool:
    return leases.release(claim, "{}")


def lapse(wire: Wire, claim: Claim) -> None:
    """What the server does when a lease is not renewed in time."""
    wire.command("DEL", key(claim))


def key(claim: Claim) -> str:
    return f"{{{NAMESPACE}}}:lease:{claim.lease_name}"


def baton(group: Group = GROUP) -> str:
    return f"{{{NAMESPACE}}}:baton:{group.name}"


# Acquiring


def test_a_free_lease_is_taken_with_a_fence_not_below_the_clock_of_the_server(leases: Leases, wire: Wire) -> None:
    before = server_ms(wire)
    acquired = acquire(leases, "one")
    assert isinstance(acquired, Claim)
    assert before <= acquired.at <= server_ms(wire)
    assert int(acquired.fence) >= before
    assert (acquired.lease_name, acquired.group, acquired.slot) == ("consumer:mail:0", "consumer:mail", 0)


def test_a_lease_expires_unless_it_is_renewed(leases: Leases, wire: Wire) -> None:
    claim = take(leases, "one")
    wire.command("PERSIST", key(claim))
    assert renew(leases, claim)
    assert 0 < wire.command("PTTL", key(claim)) <= TTL * 1000


def test_the_same_launch_asking_again_is_given_the_same_fence(leases: Leases, wire: Wire) -> None:
    first = acquire(leases, "one")
    assert isinstance(first, Claim)
    before = snapshot(wire)
    again = acquire(leases, "one")
    assert isinstance(again, Claim)
    assert again[:3] == first[:3]
    assert snapshot(wire) == before


def test_every_acquisition_takes_a_higher_fence(leases: Leases) -> None:
    taken = []
    for n in range(20):
        claim = take(leases, f"launch-{n}")
        taken.append(int(claim.fence))
        requeue_all(leases, claim)
    assert taken == sorted(set(taken))


def test_the_fence_rises_though_the_clock_of_the_server_was_set_back(leases: Leases, wire: Wire) -> None:
    ahead = server_ms(wire) + 10**9
    wire.command("HSET", FENCES, "last", ahead)
    first = take(leases, "one")
    requeue_all(leases, first)
    second = take(leases, "two")
    assert ahead < int(first.fence) < int(second.fence)


def test_leases_of_different_groups_share_one_line_of_fences(leases: Leases, wire: Wire) -> None:
    wire.command("HSET", FENCES, "last", 10**14)
    holders = [take(leases, role, Group(role, (), 1)) for role in ("consumer", "mover")]
    assert [int(claim.fence) for claim in holders] == [10**14 + 1, 10**14 + 2]


# Successors


def test_a_launch_that_does_not_wait_claims_nothing(leases: Leases, wire: Wire) -> None:
    claim = take(leases, "one")
    before = snapshot(wire)
    found = leases.acquire(GROUP, "two", "{}", "{}", waits=False)
    assert isinstance(found, HeldLeases)
    assert found.signs == (f"{claim.fence}:0",)
    assert wire.command("HDEL", f"{{{NAMESPACE}}}:ledger", "skipped:one", "left") == 2
    assert snapshot(wire) == before
    assert isinstance(acquire(leases, "three"), HeldLeases)
    assert isinstance(leases.acquire(GROUP, "two", "{}", "{}", waits=False), HeldLeases)
    requeue_all(leases, claim)
    assert isinstance(leases.acquire(GROUP, "two", "{}", "{}", waits=False), Claim)


def test_a_launch_that_does_not_wait_takes_the_one_slot_that_is_free(leases: Leases) -> None:
    take(leases, "one", TWO_SLOTS)
    assert isinstance(leases.acquire(TWO_SLOTS, "two", "{}", "{}", waits=False), Claim)
    assert isinstance(leases.acquire(TWO_SLOTS, "three", "{}", "{}", waits=False), HeldLeases)


def test_a_second_launch_waits_as_the_successor_and_a_third_is_sent_away(leases: Leases) -> None:
    claim = take(leases, "one")
    held = acquire(leases, "two")
    assert isinstance(held, HeldLeases)
    assert held.signs == (f"{claim.fence}:0",)
    assert len(held.holders) == 1
    assert 0 < held.lapses_in <= TTL
    assert isinstance(acquire(leases, "three"), TurnedAway)
    assert isinstance(acquire(leases, "two"), HeldLeases)


def test_the_claim_of_a_successor_expires_by_itself(leases: Leases, wire: Wire) -> None:
    take(leases, "one")
    acquire(leases, "two")
    claim = f"{{{NAMESPACE}}}:next:{GROUP.name}"
    assert 0 < wire.command("PTTL", claim) <= 7000
    wire.command("DEL", claim)
    assert isinstance(acquire(leases, "three"), HeldLeases)
    assert isinstance(acquire(leases, "two"), TurnedAway)


def test_the_claim_of_a_successor_from_before_the_servers_clock_was_set_back_keeps_nobody_away(
    leases: Leases, wire: Wire
) -> None:
    take(leases, "one")
    acquire(leases, "two")
    wire.command("PEXPIRE", f"{{{NAMESPACE}}}:next:{GROUP.name}", 3_600_000)
    assert isinstance(acquire(leases, "three"), HeldLeases)
    assert isinstance(acquire(leases, "two"), TurnedAway)


def test_a_successor_that_withdraws_makes_room_for_another(leases: Leases) -> None:
    take(leases, "one")
    acquire(leases, "two")
    leases.withdraw(GROUP, "three")
    assert isinstance(acquire(leases, "three"), TurnedAway)
    leases.withdraw(GROUP, "two")
    assert isinstance(acquire(leases, "three"), HeldLeases)


def test_a_successor_that_became_the_holder_waits_no_longer(leases: Leases) -> None:
    claim = take(leases, "one")
    acquire(leases, "two")
    requeue_all(leases, claim)
    take(leases, "two")
    assert isinstance(acquire(leases, "three"), HeldLeases)


def test_releasing_leaves_one_signal_for_the_successor(leases: Leases, wire: Wire) -> None:
    claim = take(leases, "one")
    acquire(leases, "two")
    assert requeue_all(leases, claim)
    assert wire.command("LLEN", baton()) == 1
    leases.wait(GROUP, 30)
    assert wire.command("LLEN", baton()) == 0
    assert isinstance(acquire(leases, "two"), Claim)


def test_a_signal_left_over_does_not_wake_the_successor_of_the_next_holder(leases: Leases, wire: Wire) -> None:
    requeue_all(leases, take(leases, "one"))
    take(leases, "two")
    assert wire.command("LLEN", baton()) == 0


def test_a_waiting_successor_is_woken_by_the_release(valkey: Server) -> None:
    wire = valkey.wire()
    leases, waiting = Leases(wire, NAMESPACE), Leases(valkey.wire(), NAMESPACE)
    claim = take(leases, "one")
    acquire(waiting, "two")
    successor = threading.Thread(target=waiting.wait, args=(GROUP, 60.0), daemon=True)
    successor.start()
    while b"blocked_clients:1" not in wire.command("INFO", "clients"):
        pass
    requeue_all(leases, claim)
    successor.join(90)
    assert not successor.is_alive()


def test_a_lapsed_lease_is_taken_by_the_next_that_asks(leases: Leases, wire: Wire) -> None:
    first = take(leases, "one")
    lapse(wire, first)
    second = take(leases, "two")
    assert int(second.fence) > int(first.fence)


def test_a_holder_that_shows_no_sign_of_life_is_taken_over(leases: Leases) -> None:
    first = take(leases, "one")
    held = acquire(leases, "two")
    assert isinstance(held, HeldLeases)
    taken = acquire(leases, "two", dead=held.signs)
    assert isinstance(taken, Claim)
    assert int(taken.fence) > int(first.fence)
    assert not renew(leases, first)


def test_a_holder_that_renewed_after_the_last_look_is_not_taken_over(leases: Leases) -> None:
    first = take(leases, "one")
    held = acquire(leases, "two")
    assert isinstance(held, HeldLeases)
    renew(leases, first)
    again = acquire(leases, "two", dead=held.signs)
    assert isinstance(again, HeldLeases)
    assert again.signs != held.signs


# Renewing and releasing


def test_a_lapsed_lease_that_nobody_took_is_revived_under_its_fence(leases: Leases, wire: Wire) -> None:
    claim = take(leases, "one")
    lapse(wire, claim)
    assert renew(leases, claim)
    (lease,) = (wire.command("HMGET", key(claim), "fence", "launch"),)
    assert lease == [claim.fence.encode(), b"one"]
    assert 0 < wire.command("PTTL", key(claim)) <= TTL * 1000
    assert isinstance(acquire(leases, "two"), HeldLeases)


def test_a_lapsed_lease_that_another_took_is_not_revived(leases: Leases, wire: Wire) -> None:
    first = take(leases, "one")
    lapse(wire, first)
    second = take(leases, "two")
    before = snapshot(wire)
    assert not renew(leases, first)
    assert snapshot(wire) == before
    lapse(wire, second)
    assert not renew(leases, first)


def test_a_broken_lease_is_not_revived_and_the_successor_is_woken(leases: Leases, wire: Wire) -> None:
    claim = take(leases, "one")
    assert leases.break_(claim.lease_name, claim.fence)
    assert wire.command("LLEN", baton()) == 1
    assert not renew(leases, claim)
    assert int(take(leases, "two").fence) > int(claim.fence)


def test_a_lease_that_was_given_back_is_not_revived(leases: Leases) -> None:
    claim = take(leases, "one")
    assert requeue_all(leases, claim)
    assert not renew(leases, claim)
    assert int(take(leases, "two").fence) > int(claim.fence)


def test_a_launch_whose_lease_was_broken_before_it_asked_again_is_listed_once(leases: Leases, wire: Wire) -> None:
    first = take(leases, "one")
    leases.break_(first.lease_name, first.fence)
    assert int(take(leases, "one").fence) > int(first.fence)
    assert wire.command("LRANGE", f"{{{NAMESPACE}}}:launches", 0, -1) == [b"one"]


def test_a_store_that_was_emptied_has_forgotten_the_lease(leases: Leases, wire: Wire) -> None:
    claim = take(leases, "one")
    wire.command("FLUSHALL")
    assert renew(leases, claim) is None
    assert wire.command("DBSIZE") == 0


def test_a_lease_is_broken_only_under_the_fence_that_was_seen(leases: Leases, wire: Wire) -> None:
    first = take(leases, "one")
    requeue_all(leases, first)
    second = take(leases, "two")
    before = snapshot(wire)
    assert not leases.break_(first.lease_name, first.fence)
    assert snapshot(wire) == before
    assert renew(leases, second)


def test_releasing_what_another_holds_by_now_takes_nothing_from_it(leases: Leases, wire: Wire) -> None:
    first = take(leases, "one")
    lapse(wire, first)
    second = take(leases, "two")
    assert not requeue_all(leases, first)
    assert wire.command("LLEN", baton()) == 0
    assert renew(leases, second)


def test_releasing_what_another_holds_by_now_leaves_it_its_right_to_revive(leases: Leases, wire: Wire) -> None:
    first = take(leases, "one")
    lapse(wire, first)
    second = take(leases, "two")
    assert not requeue_all(leases, first)
    lapse(wire, second)
    assert renew(leases, second)


def test_releasing_twice_is_harmless(leases: Leases) -> None:
    claim = take(leases, "one")
    assert [requeue_all(leases, claim), requeue_all(leases, claim)] == [True, False]


# Several slots


def test_n_instances_hold_n_leases_and_one_more_waits(leases: Leases) -> None:
    first, second = take(leases, "one", TWO_SLOTS), take(leases, "two", TWO_SLOTS)
    assert [first.lease_name, second.lease_name] == ["consumer:mail:0", "consumer:mail:1"]
    held = acquire(leases, "three", TWO_SLOTS)
    assert isinstance(held, HeldLeases)
    assert len(held.signs) == 2
    assert acquire(leases, "four", TWO_SLOTS) == TurnedAway(held.holders)


def test_the_successor_takes_whichever_slot_is_given_back(leases: Leases) -> None:
    take(leases, "one", TWO_SLOTS)
    second = take(leases, "two", TWO_SLOTS)
    acquire(leases, "three", TWO_SLOTS)
    requeue_all(leases, second)
    assert take(leases, "three", TWO_SLOTS).lease_name == second.lease_name


def test_a_launch_keeps_its_slot_when_it_asks_again_after_another_was_freed(leases: Leases) -> None:
    first = take(leases, "one", TWO_SLOTS)
    second = take(leases, "two", TWO_SLOTS)
    assert requeue_all(leases, first)
    assert take(leases, "two", TWO_SLOTS) == second


# The baton


def test_calling_for_the_hand_over_wakes_the_holder_wherever_it_idles(leases: Leases, wire: Wire) -> None:
    group = Group("consumer", ("mail", "sms"), 1)
    leases.call_for_hand_over(group, 1, 7)
    leases.call_for_hand_over(group, 1, 7)
    for queue in group.queues:
        assert wire.command("LLEN", f"{{{NAMESPACE}:{queue}}}:k") == 1
        assert 0 < wire.command("PTTL", f"{{{NAMESPACE}:{queue}}}:sw:{group.name}") <= 7000


def test_one_mover_sees_that_its_successor_waits(leases: Leases) -> None:
    group = Group("mover", (), 1)
    claim = take(leases, "one", group)
    assert not leases.take_call(claim)
    leases.call_for_hand_over(group, int(claim.fence), 7)
    assert leases.take_call(claim)
    assert not leases.take_call(claim)


def test_a_call_that_comes_while_a_mover_looks_is_seen_at_the_next_look(leases: Leases, wire: Wire) -> None:
    group = Group("mover", (), 1)
    claim, once = take(leases, "one", group), wire.once

    def called_meanwhile(commands: Sequence[Command], **options: Any) -> list[Any]:
        """The server's answers, where a call comes after the first command."""
        first = once(commands[:1], **options)
        wire.once = once  # type: ignore[method-assign]
        leases.call_for_hand_over(group, int(claim.fence), 7)
        return [*first, *once(commands[1:], **options)] if commands[1:] else first

    wire.once = called_meanwhile  # type: ignore[assignment, method-assign]
    assert not leases.take_call(claim)
    assert leases.take_call(claim)


def test_a_mover_ignores_the_call_by_which_it_got_the_lease(leases: Leases) -> None:
    group = Group("mover", (), 1)
    predecessor = take(leases, "one", group)
    leases.call_for_hand_over(group, int(predecessor.fence), 7)
    assert requeue_all(leases, predecessor)
    assert not leases.take_call(take(leases, "two", group))


# What launches learn


HANDLERS = ["a b", "c", "d"]


def learned(leases: Leases, *handlers: str, group: str = GROUP.name) -> dict[str, tuple[float, dict[int, int]]]:
    return {name: (each.total, dict(each.counts)) for name, each in leases.learned(group, handlers).items()}


def test_what_a_launch_measured_is_there_for_the_next_of_its_group(leases: Leases) -> None:
    assert leases.learned(GROUP.name, ["a b"]) == {}
    leases.learn(GROUP.name, {"a b": Histogram(1.0, {7: 3, 12: 1})})
    leases.learn(GROUP.name, {"a b": Histogram(0.5, {12: 3, 384: 1}), "c": Histogram(2.0, {300: 1})})
    assert learned(leases, *HANDLERS) == {"a b": (1.5, {7: 3, 12: 4, 384: 1}), "c": (2.0, {300: 1})}
    assert learned(leases, "c") == {"c": (2.0, {300: 1})}
    assert leases.learned("consumer:other", HANDLERS) == leases.learned(GROUP.name, []) == {}


def test_a_duration_is_forgotten_after_two_generations_of_messages_of_its_group_and_not_before(leases: Leases) -> None:
    leases.learn(GROUP.name, {"rare": Histogram(50.0, {300: 1})})
    for messages in (GENERATION - 1, GENERATION - 1):
        leases.learn(GROUP.name, {"frequent": Histogram(1.0, {0: messages})})
        assert "rare" in learned(leases, "rare", "frequent")
    leases.learn(GROUP.name, {"frequent": Histogram(1.0, {0: 1})})
    assert learned(leases, "rare", "frequent") == {"frequent": (2.0, {0: GENERATION})}


def test_durations_of_all_handlers_of_a_group_are_those_of_both_generations(leases: Leases) -> None:
    leases.learn(GROUP.name, {"rare": Histogram(50.0, {300: 1})})
    leases.learn(GROUP.name, {"frequent": Histogram(1.0, {0: GENERATION - 1})})  # the generation is complete
    leases.learn(GROUP.name, {"rare": Histogram(0.1, {5: 1})})
    leases.learn("consumer:other", {"another": Histogram(0.1, {5: 1})})
    found = {name: dict(each.counts) for name, each in leases.remembered(GROUP.name).items()}
    assert found == {"rare": {300: 1, 5: 1}, "frequent": {0: GENERATION - 1}}


def test_the_histogram_of_a_handler_over_all_groups_never_falls(leases: Leases, wire: Wire) -> None:
    for group in (GROUP.name, "consumer:other"):
        for _ in range(3):
            leases.learn(group, {"a": Histogram(0.5, {7: GENERATION, 12: 1})})
    assert wire.command("HGET", f"{{{NAMESPACE}}}:histograms", "a") == b"3 7:%d 12:6" % (6 * GENERATION)


def test_what_is_kept_of_a_handler_has_a_bound(leases: Leases, wire: Wire) -> None:
    every = dict.fromkeys(range(LAST + 1), 10**6)
    for _ in range(4):
        leases.learn(GROUP.name, {"a": Histogram(1e9, every)})
    for key in ("histograms", f"durations_before:{GROUP.name}"):
        assert len(wire.command("HGET", f"{{{NAMESPACE}}}:{key}", "a")) < 5_000


def test_a_lease_that_never_ends_is_named_and_not_waited_for(leases: Leases, wire: Wire) -> None:
    wire.command("PERSIST", key(take(leases, "one")))
    with pytest.raises(StoreRefused, match=r"lease that never ends: .*:lease:consumer:mail:0; "):
        leases.held()


# The ledger


def skipped(wire: Wire, launch: str) -> int:
    found = wire.command("HGET", f"{{{NAMESPACE}}}:ledger", f"skipped:{launch}")
    return int(found or 0)


def test_each_launch_that_leaves_since_the_lease_is_held_is_counted_with_the_holder(leases: Leases, wire: Wire) -> None:
    take(leases, "one")
    acquire(leases, "two")
    assert skipped(wire, "one") == 0  # it waits
    for _ in range(2):  # a call is repeated after a lost reply
        acquire(leases, "three")
        assert skipped(wire, "one") == 1
    for _ in range(2):
        leases.acquire(GROUP, "four", "{}", "{}", waits=False)
        assert skipped(wire, "one") == 2
    for _ in range(2):
        leases.withdraw(GROUP, "two")
        assert skipped(wire, "one") == 3
    acquire(leases, "five")
    wire.command("HSET", f"{{{NAMESPACE}}}:ledger", "skipped:one", "garbage")
    assert isinstance(acquire(leases, "six"), TurnedAway)


def test_the_ledger_keeps_launches_of_two_days_and_so_many_at_least_and_at_most(
    leases: Leases, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.store.leases.LAUNCHES_KEPT", 3)
    monkeypatch.setattr("pollconsumer.store.leases.MOST_LAUNCHES_KEPT", 5)
    now, day = server_ms(wire), 86_400_000
    ledger, launches = f"{{{NAMESPACE}}}:ledger", f"{{{NAMESPACE}}}:launches"

    def kept_after(launch: str, started: int | None) -> list[str]:
        text = "{}" if started is None else f'{{"started_ms": {started}}}'
        acquired = leases.acquire(GROUP, launch, "{}", text)
        assert isinstance(acquired, Claim)
        wire.command("HSET", ledger, f"skipped:{launch}", 1)
        leases.release(acquired, text)
        kept = [each.decode() for each in wire.command("LRANGE", launches, 0, -1)]
        fields = {each.decode() for each in wire.command("HKEYS", ledger)}
        assert fields == {*kept, *(f"skipped:{each}" for each in kept)}
        return kept

    kept_after("a", now - 3 * day)
    kept_after("b", None)
    kept_after("c", now - day)
    assert kept_after("d", now - day) == ["d", "c", "b"]
    assert kept_after("e", now) == ["e", "d", "c"]
    assert kept_after("f", now) == ["f", "e", "d", "c"]
    assert kept_after("g", now) == ["g", "f", "e", "d", "c"]
    assert kept_after("h", now) == ["h", "g", "f", "e", "d"]
