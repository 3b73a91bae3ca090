"""Calls repeated after a lost reply: at once, after many other messages, and before and after their ids' time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import Conflict, OutcomeUnknown
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.store.client.patience import Clocks
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.queues import maintenance, outbox, producer
from pollconsumer.store.queues.outbox import pack
from pollconsumer.store.queues.producer import ID_MEMORY_MS, MOST_REMEMBERED, Enqueued
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records import rows
from pollconsumer.store.records.occurrences import id_of, record_of
from pollconsumer.store.recurrences import LaunchRecurrences
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, chosen, die, finish, message, send_and_die, unattended
from tests.store.servers import server_ms, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pollconsumer.store.actions import MessageActions
    from tests.store.servers import Server

OTHERS = 50


@pytest.fixture(autouse=True)
def _keep_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "KEEP_FINISHED", 2)


def complete(store: RedisStore, count: int) -> None:
    launch = Launch(store)
    launch.complete(*launch.reserve(count))


def others_complete(store: RedisStore, count: int = OTHERS) -> None:
    """And push what completed before them out of what is kept."""
    store.enqueue([message(f"other-{n}") for n in range(count)])
    complete(store, count)
    while store.maintenance.trim(QUEUE):
        pass


def time_passes(store: RedisStore, ms: int) -> None:
    Looking(store).time_passes_for_ids(ms)
    store.maintenance.trim(QUEUE)


CALLS: dict[str, list[Any]] = {
    "one": [message("a")],
    "an id of the user's": [chosen("a")],
    "a priority": [message("a", priority=-3)],
    "a unique key": [message("a", key="k")],
    "a concurrency key": [message("a", concurrency="c")],
    "a payload that is dropped with its message": [message("a", payload=b'{"x":"%b"}' % (b"x" * 2000))],
    "a page": [message("a"), chosen("b"), message("c", priority=1)],
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_repeated_within_the_time_makes_no_second_message(store: RedisStore, call: str) -> None:
    wanted = CALLS[call]
    duplicates = [Enqueued(each.id, duplicate=True) for each in wanted]
    store.enqueue(wanted)
    assert store.enqueue(wanted) == duplicates  # at once
    complete(store, len(wanted))
    assert store.enqueue(wanted) == duplicates
    others_complete(store)
    assert not Looking(store).hash("records").keys() & {each.id for each in wanted}
    assert store.enqueue(wanted) == duplicates  # after others
    time_passes(store, ID_MEMORY_MS - 1000)
    assert store.enqueue(wanted) == duplicates  # just before
    assert Launch(store).reserve(9) == []


@pytest.mark.parametrize("call", CALLS)
def test_a_call_repeated_after_twice_the_time_makes_a_new_message(store: RedisStore, call: str) -> None:
    wanted = CALLS[call]
    store.enqueue(wanted)
    complete(store, len(wanted))
    others_complete(store)
    time_passes(store, ID_MEMORY_MS)
    assert all(each.duplicate for each in store.enqueue(wanted))
    time_passes(store, ID_MEMORY_MS)
    assert store.enqueue(wanted) == [Enqueued(each.id, duplicate=False) for each in wanted]
    assert len(Launch(store).reserve(9)) == len(wanted)


@pytest.mark.parametrize("generations", [0, 1])
def test_within_the_time_a_forgotten_id_may_not_come_with_another_payload(store: RedisStore, generations: int) -> None:
    store.enqueue([chosen("a")])
    complete(store, 1)
    others_complete(store)
    for _ in range(generations):
        time_passes(store, ID_MEMORY_MS)
    with pytest.raises(Conflict):
        store.enqueue([chosen("a", b'{"n":1}')])
    assert store.enqueue([chosen("a")]) == [Enqueued("a", duplicate=True)]


def test_after_the_time_an_id_may_come_with_another_payload(store: RedisStore) -> None:
    store.enqueue([chosen("a")])
    complete(store, 1)
    others_complete(store)
    for _ in range(2):
        time_passes(store, ID_MEMORY_MS)
    assert store.enqueue([chosen("a", b'{"n":1}')]) == [Enqueued("a", duplicate=False)]


def test_scheduled_messages_are_remembered_from_their_end(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("a", delay=HOUR)])
    for _ in range(3):
        time_passes(store, ID_MEMORY_MS)
    assert store.enqueue([message("a", delay=HOUR)]) == [Enqueued("a", duplicate=True)]
    store.wire.command("ZADD", look.key("schedule"), 1, "a")
    launch = Launch(store)
    store.promote(launch.claim, QUEUE, 9)
    launch.complete(*launch.reserve())
    others_complete(store)
    assert store.enqueue([message("a")]) == [Enqueued("a", duplicate=True)]


def test_cancelled_messages_and_purged_dead_letters_are_remembered(
    store: RedisStore, person: MessageActions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "KEEP_FINISHED", 0)
    store.enqueue([message("cancelled"), message("dead")])
    person.cancel(QUEUE, "cancelled")
    launch = Launch(store)
    launch.settle(*map(die, launch.reserve()))
    store.maintenance.trim(QUEUE)
    assert person.purge(QUEUE, ["dead", "nobody"]) == ["dead"]
    again = [message("cancelled"), message("dead"), message("nobody")]
    assert [each.duplicate for each in store.enqueue(again)] == [True, True, False]


def send_late(store: RedisStore, entry: bytes) -> None:
    send_and_die(store, entry, print)


@pytest.mark.parametrize("times_passed", [0, 1, 3])
def test_an_entry_of_an_outbox_is_received_once_however_late_it_is_sent_again(
    store: RedisStore, look: Looking, times_passed: int
) -> None:
    """By a sender that was stopped between reading and sending."""
    store.enqueue([message("parent")])
    launch = Launch(store)
    (parent,) = launch.reserve()
    there = [message("there", queue="other"), chosen("chosen", queue="other")]
    launch.settle(finish(parent, outgoing=pack([message("a"), *there, message("b")], 0)))
    (entry,) = store.wire.command("LRANGE", look.key("outbox"), 0, -1)
    outbox.send(store, QUEUE, print)
    send_late(store, entry)
    complete(store, 2)
    others_complete(store)
    for _ in range(times_passed):
        time_passes(store, ID_MEMORY_MS)
    before = snapshot(store.wire)
    send_late(store, entry)
    assert snapshot(store.wire) == before
    assert Looking(store, "other").listed("ready") == ["there", "chosen"]


def test_entries_of_an_outbox_are_numbered_in_their_order_even_where_the_clock_goes_back(
    store: RedisStore, look: Looking
) -> None:
    store.wire.command("HSET", look.key("counters"), "sent on", (server_ms(store.wire) + HOUR) * 1000)
    store.enqueue([message("p"), message("q")])
    launch = Launch(store)
    outgoing = [pack([message(name)], 0) for name in ("a", "b")]
    parents = launch.reserve(2)
    launch.settle(*[finish(parent, outgoing=each) for parent, each in zip(parents, outgoing, strict=True)])
    first, second = (int(entry.partition("\n")[0]) for entry in look.listed("outbox"))
    assert second == first + 1
    assert outbox.send(store, QUEUE, print) == 2
    assert look.listed("ready") == ["a", "b"]


def test_a_number_that_somebody_else_made_up_swallows_nothing(store: RedisStore, look: Looking) -> None:
    forged = pack([message("forged")], 0)
    store.wire.command("RPUSH", look.key("outbox"), b"9007199254740991\n" + forged)
    store.wire.command("HSET", look.key("received"), QUEUE, "garbage")
    store.enqueue([message("parent")])
    launch = Launch(store)
    (parent,) = launch.reserve()
    launch.settle(finish(parent, outgoing=pack([message("child")], 0)))
    assert outbox.send(store, QUEUE, print) == 2
    assert look.listed("ready") == ["forged", "child"]


def test_an_occurrence_is_enqueued_once_though_nobody_remembers_its_id(store: RedisStore, look: Looking) -> None:
    recurring = LaunchRecurrences(store.wire, NAMESPACE)
    recurrence = Recurrence("tick", "handler", every=60.0, queue=QUEUE)
    recurring.define("owner", [QUEUE], [recurrence], print)
    due = look.score("next_instants", "tick")
    assert due is not None
    launch = Launch(store)
    script = store.wire.scripts["recur"]
    occurrence = id_of(recurrence.name, due), due, record_of(recurrence, due)
    arguments = [
        launch.claim.lease_name,
        launch.claim.fence,
        "tick",
        due,
        due + 60_000,
        0,
        0,
        "",
        recurrence.as_json(),
        *occurrence,
    ]

    def enqueue() -> int:
        enqueued: int = store.wire.call(script, store.keys.names_for(script.keys, QUEUE), arguments)
        return enqueued

    assert [enqueue(), enqueue()] == [1, -1]
    complete(store, 1)
    others_complete(store)
    for _ in range(3):
        time_passes(store, ID_MEMORY_MS)
    assert enqueue() == -1


def test_an_occurrence_whose_id_is_remembered_is_not_enqueued_when_its_instant_comes_again(
    store: RedisStore, look: Looking
) -> None:
    """As it does for a recurrence that is defined anew after the clock went back."""
    recurrence = Recurrence("tick", "handler", every=60.0, queue=QUEUE)
    recurring = LaunchRecurrences(store.wire, NAMESPACE)
    recurring.define("owner", [QUEUE], [recurrence], print)
    launch = Launch(store)
    for expected in (1, 0):
        store.wire.command("ZADD", look.key("next_instants"), server_ms(store.wire) // 60_000 * 60_000, "tick")
        store.wire.command("DEL", look.key("recurrence_counters"))
        instant = look.score("next_instants", "tick")
        assert recurring.tick(launch.claim, QUEUE, unattended, print) == expected
        complete(store, expected)
        others_complete(store)
        assert instant is not None


# What it costs, and when it ends


def test_more_ids_than_are_remembered_at_most_shorten_the_time(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "MOST_REMEMBERED", 20)
    monkeypatch.setattr(maintenance, "TRIM_PAGE", 10)
    for n in range(100):
        store.enqueue([message(f"m{n}")])
        complete(store, 1)
        store.maintenance.trim(QUEUE)
        remembered = look.members("id_memory") | look.members("id_memory_before")
        assert len(remembered) <= 2 * (20 + 10)
        forgotten = [f"m{k}" for k in range(n - 1)]
        assert set(forgotten[-20:]) <= remembered


def test_nothing_is_remembered_for_ever_where_nothing_happens_any_more(store: RedisStore, look: Looking) -> None:
    store.enqueue([chosen("a")])
    complete(store, 1)
    others_complete(store)
    assert (len(look.members("id_memory")), len(look.hash("id_digests"))) == (OTHERS - 1, 1)
    for _ in range(2):
        time_passes(store, ID_MEMORY_MS)
    kept = ("id_memory", "id_memory_before", "id_digests", "id_digests_before")
    assert store.wire.command("EXISTS", *map(look.key, kept)) == 0


def test_a_clock_that_goes_back_forgets_nothing(store: RedisStore, look: Looking) -> None:
    others_complete(store)
    for _ in range(5):
        time_passes(store, -10 * ID_MEMORY_MS)
    assert len(look.members("id_memory")) == OTHERS - 2


def test_after_a_clock_that_went_back_ids_are_forgotten_in_their_time(store: RedisStore, look: Looking) -> None:
    others_complete(store)
    time_passes(store, -10 * ID_MEMORY_MS)
    for _ in range(2):
        time_passes(store, ID_MEMORY_MS)
    assert (look.members("id_memory"), look.members("id_memory_before")) == (set(), set())


def test_an_id_is_remembered_though_a_hundred_thousand_others_have_ended(valkey: Server) -> None:
    store = RedisStore(valkey.wire(), NAMESPACE)
    store.enqueue([chosen("a"), message("b")])
    complete(store, 2)
    for first in range(0, 100_000, 1000):
        entries = [f"other-{n}" for n in range(first, first + 1000)]
        store.wire.command("RPUSH", store.keys.queue(QUEUE, "completed"), *entries)
    while store.maintenance.trim(QUEUE):
        pass
    assert store.wire.command("SCARD", store.keys.queue(QUEUE, "id_memory")) == 100_002
    assert [each.duplicate for each in store.enqueue([chosen("a"), message("b")])] == [True, True]


def test_the_bounds_are_those_that_are_documented() -> None:
    assert ID_MEMORY_MS == 10 * 60_000
    assert MOST_REMEMBERED == 3_000_000
    assert producer.REPEAT_WITHIN_MS == ID_MEMORY_MS // 2


# Our own repetition of a call whose reply was lost


@pytest.fixture
def lose_reply(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Lose the reply to the next call, and have something happen before it is repeated."""

    def lose(meanwhile: Callable[[], None]) -> None:
        once, lost = store.wire.once, list[object]()

        def losing(commands: Any, *, blocking: float = 0.0) -> Any:
            answers = once(commands, blocking=blocking)
            if not lost and commands[0][0] == "EVALSHA":
                lost.append(commands)
                meanwhile()
                raise Unanswered("lost", sent=True)
            return answers

        monkeypatch.setattr(store.wire, "once", losing)

    return lose


