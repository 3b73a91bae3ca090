"""One message with a new id takes the thin way, and is accepted as by the general one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.errors import OutcomeUnknown, StoreRefused, StoreUnreachable
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.interface.memory_store import MemoryOpener, VirtualClock
from pollconsumer.store.client.patience import Patience
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.client.wire import Strict
from pollconsumer.store.queues.producer import Enqueued, Producer, StrictProducer
from pollconsumer.store.queues.redis_store import RedisStore
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, message, names, retry
from tests.store.servers import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.store.servers import Server

THIN = "enqueue_new"


class AllHaveIt(Strict):
    """Whoever is asked."""

    def shortfall(self, answer: Any, connected: int) -> str:  # noqa: ARG002  the overridden one's
        return ""


OPTIONS: list[dict[str, Any]] = [
    {},
    {"payload": b"x" * 2000},
    {"queue": "other"},
    {"priority": 3},
    {"delay": HOUR},
    {"delay": 0},
    {"due": 1},
    {"key": "k"},
    {"key": "k", "lifetime": HOUR},
    {"concurrency": "c", "limit": 2},
]
STEPS: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.one_of(
    st.sampled_from([{}, *OPTIONS]).map(lambda options: ("enqueue", options)),
    st.sampled_from(["again", "complete", "retry", "wait", "wake", "trim"]).map(lambda name: (name, {})),
)


class History:
    """What happens in one store; each message is enqueued with ``way`` of it."""

    def __init__(self, way: Callable[[RedisStore], Callable[[NewMessage], object]]) -> None:
        self.clock = VirtualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.opener = MemoryOpener(NAMESPACE, self.clock)
        self.store = self.opener.store()
        self.way = way(self.store)
        self.launch = Launch(self.store)
        self.told: list[Any] = []

    def take(self, n: int, name: str, options: dict[str, Any]) -> None:
        self.clock.now_ms += 7
        if name == "enqueue":
            self.told.append(self.way(message(f"m{n}", **options)))
        elif name == "again":
            there = sorted(Looking(self.store).hash("records"))
            self.told += [self.way(message(each)) for each in there[:1]]
        elif name == "wait":
            self.clock.now_ms += HOUR
        elif name == "wake":
            Looking(self.store).take_marker()
        elif name == "trim":
            self.told.append(self.store.maintenance.trim(QUEUE))
        else:
            reserved = self.launch.reserve(2)
            self.told.append(names(reserved))
            if name == "complete":
                self.launch.complete(*reserved)
            else:
                self.launch.settle(*map(retry, reserved))
        last_acknowledged = self.store.wire.last_acknowledged  # what it looks for on its next connection
        self.told.append(last_acknowledged and last_acknowledged[:3])


@pytest.mark.crossing
@given(st.lists(STEPS, max_size=25))
def test_the_same_history_leaves_the_same_store_by_each_way(steps: list[tuple[str, dict[str, Any]]]) -> None:
    """That of a producer that would wait for replicas is the thin one: there are none."""
    general = History(lambda store: lambda new: store.enqueue([new])[0])
    thin = History(lambda store: store.producer.enqueue_one)
    strict = History(lambda store: StrictProducer(store.wire, NAMESPACE, Strict(None, 0.5)).enqueue_one)
    for history in (general, thin, strict):
        for n, step in enumerate(steps):
            history.take(n, *step)
    for history in (thin, strict):
        assert history.told == general.told
        assert snapshot(history.store.wire) == snapshot(general.store.wire)
    for history in (general, thin, strict):
        history.opener.close()


def scripts_sent(store: Producer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of those sent from now on."""
    sent: list[str] = []
    once = store.wire.once

    def noting(commands: Any, *, blocking: float = 0.0) -> list[Any]:
        by_sha = {script.sha: name for name, script in store.wire.scripts.items()}
        sent.extend(by_sha[command[1]] for command in commands if command[0] == "EVALSHA")
        return once(commands, blocking=blocking)

    monkeypatch.setattr(store.wire, "once", noting)
    return sent


