"""What is enqueued, settled and leased with ``durability = "strict"`` on a server that has a replica."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, cast

import pytest

from pollconsumer.core.errors import Conflict, NotReplicated, OutcomeUnknown, StoreRefused, StoreUnreachable
from pollconsumer.core.messages.message_steps import Step, StepEntry, as_recorded
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.client.wire import Strict, Wire, confirmed
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.batches import Batches
from pollconsumer.store.queues.producer import StrictProducer
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.batch_reader import BatchReader
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.recurrence_actions import Recurrences
from pollconsumer.store.scripts import Scripts
from tests.conftest import NAMESPACE
from tests.store.acting import QUEUE, Launch, Looking, chosen, message, names
from tests.store.batching import HOME, OTHER, OneBatch, complete_member, member, new_batch
from tests.store.replicated import SHORT, Pair, Servers, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pollconsumer.store.queues.producer import Producer

PATIENT = Strict(None, 10.0)


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with started() as servers:
        yield servers


@pytest.fixture
def pair(servers: Servers) -> Iterator[Pair]:
    pair = Pair(*servers)
    pair.connect()
    yield pair
    pair.wire(greeted=False).command("FLUSHALL")
    pair.close()


@pytest.mark.crossing
@pytest.mark.parametrize("replicas", [None, 1])
def test_what_is_enqueued_survives_the_promotion_of_the_replica(pair: Pair, replicas: int | None) -> None:
    pair.store(replicas).enqueue([message("a"), message("b", priority=1)])
    replica = pair.wire(pair.url("replica"), greeted=False)
    replica.command("REPLICAOF", "NO", "ONE")
    assert sorted(names(Launch(RedisStore(replica, NAMESPACE)).reserve(9))) == ["a", "b"]


def test_too_few_replicas_in_time_are_an_error_that_says_which_and_how_many(pair: Pair) -> None:
    store = pair.store(within=0.05)
    with pair.replica_stopped(), pytest.raises(NotReplicated, match=r"0 of 1 replicas.* within 0\.05s: a, b;") as error:
        store.enqueue([message("a"), message("b")])
    assert isinstance(error.value, OutcomeUnknown)
    assert error.value.ids == ["a", "b"]
    assert error.value.exit_code == 69


def test_repeating_the_call_waits_for_what_was_accepted_before(pair: Pair) -> None:
    store = pair.store(within=0.05)
    with pair.replica_stopped():
        for again in (store, pair.store(within=0.05)):
            with pytest.raises(NotReplicated):
                again.enqueue([message("a")])
    assert [entry.duplicate for entry in pair.store().enqueue([message("a")])] == [True]


def test_after_a_lost_reply_the_replica_is_waited_for_as_well(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    store = pair.store(within=0.05)
    store.register(QUEUE)
    once, lost = store.wire.once, list[str]()

    def lose_first(commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        answers = once(commands, blocking=blocking)
        if not lost:
            lost.append("reply")
            raise Unanswered("connection lost", sent=True)
        return answers

    monkeypatch.setattr(store.wire, "once", lose_first)
    with pair.replica_stopped(), pytest.raises(NotReplicated, match="second"):
        store.enqueue([message("second")])
    assert store.wire.repeated


def test_a_script_that_the_server_forgot_is_waited_for_as_well(pair: Pair) -> None:
    store = pair.store(within=0.05)
    pair.store().enqueue([message("a")])
    store.wire.command("SCRIPT", "FLUSH")
    with pair.replica_stopped(), pytest.raises(NotReplicated):
        store.enqueue([message("b")])


def test_more_replicas_than_there_are_is_an_error_and_the_message_is_accepted(pair: Pair) -> None:
    pair.store().enqueue([message("before")])  # a replica that has just come is slow to answer
    with pytest.raises(NotReplicated, match="1 of 2 replicas"):
        pair.store(replicas=2, within=0.05).enqueue([message("a")])
    assert names(Launch(RedisStore(pair.wire(), NAMESPACE)).reserve(9)) == ["before", "a"]


def test_an_occurrence_that_is_triggered_is_waited_for_as_well(pair: Pair) -> None:
    wire = pair.wire()
    recurrences = Recurrences(wire, NAMESPACE)
    recurrences.put([(Recurrence("r", "handler", every=3600, queue=QUEUE, at_run_time=True), "next")])
    standing = recurrences.find("r")
    triggered = [recurrences.trigger(standing, Strict(None, 10.0))]
    with pair.replica_stopped(), pytest.raises(NotReplicated, match="0 of 1 replicas") as caught:
        recurrences.trigger(standing, Strict(None, 0.05))
    triggered += caught.value.ids
    triggered.append(recurrences.trigger(standing))
    assert names(Launch(RedisStore(wire, NAMESPACE)).reserve(9)) == triggered


@pytest.mark.parametrize(
    "enqueue",
    [
        lambda store: store.enqueue([message("a")]),
        lambda store: store.enqueue_one(message("a")),
    ],
    ids=["general", "thin"],
)
def test_a_server_with_replicas_is_waited_for_by_a_call_that_came_to_it_from_one_without(
    pair: Pair, enqueue: Callable[[Producer], object]
) -> None:
    store = pair.store(within=0.05)
    store.wire.command("PING")
    store.wire.replicas = 0  # as on a server without
    store.wire.close()
    with pair.replica_stopped(), pytest.raises(NotReplicated) as caught:
        enqueue(store)
    assert caught.value.ids == ["a"]


def test_a_server_without_replicas_is_not_waited_for_unless_told(pair: Pair) -> None:
    pair.wire(pair.url("replica"), greeted=False).command("REPLICAOF", "NO", "ONE")
    primary = pair.wire(greeted=False)
    while b"connected_slaves:0" not in primary.command("INFO", "replication"):
        time.sleep(0.01)
    assert not pair.store().enqueue([message("a")])[0].duplicate
    with pytest.raises(NotReplicated, match="0 of 1"):
        pair.store(replicas=1, within=0.01).enqueue([message("b")])


def test_a_conflict_is_no_word_about_the_replica_and_changes_nothing_there(pair: Pair) -> None:
    store = pair.store(within=10.0)
    store.enqueue([chosen("a", b'{"n":1}')])
    store = pair.store(within=0.1)
    with pair.replica_stopped(), pytest.raises(Conflict) as caught:
        store.enqueue([chosen("a", b'{"n":2}')])
    assert (caught.value.exit_code, caught.value.id) == (65, "a")
    replica = pair.wire(pair.url("replica"), greeted=False)
    replica.command("REPLICAOF", "NO", "ONE")
    (reservation,) = Launch(RedisStore(replica, NAMESPACE)).reserve(9)
    assert reservation.payload == b'{"n":1}'


# Launches


def test_a_settlement_is_repeated_until_the_replica_has_it_and_counts_once(pair: Pair) -> None:
    pair.store().enqueue([message("a"), message("b")])
    store = pair.launch(PATIENT)
    launch = Launch(store)
    first, _ = launch.reserve(2)
    with (
        pair.replica_stopped(store.wire),
        pytest.raises(StoreUnreachable, match=r"only 0 of 1 replicas had it within 0\.05s"),
    ):
        launch.complete(first)
    assert launch.complete(first).stale == []
    replica = pair.wire(pair.url("replica"), greeted=False)
    replica.command("REPLICAOF", "NO", "ONE")
    later = Launch(RedisStore(replica, NAMESPACE), fence=2)
    assert names(later.reserve(9)) == ["b"]


def test_a_message_is_not_handed_out_before_the_replica_knows_of_its_reservation(pair: Pair) -> None:
    pair.store().enqueue([message("a")])
    store = pair.launch(PATIENT)
    launch = Launch(store)
    with pair.replica_stopped(store.wire), pytest.raises(StoreUnreachable):
        launch.reserve()
    assert names(launch.reserve()) == ["a"]


def test_a_lease_is_not_taken_before_the_replica_knows_of_its_fence(pair: Pair) -> None:
    wire = pair.launch(PATIENT).wire
    leases = Leases(wire, NAMESPACE)
    taking = Group("consumer", (QUEUE,), 1), "launch", "{}", "{}"
    with pair.replica_stopped(wire), pytest.raises(StoreUnreachable, match="only 0 of 1 replicas"):
        leases.acquire(*taking)
    taken = leases.acquire(*taking)
    assert isinstance(taken, Claim)
    assert leases.renew(taken, "{}")
    replica = pair.wire(pair.url("replica"), greeted=False)
    assert replica.command("HGET", f"{{{NAMESPACE}}}:fences", "last") == taken.fence.encode()


def test_a_full_server_settles_what_a_launch_has_in_flight_once_the_replica_has_it(pair: Pair) -> None:
    store = pair.store()
    store.enqueue([message("a")])
    launch = Launch(pair.launch(Strict(1, 10.0), tries=3))
    store.wire.command("CONFIG", "SET", "maxmemory", 1)
    try:
        launch.step(completed=launch.reserve())
    finally:
        store.wire.command("CONFIG", "SET", "maxmemory", 0)
    assert Looking(promoted(pair)).listed("completed") == ["a"]


def test_without_a_replica_a_launch_waits_for_none_unless_told(pair: Pair) -> None:
    pair.wire(pair.url("replica"), greeted=False).command("REPLICAOF", "NO", "ONE")
    primary = pair.wire(greeted=False)
    while b"connected_slaves:0" not in primary.command("INFO", "replication"):
        time.sleep(0.01)
    assert Launch(pair.launch(SHORT, tries=1)).reserve() == []
    with pytest.raises(StoreUnreachable, match="only 0 of 1 replicas"):
        Launch(pair.launch(Strict(1, 0.01), tries=1), fence=2)


# Batches and steps


def promoted(pair: Pair) -> RedisStore:
    """The store as it is on the replica, which takes the primary's place."""
    replica = pair.wire(pair.url("replica"), greeted=False)
    replica.command("REPLICAOF", "NO", "ONE")
    return RedisStore(replica, NAMESPACE)


