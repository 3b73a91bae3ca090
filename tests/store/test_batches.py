"""Batches: each end of a member counts once, and each callback is enqueued once.

docs/evidence/batches.md says which of them finds what went wrong elsewhere.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from pollconsumer.core.errors import NodeLost, NotFound
from pollconsumer.core.messages.continuation import FIRST
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.store.actions import BatchActions
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.batches import Batches
from pollconsumer.store.queues.outbox import pack
from pollconsumer.store.reading.batch_reader import MALFORMED, BatchReader
from pollconsumer.store.records.steps import Retention
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, expire, release, retry, send_and_die
from tests.store.batching import HOME, OTHER, OneBatch, complete_member, member, new_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore


@pytest.fixture
def batch(store: RedisStore) -> OneBatch:
    return OneBatch(store)


def with_members(batch: OneBatch, *queues: str) -> None:
    batch.add(*(member(number, queue) for number, queue in enumerate(queues)))
    assert batch.close(len(queues)) == ""


def complete_all(batch: OneBatch, queue: str = QUEUE) -> None:
    launch = batch.launches[queue]
    launch.settle(*(complete_member(each) for each in launch.reserve(99)))
    batch.send()


def test_then_and_ended_are_enqueued_when_the_last_member_of_any_queue_is_completed(batch: OneBatch) -> None:
    with_members(batch, QUEUE, OTHER, QUEUE)
    assert (batch.counts(), batch.called()) == (("closed", 3, 0, 0, 0, 0), [])
    complete_all(batch)
    assert (batch.counts(), batch.called()) == (("closed", 3, 2, 0, 0, 0), [])
    complete_all(batch, OTHER)
    assert (batch.counts(), batch.called()) == (("ended", 3, 3, 0, 0, 0), ["then", "ended"])


def test_members_of_a_step_are_told_in_one_entry(batch: OneBatch) -> None:
    with_members(batch, *[QUEUE] * 5)
    launch = batch.launches[QUEUE]
    launch.settle(*(complete_member(each) for each in launch.reserve(9)))
    assert len(Looking(batch.store).listed("outbox")) == 1


def test_members_of_several_batches_with_one_home_may_end_in_one_step(batch: OneBatch, store: RedisStore) -> None:
    assert batch.batches.open(new_batch("c")) == ""
    batch.add(member(0), member(7, batch="c"), member(1), member(8, batch="c"))
    batch.close(2)
    batch.batches.close(HOME, "c", 2)
    complete_all(batch)
    assert batch.counts() == ("ended", 2, 2, 0, 0, 0)
    assert sorted(Looking(store, HOME).listed("ready")) == ["b:ended", "b:then", "c:ended", "c:then"]


def test_members_that_all_end_before_their_producer_closes_the_batch_end_it_then(batch: OneBatch) -> None:
    batch.add(member(0))
    complete_all(batch)
    assert (batch.counts(), batch.called()) == (("open", 0, 1, 0, 0, 0), [])
    assert batch.close(1) == ""
    batch.send()
    assert batch.called() == ["then", "ended"]
    assert batch.close(1) == "ended"


def test_an_empty_batch_ends_when_it_is_closed(batch: OneBatch) -> None:
    assert batch.close(0) == ""
    batch.send()
    assert (batch.counts(), batch.called()) == (("ended", 0, 0, 0, 0, 0), ["then", "ended"])


def test_failed_is_enqueued_at_the_first_dead_member_and_not_again(batch: OneBatch) -> None:
    with_members(batch, QUEUE, QUEUE, QUEUE)
    launch = batch.launches[QUEUE]
    first, *others = launch.reserve(9)
    launch.settle(die(first))
    batch.send()
    assert (batch.counts(), batch.called()) == (("closed", 3, 0, 1, 0, 0), ["failed"])
    launch.settle(*map(die, others))
    batch.send()
    assert (batch.counts(), batch.called()) == (("ended", 3, 0, 3, 0, 0), ["failed", "ended"])


def test_then_is_enqueued_when_a_redrive_has_the_last_dead_member_completed(
    batch: OneBatch, person: MessageActions
) -> None:
    with_members(batch, QUEUE, QUEUE)
    launch = batch.launches[QUEUE]
    launch.settle(*(die(each) if each.id == b"b.0" else complete_member(each) for each in launch.reserve(9)))
    batch.send()
    assert batch.called() == ["failed", "ended"]
    for _ in range(2):
        assert person.redrive(QUEUE, ["b.0"]) == ["b.0"]
        batch.send()
        assert batch.counts() == ("ended", 2, 1, 1, 0, 0)
        launch.settle(*map(die, launch.reserve()))  # and again
        batch.send()
        assert batch.counts() == ("ended", 2, 1, 1, 0, 0)
    person.redrive(QUEUE, ["b.0"])
    complete_all(batch)
    assert (batch.counts(), batch.called()) == (("ended", 2, 2, 0, 0, 0), ["failed", "ended", "then"])


def test_a_member_that_is_cancelled_expires_or_is_stopped_counts_as_that(
    batch: OneBatch, person: MessageActions
) -> None:
    with_members(batch, QUEUE, QUEUE, QUEUE)
    person.cancel(QUEUE, "b.0")
    launch = batch.launches[QUEUE]
    expired, stopped = launch.reserve(9)
    person.stop(QUEUE, "b.2")
    launch.settle(expire(expired), retry(stopped))
    batch.send()
    assert (batch.counts(), batch.called()) == (("ended", 3, 0, 0, 2, 1), ["failed", "ended"])


@pytest.mark.parametrize("is_cancelled_last", [True, False])
def test_cancelled_members_may_count_as_completed(
    store: RedisStore, person: MessageActions, is_cancelled_last: bool
) -> None:
    batch = OneBatch(store, spares=True)
    with_members(batch, QUEUE, OTHER)
    ends: list[Callable[[], Any]] = [lambda: complete_all(batch), lambda: person.cancel(OTHER, "b.1")]
    for end in ends if is_cancelled_last else reversed(ends):
        assert batch.called() == []
        end()
        batch.send()
    assert (batch.counts(), batch.called()) == (("ended", 2, 1, 0, 1, 0), ["then", "ended"])


def test_a_dead_member_fails_a_batch_that_spares_cancelled_ones(store: RedisStore, person: MessageActions) -> None:
    batch = OneBatch(store, spares=True)
    with_members(batch, QUEUE, QUEUE)
    person.cancel(QUEUE, "b.0")
    batch.launches[QUEUE].settle(*map(die, batch.launches[QUEUE].reserve()))
    batch.send()
    assert (batch.counts(), batch.called()) == (("ended", 2, 0, 1, 1, 0), ["failed", "ended"])


def test_a_home_has_so_many_batches_that_have_not_ended_at_most(
    batch: OneBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.store.queues.batches.MOST_BATCHES", 2)
    assert [batch.batches.open(new_batch(name)) for name in ("c", "d", "c", "d")] == ["", "full", "open", "full"]
    batch.batches.take_in([new_batch("e", total=1)], [])  # with a completion, which was accepted
    batch.close(0)
    assert batch.batches.open(new_batch("d")) == "full"
    batch.batches.close(HOME, "c", 0)
    assert batch.batches.open(new_batch("d")) == ""


def test_a_member_whose_launch_died_ends_when_it_is_recovered_to_stop(batch: OneBatch, person: MessageActions) -> None:
    with_members(batch, QUEUE, QUEUE)
    batch.launches[QUEUE].reserve(2)
    person.stop(QUEUE, "b.0")
    Launch(batch.store, fence=2)
    batch.send()
    assert batch.counts() == ("closed", 2, 0, 0, 1, 0)


def test_a_member_that_is_delivered_at_most_once_and_whose_launch_died_is_dead(batch: OneBatch) -> None:
    with_members(batch, QUEUE)
    launch = batch.launches[QUEUE]
    launch.begin(*launch.reserve())
    Launch(batch.store, fence=2)
    batch.send()
    assert (batch.counts(), batch.called()) == (("ended", 1, 0, 1, 0, 0), ["failed", "ended"])


def test_a_member_whose_row_is_corrupt_is_dead(batch: OneBatch) -> None:
    with_members(batch, QUEUE)
    batch.store.wire.command("HSET", Looking(batch.store).key("rows"), "b.0", "corrupt")
    batch.launches[QUEUE].reserve()
    batch.send()
    assert batch.counts() == ("ended", 1, 0, 1, 0, 0)


def test_a_retry_and_a_release_are_no_ends(batch: OneBatch) -> None:
    with_members(batch, QUEUE, QUEUE)
    launch = batch.launches[QUEUE]
    one, other = launch.reserve(2)
    launch.settle(retry(one), release(other))
    assert Looking(batch.store).listed("outbox") == []
    batch.send()
    assert batch.counts() == ("closed", 2, 0, 0, 0, 0)


def test_a_dead_member_that_is_purged_has_counted(batch: OneBatch, person: MessageActions) -> None:
    with_members(batch, QUEUE, QUEUE)
    launch = batch.launches[QUEUE]
    launch.settle(*(die(each) if each.id == b"b.0" else complete_member(each) for each in launch.reserve(9)))
    person.purge(QUEUE, ["b.0"])
    batch.send()
    assert batch.counts() == ("ended", 2, 1, 1, 0, 0)


def test_an_end_that_is_told_again_and_one_that_comes_late_change_nothing(
    batch: OneBatch, person: MessageActions
) -> None:
    with_members(batch, QUEUE, QUEUE)
    launch, told = batch.launches[QUEUE], []
    for settle in cast("list[Callable[..., Any]]", [die, complete_member]):
        launch.settle(*map(settle, launch.reserve()))
        told += batch.store.wire.command("LRANGE", Looking(batch.store).key("outbox"), 0, -1)
        batch.send()
        person.redrive(QUEUE, ["b.0"])
    for entry in (*told, *told):
        send_and_die(batch.store, entry, print)
    assert (batch.counts(), batch.called()) == (("ended", 2, 1, 1, 0, 0), ["failed", "ended"])
    complete_all(batch)
    for entry in told:
        send_and_die(batch.store, entry, print)
    assert (batch.counts(), batch.called()) == (("ended", 2, 2, 0, 0, 0), ["failed", "ended", "then"])


def test_more_members_than_their_producer_counted_call_back_once(batch: OneBatch) -> None:
    batch.add(member(0), member(1))
    batch.close(1)
    for callbacks in (2, 0):
        launch = batch.launches[QUEUE]
        launch.settle(*(complete_member(each) for each in launch.reserve()))
        assert outbox.send(batch.store, QUEUE, print) == callbacks
    assert (batch.counts(), batch.called()) == (("ended", 1, 2, 0, 0, 0), ["then", "ended"])


def test_a_stale_completion_is_not_told(batch: OneBatch) -> None:
    with_members(batch, QUEUE, QUEUE)
    launch = batch.launches[QUEUE]
    reserved = launch.reserve(2)
    batch.store.wire.command("HDEL", Looking(batch.store).key("rows"), "b.0")
    launch.settle(*map(complete_member, reserved))
    batch.send()
    assert batch.counts() == ("closed", 2, 1, 0, 0, 0)


def test_a_batch_grows_before_the_member_that_adds_to_it_has_ended(batch: OneBatch, store: RedisStore) -> None:
    with_members(batch, QUEUE)
    first = batch.batches.number_members(HOME, "b", 2)
    assert first is not None
    launch = batch.launches[QUEUE]
    added = [member(first), member(first + 1, OTHER)]
    launch.settle(*(complete_member(each, added=added) for each in launch.reserve()))
    entries = store.wire.command("LRANGE", Looking(store).key("outbox"), 0, -1)
    for _ in range(2):  # a sender that dies in between
        send_and_die(store, entries[0], print)
        assert (batch.counts(), batch.called()) == (("closed", 3, 1, 0, 0, 0), [])
    batch.send()
    assert batch.batches.number_members(HOME, "b", 1) == first + 2
    complete_all(batch)
    complete_all(batch, OTHER)
    assert (batch.counts(), batch.called()) == (("ended", 3, 3, 0, 0, 0), ["then", "ended"])


def test_members_are_there_only_after_their_batch_has_grown(
    batch: OneBatch, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_members(batch, QUEUE)
    launch = batch.launches[QUEUE]
    launch.settle(*(complete_member(each, added=[member(1 << 20)]) for each in launch.reserve()))
    totals = list[int]()
    enqueue = store.producer.enqueue_sent_on

    def looking(entries: object) -> object:
        totals.append(batch.status().total)
        return enqueue(entries)  # type: ignore[arg-type]

    monkeypatch.setattr(store.producer, "enqueue_sent_on", looking)
    outbox.send(store, QUEUE, print)
    assert totals == [2]


def test_a_batch_that_is_opened_again_is_the_same_until_it_is_closed(batch: OneBatch) -> None:
    assert batch.batches.open(new_batch(expires=5)) == "open"
    assert batch.status().expires_at is None
    batch.add(member(0))
    batch.close(1)
    assert batch.batches.open(new_batch()) == "closed"
    complete_all(batch)
    assert batch.batches.open(new_batch()) == "ended"
    assert batch.called() == ["then", "ended"]


def test_a_batch_that_is_closed_as_it_is_opened_ends_with_its_members(store: RedisStore) -> None:
    batch = OneBatch(store)
    assert batch.batches.open(new_batch("empty", total=0)) == ""
    batch.send()
    assert Looking(store, HOME).listed("ready") == ["empty:then", "empty:ended"]


def time_comes(batch: OneBatch, which: str = "b") -> int:
    """The instant of the batch is there, and its home is trimmed. Returns how many callbacks that sends."""
    key = Looking(batch.store, HOME).key("batch_instants")
    assert batch.store.wire.command("ZSCORE", key, which) is not None
    batch.store.wire.command("ZADD", key, 1, which)
    batch.store.maintenance.trim(HOME)
    return outbox.send(batch.store, HOME, print)


def test_a_batch_whose_producer_is_not_heard_of_is_abandoned_and_says_so(batch: OneBatch) -> None:
    batch.add(member(0))
    time_comes(batch)
    assert (batch.counts(), batch.called()) == (("abandoned", 0, 0, 0, 0, 0), ["failed", "ended"])
    assert batch.close(1) == "abandoned"
    assert batch.batches.open(new_batch()) == "abandoned"
    complete_all(batch)
    assert (batch.counts(), batch.called()) == (("abandoned", 1, 1, 0, 0, 0), ["failed", "ended"])


def test_a_batch_that_expires_calls_back_without_its_last_members(store: RedisStore) -> None:
    batch = OneBatch(store, expires=1000)
    with_members(batch, QUEUE)
    time_comes(batch)
    assert (batch.counts(), batch.called()) == (("expired", 1, 0, 0, 0, 0), ["failed", "ended"])


def test_a_batch_that_expires_when_it_has_failed_calls_that_no_second_time(store: RedisStore) -> None:
    batch = OneBatch(store, expires=1000)
    with_members(batch, QUEUE, OTHER)
    launch = batch.launches[QUEUE]
    launch.settle(*map(die, launch.reserve()))
    batch.send()
    assert time_comes(batch) == 1
    assert (batch.counts(), batch.called()) == (("expired", 2, 0, 1, 0, 0), ["failed", "ended"])


def test_an_ended_batch_is_forgotten_after_its_time_and_a_closed_one_is_not(batch: OneBatch) -> None:
    with_members(batch, QUEUE)
    key = Looking(batch.store, HOME).key("batch_instants")
    assert batch.store.wire.command("ZSCORE", key, "b") in (b"inf", b"1.#INF")
    complete_all(batch)
    assert Looking(batch.store, HOME).hash("batch_members")
    time_comes(batch)
    with pytest.raises(NotFound):
        batch.status()
    look = Looking(batch.store, HOME)
    assert [look.hash(name) for name in ("batches", "batch_members", "batch_callbacks")] == [{}, {}, {}]
    assert look.ranked("batch_instants") == []


def test_of_an_abandoned_batch_that_is_forgotten_nothing_is_left_for_another_one_of_its_id(batch: OneBatch) -> None:
    batch.add(member(0), member(3), member(600), member(999_999))
    complete_all(batch)
    for _ in range(2):  # it is abandoned, and forgotten
        time_comes(batch)
    assert Looking(batch.store, HOME).hash("batch_members") == {}


def test_the_home_is_woken_when_a_callback_waits_in_its_outbox(batch: OneBatch) -> None:
    look = Looking(batch.store, HOME)
    look.take_marker("schedule_marker")
    batch.close(0)
    assert look.marker("schedule_marker") == 1
    assert len(look.listed("outbox")) == 2


def test_members_are_counted_wherever_their_numbers_are(batch: OneBatch) -> None:
    numbers = [0, 3, 4, 511, 512, 1023, 99_999, 999_999]
    batch.add(*map(member, numbers))
    batch.close(len(numbers))
    complete_all(batch)
    assert batch.counts() == ("ended", 8, 8, 0, 0, 0)
    assert len(Looking(batch.store, HOME).hash("batch_members")) == 4


def test_what_is_told_looks_to_versions_before_like_a_message_of_a_newer_one(
    batch: OneBatch, person: MessageActions
) -> None:
    with_members(batch, QUEUE, QUEUE)
    person.cancel(QUEUE, "b.0")
    launch = batch.launches[QUEUE]
    launch.settle(*(complete_member(each) for each in launch.reserve()))
    told = [entry.partition("\n")[2] for entry in Looking(batch.store).listed("outbox")]
    for entry in (*told, pack([], 0, [new_batch(total=0)]).decode()):
        (note,) = json.loads(entry)
        assert note.keys() > FIRST
        assert note.keys() - {*NewMessage._fields}


def fail_over_a_minute_later(batch: OneBatch) -> None:
    """A batch of two members."""
    batch.fail_over(2)
    for queue in (QUEUE, OTHER):
        look = Looking(batch.store, queue)
        for entry in look.listed("told"):
            number, _, content = entry.partition("\n")
            assert batch.store.wire.command("LREM", look.key("told"), 1, entry)
            batch.store.wire.command("RPUSH", look.key("told"), f"{int(number) - 61_000_000}\n{content}")


def report_again(batch: OneBatch) -> None:
    for queue in (QUEUE, OTHER):
        outbox.report_again(batch.store, queue)
    batch.send()


@pytest.fixture
def in_cluster(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each queue had a node of its own."""
    monkeypatch.setattr(store.wire, "is_cluster", True, raising=False)