@pytest.mark.parametrize("wanted", [[message("a")], [message(f"m{n}") for n in range(250)]])
def test_a_lost_reply_is_asked_for_again_and_the_messages_are_no_duplicates(
    store: RedisStore, look: Looking, lose_reply: Callable[[Callable[[], None]], None], wanted: list[Any]
) -> None:
    store.enqueue([message("first")])  # makes the queue known
    lose_reply(lambda: None)
    assert store.enqueue(wanted) == [Enqueued(each.id, duplicate=False) for each in wanted]
    assert look.listed("ready") == ["first", *(each.id for each in wanted)]


def test_a_process_that_was_stopped_for_longer_than_ids_are_remembered_repeats_nothing(
    store: RedisStore, look: Looking, lose_reply: Callable[[Callable[[], None]], None]
) -> None:
    class Clock(Clocks):
        now = 0.0

        def boot_time(self) -> float:
            return self.now

    clock = Clock()
    store = RedisStore(store.wire, NAMESPACE, clocks=clock)
    store.enqueue([message("first")])
    complete(store, 1)

    def stopped() -> None:
        clock.now += ID_MEMORY_MS / 1000
        complete(store, 1)
        others = [f"other-{n}" for n in range(9)]
        RedisStore(store.wire, NAMESPACE).wire.command("RPUSH", look.key("completed"), *others)
        for _ in range(3):
            time_passes(store, ID_MEMORY_MS)

    lose_reply(stopped)
    with pytest.raises(OutcomeUnknown, match="outcome unknown: a"):
        store.enqueue([message("a")])
    assert look.listed("ready") == []