def callbacks(store: RedisStore) -> list[str]:
    return Looking(store, HOME).listed("ready")


def test_the_end_of_a_member_and_its_arrival_are_repeated_until_the_replica_has_them_and_count_once(pair: Pair) -> None:
    store = pair.launch(PATIENT)
    batch = OneBatch(store)
    batch.add(member(0))
    batch.close(1)
    launch = batch.launches[QUEUE]
    (reservation,) = launch.reserve()
    with pair.replica_stopped(store.wire), pytest.raises(StoreUnreachable, match="only 0 of 1 replicas"):
        launch.settle(complete_member(reservation))
    assert launch.settle(complete_member(reservation)).stale == []
    with pair.replica_stopped(store.wire):
        for _ in range(2):
            assert len(Looking(batch.store).listed("outbox")) == 1  # until the replica has the arrival
            with pytest.raises(StoreUnreachable, match="only 0 of 1 replicas"):
                outbox.send(store, QUEUE, print)
    batch.send()
    assert (batch.counts(), batch.called()) == (("ended", 1, 1, 0, 0, 0), ["then", "ended"])
    later = promoted(pair)
    assert BatchReader(later.wire, NAMESPACE).batch("b", HOME) == batch.status()
    assert callbacks(later) == ["b:then", "b:ended"]