@pytest.mark.usefixtures("in_cluster")
def test_a_home_that_forgot_in_a_failover_what_it_was_told_is_told_again(batch: OneBatch, store: RedisStore) -> None:
    with_members(batch, QUEUE, OTHER)
    complete_all(batch)
    fail_over_a_minute_later(batch)
    complete_all(batch, OTHER)
    assert (batch.counts(), batch.called()) == (("closed", 2, 1, 0, 0, 0), [])
    report_again(batch)
    assert (batch.counts(), batch.called()) == (("ended", 2, 2, 0, 0, 0), ["then", "ended"])
    assert (Looking(store).listed("told"), len(Looking(store, OTHER).listed("told"))) == ([], 1)


@pytest.mark.usefixtures("in_cluster")
def test_a_home_that_is_told_again_has_grown_once(batch: OneBatch) -> None:
    with_members(batch, QUEUE, OTHER)
    for queue in (QUEUE, OTHER):
        launch = batch.launches[queue]
        launch.settle(
            *(complete_member(each, added=[member((1 << 20) + ord(each.id[-1:]))]) for each in launch.reserve())
        )
    batch.send()
    fail_over_a_minute_later(batch)
    for _ in range(2):
        report_again(batch)
    assert (batch.counts(), batch.called()) == (("closed", 4, 2, 0, 0, 0), [])
    complete_all(batch)
    assert (batch.counts(), batch.called()) == (("ended", 4, 4, 0, 0, 0), ["then", "ended"])


