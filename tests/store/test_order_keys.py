"""Order keys: of the messages with one key, each begins when those before it have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import BadData
from pollconsumer.core.lifecycle import State
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records import rows
from pollconsumer.store.records.steps import Kept, Retention, Settlement
from pollconsumer.store.store import Store
from pollconsumer.watching.examiner import Examiner
from pollconsumer.watching.facts import HeldOrder
from tests.as_set import expected_as_set
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, expire, finish, message, names, park, release, retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.store.reading.inspector import Inspector
    from pollconsumer.store.records.reservations import Reservation
    from pollconsumer.store.records.steps import Completion
    from tests.store.servers import Server

STAYS: list[Callable[[Reservation], Settlement]] = [lambda r: retry(r, HOUR), lambda r: park(r, HOUR), release]
ENDS: list[Callable[[Reservation], Settlement | Completion]] = [die, expire, finish]


def ordered(*ids: str, key: str = "k", delay: int | None = None) -> list[NewMessage]:
    return [message(name, order=key, delay=delay) for name in ids]


def all_in_turn(launch: Launch, most: int = 50) -> list[str]:
    """Everything that can be handled now, in the order in which it is handed out; each is completed."""
    order = list[str]()
    while reserved := launch.reserve(9):
        order += names(reserved)
        launch.complete(*reserved)
        assert len(order) <= most
    return order


def promote(launch: Launch) -> None:
    launch.store.promote(launch.claim, QUEUE, 100)


def test_one_of_a_key_is_in_flight_and_first_come_first(store: RedisStore, look: Looking) -> None:
    ids = [f"m{n}" for n in range(8)]
    store.enqueue(ordered(*ids))
    launch, handed_out = Launch(store), list[str]()
    reserved = launch.reserve(9)
    while reserved:
        assert len(reserved) == 1
        handed_out += names(reserved)
        reserved = launch.step(completed=reserved, wanted=9).reserved
    assert handed_out == ids
    assert look.hash("order_heads") == {}
    assert look.lined() == []


def test_other_messages_and_keys_go_past_those_that_wait(store: RedisStore) -> None:
    store.enqueue([*ordered("a", "b"), message("x"), *ordered("c", "d", key="other"), message("y", priority=1)])
    assert names(Launch(store).reserve(6)) == ["a", "x", "c", "y"]


@pytest.mark.parametrize("stays", STAYS)
def test_those_behind_wait_while_the_head_has_not_ended(
    store: RedisStore, stays: Callable[[Reservation], Settlement], inspector: Inspector
) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    (a,) = launch.reserve(9)
    launch.settle(stays(a))
    assert "b" not in names(launch.reserve(9))
    assert inspector.message("b").state is State.READY


def test_a_head_that_is_tried_again_is_still_before_the_others(store: RedisStore) -> None:
    store.enqueue(ordered("a", "b", "c"))
    launch = Launch(store)
    (a,) = launch.reserve(9)
    launch.settle(retry(a))
    promote(launch)
    assert all_in_turn(launch) == ["a", "b", "c"]


@pytest.mark.parametrize("end", ENDS)
def test_the_next_is_ready_when_the_head_ends(
    store: RedisStore, look: Looking, end: Callable[[Reservation], Settlement | Completion]
) -> None:
    store.enqueue(ordered("a", "b", "c"))
    launch = Launch(store)
    (a,) = launch.reserve(9)
    look.take_marker()
    launch.settle(end(a))
    assert look.marker() == 1
    assert names(launch.reserve(9)) == ["b"]


def test_the_next_goes_before_what_became_ready_later(store: RedisStore) -> None:
    store.enqueue([*ordered("a", "b"), message("x")])
    launch = Launch(store)
    (a,) = launch.reserve(1)
    assert launch.reserve(0) == []
    store.enqueue([message("y")])
    reserved = launch.step(completed=[a], wanted=9).reserved
    assert names(reserved) == ["b", "x", "y"]


def test_one_that_is_due_later_holds_nobody_before(store: RedisStore, look: Looking) -> None:
    store.enqueue([*ordered("later", delay=HOUR), *ordered("now", "too")])
    launch = Launch(store)
    (now,) = launch.reserve(9)
    assert names([now]) == ["now"]
    store.wire.command("ZADD", look.key("schedule"), 1, "later")  # it has come due
    promote(launch)
    assert launch.reserve(9) == []
    launch.complete(now)
    assert all_in_turn(launch) == ["too", "later"]


def test_what_a_launch_that_died_had_in_flight_stays_the_head(store: RedisStore) -> None:
    store.enqueue(ordered("a", "b", "c"))
    Launch(store).reserve(9)
    assert all_in_turn(Launch(store, fence=2)) == ["a", "b", "c"]


def test_what_was_reserved_unknown_to_its_holder_stays_the_head(store: RedisStore) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    launch.reserve(9)
    assert store.unreserve(launch.claim, QUEUE, []) == 1
    assert all_in_turn(launch) == ["a", "b"]


def test_one_that_is_skipped_after_a_death_passes_on(store: RedisStore) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    (reserved,) = launch.reserve(9)
    launch.begin(reserved)
    assert names(Launch(store, fence=2).reserve(9)) == ["b"]


def test_a_cancelled_head_that_waits_for_its_retry_passes_on(
    store: RedisStore, look: Looking, person: MessageActions
) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    launch.settle(retry(launch.reserve(9)[0], HOUR))
    assert launch.reserve(9) == []
    look.take_marker()
    person.cancel(QUEUE, "a")
    assert look.marker() == 1
    assert names(launch.reserve(9)) == ["b"]


def test_one_that_is_cancelled_in_line_leaves_it(store: RedisStore, look: Looking, person: MessageActions) -> None:
    store.enqueue(ordered("a", "b", "c"))
    launch = Launch(store)
    (a,) = launch.reserve(9)
    person.cancel(QUEUE, "b")
    assert look.lined() == ["c"]
    launch.complete(a)
    assert all_in_turn(launch) == ["c"]


def test_a_rescheduled_head_gives_its_place_up(store: RedisStore, look: Looking, person: MessageActions) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    launch.settle(retry(launch.reserve(9)[0], HOUR))
    assert launch.reserve(9) == []
    look.take_marker()
    person.change(QUEUE, "a", delay=HOUR)
    assert look.marker() == 1
    (b,) = launch.reserve(9)
    person.change(QUEUE, "a", delay=0)
    assert launch.reserve(9) == []
    launch.complete(b)
    assert names(launch.reserve(9)) == ["a"]


def test_a_head_whose_retry_is_brought_forward_keeps_its_place(store: RedisStore, person: MessageActions) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    launch.settle(retry(launch.reserve(9)[0], HOUR))
    assert launch.reserve(9) == []
    person.change(QUEUE, "a", delay=0)
    assert all_in_turn(launch) == ["a", "b"]


def test_one_in_line_that_is_rescheduled_leaves_it(store: RedisStore, look: Looking, person: MessageActions) -> None:
    store.enqueue(ordered("a", "b", "c"))
    launch = Launch(store)
    (a,) = launch.reserve(9)
    person.change(QUEUE, "b", delay=HOUR)
    assert look.lined() == ["c"]
    person.change(QUEUE, "b", delay=0)
    launch.complete(a)
    assert all_in_turn(launch) == ["c", "b"]


def test_a_message_with_an_order_key_gets_no_priority(store: RedisStore, person: MessageActions) -> None:
    store.enqueue(ordered("a"))
    with pytest.raises(BadData, match="it has an order key"):
        person.change(QUEUE, "a", priority=-1)


def test_a_redriven_one_is_the_next_of_its_key(store: RedisStore, person: MessageActions) -> None:
    store.enqueue(ordered("a", "b", "c"))
    launch = Launch(store)
    launch.settle(die(launch.reserve(9)[0]))
    (b,) = launch.reserve(9)
    assert person.redrive(QUEUE, ["a"]) == ["a"]
    assert launch.reserve(9) == []
    launch.complete(b)
    assert all_in_turn(launch) == ["a", "c"]


def test_a_redriven_one_goes_before_those_whose_turn_has_not_come(store: RedisStore, person: MessageActions) -> None:
    store.enqueue(ordered("a"))
    launch = Launch(store)
    launch.settle(die(launch.reserve(9)[0]))
    store.enqueue(ordered("b"))
    assert person.redrive(QUEUE, ["a"]) == ["a"]
    assert all_in_turn(launch) == ["a", "b"]


def hold(launch: Launch) -> None:
    """Have the head die, and hold its key."""
    (reserved,) = launch.reserve(9)
    launch.settle(Settlement.dead(reserved, 1, 1, error="Fatal: no", holds=True))
    assert launch.reserve(9) == []


def test_a_dead_letter_that_holds_is_redriven_before_the_others(store: RedisStore, person: MessageActions) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    hold(launch)
    assert person.redrive(QUEUE, ["a"]) == ["a"]
    assert all_in_turn(launch) == ["a", "b"]


def test_a_dead_letter_that_holds_passes_on_when_it_is_purged(
    store: RedisStore, look: Looking, person: MessageActions
) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    hold(launch)
    look.take_marker()
    assert person.purge(QUEUE, ["a"]) == ["a"]
    assert look.marker() == 1
    assert names(launch.reserve(9)) == ["b"]


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_head_waits_for_its_concurrency_key_and_those_behind_for_it(store: RedisStore, concurrency: int) -> None:
    def both(name: str, order: str) -> NewMessage:
        return message(name, concurrency="c", limit=concurrency, order=order)

    store.enqueue([both("a", "x"), both("b", "x"), both("c", "y"), both("d", "z")])
    launch, order = Launch(store), list[str]()
    reserved = launch.reserve(9)
    assert len(reserved) == concurrency
    while reserved:
        order += names(reserved)
        reserved = launch.step(completed=reserved[:1], wanted=9).reserved + reserved[1:]
    assert order.index("a") < order.index("b")
    assert {*order} == {"a", "b", "c", "d"}


def test_one_that_waits_in_line_and_is_replaced_keeps_its_place(store: RedisStore) -> None:
    store.enqueue([*ordered("a"), message("b", key="u", order="k"), *ordered("c")])
    launch = Launch(store)
    (a,) = launch.reserve(9)
    store.enqueue([message("d", key="u", order="k", payload=b'{"n":2}')._replace(key_rule="r0")])
    launch.complete(a)
    (b,) = launch.reserve(9)
    assert (b.id, b.payload) == (b"b", b'{"n":2}')
    launch.complete(b)
    assert all_in_turn(launch) == ["c"]


def test_those_behind_a_head_that_another_program_removed_go_on(store: RedisStore, look: Looking) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    launch.settle(retry(launch.reserve(9)[0], HOUR))
    assert launch.reserve(9) == []
    store.wire.command("HDEL", look.key("rows"), "a")
    store.wire.command("HDEL", look.key("records"), "a")
    store.maintenance.offer_places(QUEUE)
    assert names(launch.reserve(9)) == ["b"]


def test_the_order_does_not_depend_on_the_servers_clock(store: RedisStore, look: Looking) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    (a,) = launch.reserve(9)
    store.enqueue(ordered("c"))
    record = store.wire.command("HGET", look.key("records"), "c")
    store.wire.command(
        "HSET", look.key("records"), "c", record[:4] + bytes(5) + b"\1" + record[10:]
    )  # accepted in 1970
    assert launch.reserve(9) == []
    assert look.lined() == ["b", "c"]
    launch.complete(a)
    assert all_in_turn(launch) == ["b", "c"]


def test_a_forgotten_dead_letter_passes_on(store: RedisStore, look: Looking) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    hold(launch)
    look.take_marker()
    assert store.maintenance.trim(QUEUE, Retention(dead=Kept(0))) == 1
    assert look.marker() == 1
    assert names(launch.reserve(9)) == ["b"]


def test_a_head_of_a_newer_version_holds(store: RedisStore, look: Looking) -> None:
    store.enqueue(ordered("a", "b"))
    record = store.wire.command("HGET", look.key("records"), "a")
    at = rows.RECORD_KEYS + 2  # behind a concurrency key of no length
    assert record[at] == 2
    store.wire.command("HSET", look.key("records"), "a", record[:at] + b"\x82" + record[at + 1 :])
    launch = Launch(store)
    assert launch.reserve(9) == []
    assert launch.reserve(9) == []
    assert (look.ranked("schedule"), look.lined()) == (["a"], ["b"])


def test_who_watches_is_told_of_keys_that_dead_letters_and_newer_versions_hold(valkey: Server) -> None:
    store, key = RedisStore(valkey.wire(), NAMESPACE), Keys(NAMESPACE).queue(QUEUE, "records")

    def held() -> HeldOrder | None:
        (queue,) = Examiner(Store(store.wire, NAMESPACE)).facts(expected_as_set()).queues
        assert queue.held is None or 0 <= queue.held.first < 60
        return queue.held and queue.held._replace(first=0)

    store.enqueue([*ordered("a", "b", "c"), *ordered("n", "o", key="newer"), *ordered("x", "y", key="retried")])
    launch = Launch(store)
    first, newer, other = launch.reserve(9)
    assert (names([first, newer, other]), launch.reserve(9), held()) == (["a", "n", "x"], [], None)
    launch.settle(Settlement.dead(first, 1, 1, error="Fatal: no", holds=True), retry(newer, HOUR), retry(other, HOUR))
    assert held() == HeldOrder("k", "a", newer=False, waiting=2, first=0)
    record = store.wire.command("HGET", key, "n")
    at = rows.RECORD_KEYS + 2  # behind a concurrency key of no length
    store.wire.command("HSET", key, "n", record[:at] + b"\x82" + record[at + 1 :])
    found = held()
    assert found is not None
    assert (found.others, found.key in ("k", "newer")) == (1, True)
    MessageActions(store.wire, NAMESPACE).purge(QUEUE, ["a"])
    assert held() == HeldOrder("newer", "n", newer=True, waiting=1, first=0)


def test_what_is_not_in_line_any_more_is_passed_over(store: RedisStore, look: Looking) -> None:
    store.enqueue(ordered("a", "b", "c"))
    launch = Launch(store)
    (a,) = launch.reserve(9)
    store.wire.command("HDEL", look.key("rows"), "b")  # by another program
    store.wire.command("HDEL", look.key("records"), "b")
    launch.complete(a)
    assert names(launch.reserve(9)) == ["c"]


def test_a_person_sees_which_message_one_waits_for(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    launch.reserve(9)
    assert [inspector.message(name).waits_for for name in ("a", "b")] == [None, "a"]
    assert inspector.message("b").order_key == "k"


def test_messages_wait_for_their_own_queue_alone(store: RedisStore) -> None:
    store.enqueue([*ordered("a"), message("b", order="k", queue="other")])
    assert names(Launch(store).reserve(9)) == ["a"]
    assert names(Launch(store, queue="other").reserve(9)) == ["b"]


@pytest.mark.parametrize("behind", [[], ["c"]])
def test_several_that_are_redriven_keep_their_order(
    store: RedisStore, person: MessageActions, look: Looking, behind: list[str]
) -> None:
    ids = ["a3", "a1", "a2"]
    for number, name in enumerate(ids):
        store.enqueue(ordered(name))
        record = store.wire.command("HGET", look.key("records"), name)
        accepted = (10**12 + 10 * number).to_bytes(6, "big")
        store.wire.command("HSET", look.key("records"), name, record[:4] + accepted + record[10:])
    launch = Launch(store)
    for _ in ids:
        launch.settle(die(launch.reserve(9)[0]))
    store.enqueue(ordered(*behind))
    head = launch.reserve(9)
    assert person.redrive(QUEUE, ["a2"]) == ["a2"]
    assert person.redrive(QUEUE, ["a3", "a1"]) == ["a3", "a1"]
    launch.complete(*head)
    expected = ids if head else ["a2", "a3", "a1"]  # the first one that is redriven is at once the head
    assert all_in_turn(launch) == expected


def test_messages_of_one_call_that_are_due_together_keep_their_order(store: RedisStore) -> None:
    store.enqueue(ordered("m3", "m1", "m2", delay=1))
    launch = Launch(store)
    while not store.promote(launch.claim, QUEUE, 100).moved:
        pass
    assert all_in_turn(launch) == ["m3", "m1", "m2"]


@pytest.mark.parametrize("retries", [True, False])
def test_a_head_that_is_replaced_by_one_that_is_due_later_gives_its_place_up(store: RedisStore, retries: bool) -> None:
    store.enqueue([message("b", key="u", order="k"), *ordered("c")])
    launch = Launch(store)
    (b,) = launch.reserve(9)
    launch.settle(retry(b, 1000) if retries else release(b))
    store.enqueue([message("d", key="u", order="k", delay=HOUR)._replace(key_rule="r0")])
    assert names(launch.reserve(9)) == ["c"]


def test_a_head_that_is_due_sooner_keeps_its_place(store: RedisStore, person: MessageActions) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    launch.settle(retry(launch.reserve(9)[0], HOUR))
    assert launch.reserve(9) == []
    person.change(QUEUE, "a", delay=HOUR // 2)
    assert launch.reserve(9) == []


@pytest.mark.parametrize("garbage", [None, b"garbage"])
def test_those_behind_a_head_whose_record_is_lost_go_on_once_it_is_dead(
    store: RedisStore, look: Looking, garbage: bytes | None
) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    launch.settle(retry(launch.reserve(9)[0]))
    assert launch.reserve(9) == []
    if garbage is None:
        store.wire.command("HDEL", look.key("records"), "a")
    else:
        store.wire.command("HSET", look.key("records"), "a", garbage)
    promote(launch)
    assert launch.reserve(9) == []
    assert look.ranked("dead_letters") == ["a"]
    store.maintenance.offer_places(QUEUE)
    assert names(launch.reserve(9)) == ["b"]


def test_one_that_is_popped_together_with_a_malformed_head_is_not_lost(store: RedisStore, look: Looking) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    launch.settle(release(launch.reserve(1)[0]))
    store.wire.command("RPOPLPUSH", look.key("ready"), look.key("ready"))  # b, then a
    store.wire.command("HSET", look.key("rows"), "a", "garbage")
    assert names(launch.reserve(9)) == ["b"]


def test_a_person_sees_what_a_message_waits_for_before_its_turn(store: RedisStore, inspector: Inspector) -> None:
    store.enqueue(ordered("a", "b"))
    Launch(store).reserve(1)
    assert inspector.message("b").waits_for == "a"


def test_whoever_looks_after_lines_leaves_a_living_head(store: RedisStore) -> None:
    store.enqueue(ordered("a", "b"))
    launch = Launch(store)
    launch.reserve(9)
    assert store.maintenance.offer_places(QUEUE) == 0
    assert launch.reserve(9) == []
