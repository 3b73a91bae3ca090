"""A producer repeats a call whose reply was lost, and is answered as without the loss, whatever the queue had before,
and whatever happened between the two attempts."""

from __future__ import annotations

import os
from copy import copy
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.messages.continuation import identified
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.queues import maintenance
from pollconsumer.store.queues.producer import Enqueued, Producer
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.messages import read_messages
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, chosen, die, message
from tests.store.servers import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pollconsumer.core.messages.message import NewMessage
    from tests.store.servers import Server


def replacing(message: NewMessage) -> NewMessage:
    return message._replace(key="k", key_rule="r0", due=None, delay=HOUR)


WANTED: dict[str, list[NewMessage]] = {
    "generated": [message("new", priority=1)],
    "generated, with a key": [message("new", key="k")],
    "chosen": [chosen("a")],
    "chosen, with a key": [chosen("a")._replace(key="k")],
    "chosen, later": [chosen("a")._replace(delay=HOUR)],
    "chosen, among others": [message("b"), chosen("a"), message("c", priority=3)],
    "chosen twice": [chosen("a"), chosen("a")],
    "in pages": [*(message(f"m{n}", priority=3) for n in range(80)), chosen("a"), message("d", delay=5)],
    "replacing": [replacing(message("new", payload=b'{"n":1}'))],
    "replacing, chosen": [replacing(chosen("a"))],
    "member": [identified(message(""), f"B.{n}", "home") for n in range(2)],
}
BEFORE: dict[str, list[NewMessage]] = {
    "nothing": [],
    "the same id": [chosen("a")],
    "the same id with the key": [chosen("a")._replace(key="k", delay=HOUR)],
    "the key": [message("z", key="k", delay=HOUR)],
    "a member": [identified(message(""), "B.1", "home")],
}


class Queue:
    def __init__(self, store: RedisStore, name: str) -> None:
        self.store, self.name = store, name
        self.person, self.launch = MessageActions(store.wire, NAMESPACE), Launch(store, queue=name)

    def enqueue(self, producer: Producer, messages: Sequence[NewMessage]) -> list[Enqueued]:
        return producer.enqueue([each._replace(queue=self.name) for each in messages])

    def others(self, *messages: NewMessage) -> None:
        if messages:
            self.enqueue(Producer(self.store.wire, NAMESPACE), messages)

    def messages(self) -> list[object]:
        """The id, the state and the payload of all messages that are kept."""
        keys = [self.store.keys.queue(self.name, word) for word in ("records", "rows")]
        ids = sorted({each for key in keys for each in self.store.wire.command("HKEYS", key)})
        found = read_messages(self.store.wire, self.store.keys, self.name, ids)
        return [(each.id, str(each.state), each.payload) for each in found]

    def due(self) -> list[str]:
        """Ids of all that waits, which is due now."""
        schedule = self.store.keys.queue(self.name, "schedule")
        ids = [each.decode() for each in self.store.wire.command("ZRANGE", schedule, 0, -1)]
        for each in ids:
            self.person.change(self.name, each, delay=0)
        return ids

    def complete(self) -> None:
        self.due()
        self.launch.complete(*self.launch.reserve(99))

    def forget(self) -> None:
        self.complete()
        self.store.maintenance.trim(self.name)

    def begin(self) -> None:
        self.due()
        self.launch.reserve(99)

    def redrive(self) -> None:
        self.due()
        dead = self.launch.reserve(99)
        self.launch.settle(*map(die, dead))
        self.person.redrive(self.name, [each.name for each in dead])

    def replace(self) -> None:
        self.others(replacing(message("later")))

    def cancel_and_take_key(self) -> None:
        self.person.cancel_all(self.name, ["a", "z"])
        self.others(message("other", key="k"))

    def same_id(self) -> None:
        self.others(chosen("a"))


MEANWHILE: dict[str, Callable[[Queue], object]] = {
    "nothing": lambda _: None,
    "completed": Queue.complete,
    "forgotten": Queue.forget,
    "begun": Queue.begin,
    "redriven": Queue.redrive,
    "replaced": Queue.replace,
    "cancelled": Queue.cancel_and_take_key,
    "sent by another": Queue.same_id,
}