@pytest.mark.usefixtures("in_cluster")
def test_what_was_told_a_moment_ago_is_kept_for_an_hour_and_a_home_of_the_same_slot_forgets_nothing(
    batch: OneBatch, store: RedisStore
) -> None:
    batch.batches.open(new_batch("c", home=QUEUE))
    batch.add(member(0), member(0, batch="c", home=QUEUE))
    launch, look = batch.launches[QUEUE], Looking(store)
    for each in launch.reserve(2):
        launch.settle(die(each))
    batch.send()
    (told,) = look.listed("told")
    assert '"ids":"b.0"' in told
    assert 3_590_000 < store.wire.command("PTTL", look.key("told")) <= 3_600_000
    report_again(batch)
    assert look.listed("told") == [told]


def test_one_server_keeps_nothing_of_what_it_has_told(batch: OneBatch, store: RedisStore) -> None:
    with_members(batch, QUEUE)
    complete_all(batch)
    assert len(Looking(store).listed("told")) == int(store.wire.is_cluster)  # of the server that is tried


def test_what_ends_for_a_batch_that_is_forgotten_is_dropped(batch: OneBatch, store: RedisStore) -> None:
    batch.add(member(0, batch="gone"))
    complete_all(batch)
    assert Looking(store).listed("outbox") == []
    assert Looking(store, HOME).hash("batches").keys() == {"b"}