def test_a_batch_is_not_opened_grown_or_closed_before_the_replica_knows(pair: Pair) -> None:
    store = pair.launch(PATIENT)
    store.producer.register(HOME)
    batches = Batches(store.producer)
    changes: Sequence[Callable[[Batches], object]] = (
        lambda batches: batches.open(new_batch()),
        lambda batches: batches.number_members(HOME, "b", 1),
        lambda batches: batches.close(HOME, "b", 0),
    )
    for change in changes:
        with pair.replica_stopped(store.wire), pytest.raises(StoreUnreachable, match="only 0 of 1 replicas"):
            change(batches)
        change(batches)
    assert BatchReader(promoted(pair).wire, NAMESPACE).batch("b", HOME).state == "ended"


def test_a_failover_without_strict_forgets_the_arrival_of_a_member_only_with_its_end(pair: Pair) -> None:
    batch = OneBatch(RedisStore(pair.wire(), NAMESPACE))
    batch.add(member(0))
    batch.close(1)
    launch = batch.launches[QUEUE]
    (reservation,) = launch.reserve()
    pair.store().enqueue([message("last", queue=OTHER)])  # waits for all that was written
    later = promoted(pair)
    launch.settle(complete_member(reservation))
    batch.send()
    assert batch.counts() == ("ended", 1, 1, 0, 0, 0)
    assert BatchReader(later.wire, NAMESPACE).batch("b", HOME).outstanding == 1
    again = Launch(later, fence=2)
    again.settle(*map(complete_member, again.reserve()))
    outbox.send(later, QUEUE, print)
    assert callbacks(later) == ["b:then", "b:ended"]