def lose(producer: Producer, monkeypatch: pytest.MonkeyPatch, what: str, meanwhile: Callable[[], object]) -> None:
    """Lose the first request of ``producer`` that enqueues, or its reply, and have something happen before it is
    repeated."""
    wire, once, lost = producer.wire, producer.wire.once, list[str]()

    def losing(commands: Sequence[Any], *, blocking: float = 0.0) -> Any:
        if not lost and any(each[1] == wire.scripts["enqueue"].sha for each in commands):
            lost.append(what)
            if what == "reply":
                once(commands, blocking=blocking)
            monkeypatch.setattr(wire, "once", once)
            meanwhile()
            wire.repeated = True
            raise Unanswered("lost", sent=True)
        return once(commands, blocking=blocking)

    monkeypatch.setattr(wire, "once", losing)


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "KEEP_FINISHED", 0)


@pytest.mark.crossing
@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("before", BEFORE)
def test_the_answer_to_a_repetition_is_that_of_the_attempt_that_was_carried_out(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, before: str, meanwhile: str
) -> None:
    store, untrue = RedisStore(valkey.wire(), NAMESPACE), []

    def run(kind: str, lost: str) -> tuple[list[Enqueued], list[object]]:
        """The answer, and what is in the queue afterwards. Without a loss the call is first, or last."""
        queue, producer = Queue(store, f"{[*WANTED].index(kind)}{lost}"), Producer(store.wire, NAMESPACE)
        queue.others(*BEFORE[before])
        if lost in ("reply", "request"):
            producer.register(queue.name)
            lose(producer, monkeypatch, lost, lambda: MEANWHILE[meanwhile](queue))
        elif lost == "last":
            MEANWHILE[meanwhile](queue)
        answer = queue.enqueue(producer, WANTED[kind])
        if lost == "first":
            MEANWHILE[meanwhile](queue)
        return answer, queue.messages()

    for kind in WANTED:
        first, last = run(kind, "first"), run(kind, "last")
        # What had a key still has it, or else what the first attempt could not do is done by the repetition.
        may_be_last = "replacing" not in kind and all(each.duplicate for each in first[0])
        if (repeated := run(kind, "reply")) not in ([first, last] if may_be_last else [first]):
            untrue.append((kind, "reply", repeated, first))
        if (repeated := run(kind, "request")) != last:
            untrue.append((kind, "request", repeated, last))
    assert untrue == []


@pytest.fixture
def queue(valkey: Server) -> Queue:
    return Queue(RedisStore(valkey.wire(), NAMESPACE), QUEUE)


def lost(queue: Queue, producer: Producer, monkeypatch: pytest.MonkeyPatch, what: str, *messages: NewMessage) -> object:
    """What is answered after the loss."""
    lose(producer, monkeypatch, what, lambda: None)
    return queue.enqueue(producer, messages)


def test_no_call_is_given_the_answer_to_another_of_its_producer(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.others(chosen("other"))
    producer = Producer(queue.store.wire, NAMESPACE)
    for number in range(3):
        assert queue.enqueue(producer, [chosen(f"a{number}")]) == [Enqueued(f"a{number}", duplicate=False)]
        assert lost(queue, producer, monkeypatch, "request", chosen("other")) == [Enqueued("other", duplicate=True)]
        assert lost(queue, producer, monkeypatch, "reply", chosen(f"b{number}")) == [
            Enqueued(f"b{number}", duplicate=False)
        ]


def test_a_forked_process_is_not_given_the_answers_to_its_parent(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.others(chosen("other"))
    producer = Producer(queue.store.wire, NAMESPACE)
    queue.enqueue(producer, [chosen("first")])
    child = copy(producer)
    assert queue.enqueue(producer, [chosen("a")]) == [Enqueued("a", duplicate=False)]
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert lost(queue, child, monkeypatch, "request", chosen("other")) == [Enqueued("other", duplicate=True)]


def test_a_message_with_an_id_of_ours_brings_nothing_along(queue: Queue) -> None:
    before = snapshot(queue.store.wire)
    queue.others(message("a"), message("b", priority=1), message("c", delay=HOUR, key="k"))
    assert not queue.store.wire.command("KEYS", "*:last_answer:*")
    queue.others(chosen("d"))
    (key,) = queue.store.wire.command("KEYS", "*:last_answer:*")
    assert 0 < queue.store.wire.command("PTTL", key) < HOUR
    assert before.keys() < snapshot(queue.store.wire).keys()