def test_an_end_waits_in_the_outbox_while_the_node_of_its_home_is_lost(
    batch: OneBatch, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_members(batch, QUEUE, QUEUE)
    launch = batch.launches[QUEUE]

    def lose(*_: object) -> None:
        raise NodeLost("store unreachable", HOME, "")

    with monkeypatch.context() as lost:
        lost.setattr(Batches, "take_in", lose)
        for ends in (1, 2):
            launch.settle(*map(complete_member, launch.reserve()))
            with pytest.raises(NodeLost):
                outbox.send(store, QUEUE, print)
            assert len(Looking(store).listed("outbox")) == ends
    batch.send()
    assert (batch.counts(), batch.called()) == (("ended", 2, 2, 0, 0, 0), ["then", "ended"])


def test_a_home_that_forgot_an_end_waits_until_its_batch_expires(store: RedisStore) -> None:
    batch = OneBatch(store, expires=HOUR)
    with_members(batch, QUEUE, OTHER)
    home = Looking(store, HOME)
    state = home.hash("batches")["b"]
    complete_all(batch)
    store.wire.command("HSET", home.key("batches"), "b", state)  # a failover of its node
    store.wire.command("DEL", home.key("batch_members"))
    complete_all(batch, OTHER)
    assert (batch.counts(), batch.called()) == (("closed", 2, 1, 0, 0, 0), [])
    time_comes(batch)
    assert (batch.counts(), batch.called()) == (("expired", 2, 1, 0, 0, 0), ["failed", "ended"])


@pytest.mark.parametrize("result", ["", json.dumps("x" * 60_000)])
def test_a_callback_has_no_result_of_any_member_in_it(result: str, batch: OneBatch, store: RedisStore) -> None:
    with_members(batch, *[QUEUE] * 9)
    launch = batch.launches[QUEUE]
    launch.settle(*(complete_member(each, result) for each in launch.reserve(9)))
    told = sum(map(len, Looking(store).listed("outbox")))
    batch.send()
    records = Looking(store, HOME).hash("records")
    assert told + sum(map(len, records.values())) < 1000
    assert records.keys() == {"b:then", "b:ended"}


@pytest.mark.parametrize("garbage", [b"", b"\xff", b"\0" * 54, b"\xff" * 55])
def test_a_batch_whose_state_cannot_be_read_is_shown_as_malformed_and_forgotten_once_it_is_cancelled(
    batch: OneBatch, store: RedisStore, garbage: bytes
) -> None:
    batch.add(member(0))
    home = Looking(store, HOME)
    store.wire.command("HSET", home.key("batches"), "b", garbage)
    assert batch.counts() == (MALFORMED, 0, 0, 0, 0, 0)
    reader = BatchReader(store.wire, NAMESPACE)
    assert [each.state for each in reader.batches()] == [MALFORMED]
    assert reader.states([HOME]) == {HOME: {MALFORMED: 1}}
    assert len([*BatchActions(store.wire, NAMESPACE).cancel(batch.status())]) == 1
    store.maintenance.trim(HOME, Retention())
    with pytest.raises(NotFound):
        batch.status()
    assert (home.ranked("batch_instants"), home.hash("batches"), home.hash("batch_callbacks")) == ([], {}, {})