@pytest.mark.parametrize("ms_late", [0, 1])
def test_a_repetition_that_is_stopped_on_its_way_is_refused_by_the_clock_of_the_store(
    store: RedisStore, ms_late: int
) -> None:
    script = store.wire.scripts["enqueue"]
    store.enqueue([message("known")])
    before = snapshot(store.wire)
    until = server_ms(store.wire) + (-ms_late or HOUR)
    arguments = [1, f"@{until}", "a", rows.record_head("handler") + b"{}"]
    answer = store.wire.call(script, store.keys.names_for(script.keys, QUEUE), arguments)
    assert (answer == 0) == bool(ms_late)
    assert (snapshot(store.wire) == before) == bool(ms_late)


def test_an_entry_that_is_left_for_a_newer_version_is_not_taken_for_received_then(
    store: RedisStore, look: Looking
) -> None:
    newer = pack([message("newer")], 0).replace(b'"id"', b'"unknown": 1, "id"')
    for number, packed in ((1, pack([message("a")], 0)), (2, newer), (3, pack([message("b")], 0))):
        store.wire.command("RPUSH", look.key("outbox"), b"%d\n%b" % (number, packed))
    assert outbox.send(store, QUEUE, print) == 2
    (left,) = store.wire.command("LRANGE", look.key("outbox"), 0, -1)
    assert send_and_die(store, left.replace(b'"unknown": 1, ', b""), print) == 1
    assert look.listed("ready") == ["a", "b", "newer"]