def test_a_step_is_not_recorded_and_a_signal_not_sent_before_the_replica_has_it(pair: Pair) -> None:
    store = pair.launch(PATIENT)
    store.enqueue([message("a")])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    recorded = StepEntry(1, 1, as_recorded(Step("charge", 1000, 7)))
    changes: Sequence[Callable[[RedisStore], object]] = (
        lambda store: store.record(launch.claim, reservation, recorded),
        lambda store: MessageActions(store.wire, NAMESPACE).signal(QUEUE, "a", "approved", "yes"),
    )
    for change in changes:
        with pair.replica_stopped(store.wire), pytest.raises(StoreUnreachable, match="only 0 of 1 replicas"):
            change(store)
        change(store)
    later = promoted(pair)
    (again,) = Launch(later, fence=2).reserve()
    _, found = later.recorded(again)
    assert found is not None
    assert [(each.name, each.result) for each in found.steps] == [("charge", 7)]
    assert [(each.name, each.value) for each in found.signals] == [("approved", "yes")]


class Noting(Wire):
    sent: Sequence[Command] = ()

    def send(self, commands: Sequence[Command]) -> None:
        self.sent = commands
        super().send(commands)


@pytest.mark.parametrize(("left", "ms"), [(60.0, 5000), (0.0, 100)])
def test_a_launch_waits_for_replicas_as_long_as_is_set_and_at_its_end_for_what_is_left(
    pair: Pair, left: float, ms: int
) -> None:
    wire = Noting(pair.url(), lambda: Budget(left), strict=Strict(1, 5.0))
    with closing(wire):
        with suppress(OutcomeUnknown):  # the replica of a busy machine may take longer
            RedisStore(wire, NAMESPACE).enqueue([message("a")])
        assert wire.sent[-1] == ("WAIT", 1, ms)


# The append-only file


@pytest.fixture
def _waitaof(pair: Pair) -> None:
    """What a server older than 7.2 does not have."""
    try:
        pair.wire(greeted=False).command("WAITAOF", 0, 0, 1)
    except StoreRefused as refusal:
        pytest.skip(str(refusal))


@pytest.mark.usefixtures("_waitaof")
def test_a_server_without_an_append_only_file_cannot_be_waited_for(pair: Pair) -> None:
    with pytest.raises(StoreRefused, match=r"strict\.aof: the server keeps no append-only file; set appendonly yes"):
        pair.launch(Strict(None, 1.0, aof=True)).enqueue([message("a")])


@pytest.fixture
def appending(pair: Pair, _waitaof: None) -> Iterator[Callable[[str], None]]:
    """Sets the primary's appendfsync; both servers append, the replica at once."""
    servers = [pair.wire(pair.url(name), greeted=False) for name in ("primary", "replica")]
    for each in servers:
        each.command("CONFIG", "SET", "appendonly", "yes", "appendfsync", "always")
    yield lambda how: servers[0].command("CONFIG", "SET", "appendfsync", how)
    for each in servers:
        each.command("CONFIG", "SET", "appendonly", "no", "appendfsync", "everysec")


def test_what_is_in_the_append_only_file_of_both_is_acknowledged(pair: Pair, appending: Callable[[str], None]) -> None:
    appending("always")
    strict = Strict(1, 10.0, aof=True)
    StrictProducer(pair.wire(strict=None), NAMESPACE, strict).enqueue([message("a")])
    launch = Launch(pair.launch(strict))
    assert launch.complete(*launch.reserve()).stale == []


def test_what_is_not_in_the_file_in_time_is_in_doubt(pair: Pair, appending: Callable[[str], None]) -> None:
    appending("no")
    store = StrictProducer(pair.wire(), NAMESPACE, Strict(None, 0.01, aof=True))
    with pytest.raises(NotReplicated, match=r"accepted, but .*append-only file within 0\.01s|only 0 of 1 replicas"):
        store.enqueue([message("a")])


def test_a_caller_whose_patience_ends_waits_no_longer_for_replicas_than_for_an_answer() -> None:
    class Ending:
        scripts = Scripts()
        replicas = 1
        strict = Strict(1, within=5.0)
        waited: tuple[Any, ...] = ()

        def connected_replicas(self) -> int:
            return self.replicas

        def mark(self, key: str, ms: int) -> Command:
            return ("SET", key, 1, "PX", ms)

        def patience(self) -> Budget:
            return Budget(0.0)

        def send(self, commands: list[Command]) -> None:
            self.waited = commands[-1]

        def receive(self, commands: list[Command], *, blocking: float) -> list[Any]:
            assert blocking == 0
            return [1] * len(commands)

    wire = Ending()
    assert confirmed(cast("Wire", wire), wire.strict, [("EVALSHA", "sha", 1, "{a:b}:c")], 0.0) == [1]
    assert wire.waited == ("WAIT", 1, 100)