@pytest.mark.parametrize("options", OPTIONS)
def test_only_a_message_without_options_takes_the_thin_way(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    for queue in (QUEUE, "other"):
        store.producer.enqueue_one(message("first", queue=queue))  # the general way
    sent = scripts_sent(store.producer, monkeypatch)
    assert store.producer.enqueue_one(message("a", **options)) == Enqueued("a", duplicate=False)
    plain = options.keys() <= {"payload", "queue"}
    assert sent == [THIN if plain else "enqueue"]


@pytest.mark.own_connection("fakeredis knows no WAIT", server="fakeredis")
@pytest.mark.parametrize(("replicas", "way"), [(0, THIN), (1, "enqueue mark")])
def test_a_message_that_a_replica_must_have_takes_the_general_way(
    wire: Any, monkeypatch: pytest.MonkeyPatch, replicas: int, way: str
) -> None:
    store = StrictProducer(wire, NAMESPACE, AllHaveIt(None, 0.5))
    store.enqueue_one(message("first"))
    wire.replicas = replicas  # as it would be greeted
    sent = scripts_sent(store, monkeypatch)
    store.enqueue_one(message("a"))
    assert sent == way.split()


def test_an_id_that_the_queue_has_is_a_duplicate_and_changes_nothing(store: RedisStore) -> None:
    store.producer.enqueue_one(message("a", payload=b'{"n":1}'))
    before = snapshot(store.wire)
    assert store.producer.enqueue_one(message("a", payload=b'{"n":2}')) == Enqueued("a", duplicate=True)
    assert snapshot(store.wire) == before


@pytest.mark.parametrize("key", ["records", "ready", "ready_marker"])
def test_it_is_refused_with_nothing_written_where_a_key_has_another_type(store: RedisStore, key: str) -> None:
    store.enqueue([message("first")])
    name = store.keys.queue(QUEUE, key)
    store.wire.command("DEL", name)
    store.wire.command("SET", name, "another program's")
    before = snapshot(store.wire)
    with pytest.raises(StoreRefused):
        store.producer.enqueue_one(message("a"))
    assert snapshot(store.wire) == before


def losing_replies(store: RedisStore, monkeypatch: pytest.MonkeyPatch, to: set[str]) -> None:
    """Carry out scripts ``to`` whose names are given, and lose the answer."""
    once = store.wire.once

    def losing(commands: Any, *, blocking: float = 0.0) -> list[Any]:
        answers = once(commands, blocking=blocking)
        if commands[0][0] == "EVALSHA" and any(store.wire.scripts[name].sha == commands[0][1] for name in to):
            raise Unanswered("lost", sent=True)
        return answers

    monkeypatch.setattr(store.wire, "once", losing)


def test_a_lost_reply_is_asked_for_the_general_way_and_the_message_is_no_duplicate(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.producer.enqueue_one(message("first"))
    losing_replies(store, monkeypatch, {THIN})
    sent = scripts_sent(store.producer, monkeypatch)
    assert store.producer.enqueue_one(message("a")) == Enqueued("a", duplicate=False)
    assert sent == [THIN, "enqueue"]
    assert look.listed("ready") == ["first", "a"]


def test_a_lost_reply_to_one_that_was_handled_and_forgotten_meanwhile_makes_no_second_one(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.producer.enqueue_one(message("first"))
    once = store.wire.once

    def losing(commands: Any, *, blocking: float = 0.0) -> list[Any]:
        answers = once(commands, blocking=blocking)
        if commands[0][0] == "EVALSHA" and commands[0][1] == store.wire.scripts[THIN].sha:
            launch = Launch(store)
            launch.complete(*launch.reserve(9))
            store.wire.command("HDEL", look.key("records"), "a")
            store.wire.command("HDEL", look.key("rows"), "a")
            store.wire.command("SADD", look.key("id_memory"), "a")
            raise Unanswered("lost", sent=True)
        return answers

    monkeypatch.setattr(store.wire, "once", losing)
    assert store.producer.enqueue_one(message("a")) == Enqueued("a", duplicate=False)
    assert look.listed("ready") == []


def test_one_whose_every_reply_is_lost_has_an_unknown_outcome_and_its_id(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.enqueue([message("first")])
    losing_replies(store, monkeypatch, {THIN, "enqueue"})
    monkeypatch.setattr(store.wire, "patience", Hasty)
    with pytest.raises(OutcomeUnknown) as caught:
        store.producer.enqueue_one(message("a"))
    assert caught.value.ids == ["a"]


def test_a_full_server_refuses_it_with_nothing_changed(valkey: Any) -> None:
    wire = valkey.wire(Hasty)
    store = RedisStore(wire, NAMESPACE)
    store.enqueue([message("first")])
    before = snapshot(wire)
    wire.command("CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(StoreUnreachable, match="maxmemory") as caught:
            store.producer.enqueue_one(message("a"))
        assert not isinstance(caught.value, OutcomeUnknown)
        assert snapshot(wire) == before
    finally:
        wire.command("CONFIG", "SET", "maxmemory", 0)


class Hasty(Patience):
    """Gives up at once."""

    def left(self) -> float:
        return 0.0

    def pause(self, seconds: float) -> None:
        raise AssertionError(seconds)

    def for_one_answer(self, blocking: float = 0.0) -> float:  # noqa: ARG002  the protocol has it
        return 2.0


def test_a_few_small_records_are_not_a_list_that_each_look_searches(valkey: Server) -> None:
    store = RedisStore(valkey.wire(), NAMESPACE)
    store.producer.enqueue_one(message("a"))
    store.producer.enqueue_one(message("b"))
    assert store.wire.command("OBJECT", "ENCODING", Looking(store).key("records")) == b"hashtable"
    assert set(Looking(store).hash("records")) == {"a", "b"}
