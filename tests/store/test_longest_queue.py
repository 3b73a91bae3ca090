"""How many messages of a queue may be ready: what a producer counts before it enqueues, and what it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import QueueFull
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.queues.producer import ENQUEUE_PAGE, Origin, Producer
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, chosen, message

if TYPE_CHECKING:
    from pollconsumer.store.queues.redis_store import RedisStore


@pytest.fixture
def producer(store: RedisStore) -> Producer:
    """Of a queue that may have two messages ready."""
    found = Producer(store.wire, NAMESPACE)
    found.most_ready = {QUEUE: 2}
    return found


@pytest.mark.parametrize(
    "options", [{}, {"priority": 3}, {"concurrency": "k"}, {"key": "k"}], ids=["thin", "priority", "in line", "key"]
)
def test_as_many_are_ready_as_may_be(store: RedisStore, producer: Producer, options: dict[str, Any]) -> None:
    producer.enqueue([message("a", **options)])
    if "concurrency" in options:
        launch = Launch(store)
        assert len(launch.reserve()) == 1
        producer.enqueue([message("b", **options), message("c", **options)])
        assert launch.reserve(2) == []  # they wait for its place
    else:
        producer.enqueue_one(message("b", queue=QUEUE))
    for enqueue in (producer.enqueue_one, lambda one: producer.enqueue([one])):
        with pytest.raises(QueueFull, match=r"queue is full: .*, 2 ready, 1 more; max_ready is 2: try again later"):
            enqueue(message("x"))
    if "concurrency" not in options:
        launch = Launch(store)
        launch.complete(*launch.reserve())
        assert producer.enqueue_one(message("x")).duplicate is False


def test_what_is_due_later_or_goes_elsewhere_is_not_counted(producer: Producer) -> None:
    producer.enqueue([message(str(n), delay=HOUR) for n in range(5)])
    producer.enqueue([message("a"), message("b")])
    producer.enqueue([message("later", delay=HOUR), message("c", queue="elsewhere")])
    with pytest.raises(QueueFull):
        producer.enqueue([message("d", delay=0)])


def test_cancelled_ones_that_are_still_listed_make_room(store: RedisStore, producer: Producer) -> None:
    producer.enqueue([message("a"), message("b")])
    MessageActions(store.wire, NAMESPACE).cancel(QUEUE, "a")
    assert producer.enqueue_one(message("c")).duplicate is False
    with pytest.raises(QueueFull):
        producer.enqueue_one(message("d"))


def test_a_page_is_accepted_or_refused_whole_and_none_behind_it(producer: Producer) -> None:
    producer.most_ready = {QUEUE: ENQUEUE_PAGE}
    later = message("later", queue="elsewhere")
    with pytest.raises(QueueFull, match=f"{ENQUEUE_PAGE} ready, 2 more") as caught:
        producer.enqueue([*(message(str(n)) for n in range(ENQUEUE_PAGE + 2)), later])
    assert caught.value.accepted == [str(n) for n in range(ENQUEUE_PAGE)]
    assert producer.enqueue_one(later).duplicate is False


def test_more_messages_than_may_be_ready_are_enqueued_as_a_launch_makes_room(
    store: RedisStore, producer: Producer
) -> None:
    left, launch = [message(str(n)) for n in range(5)], Launch(store)
    for accepted in (["0", "1"], ["2", "3"]):
        with pytest.raises(QueueFull, match=f"2 ready, {min(2, len(left) - 2)} more") as caught:
            producer.enqueue(left)
        assert caught.value.accepted == accepted
        left = left[len(accepted) :]
        launch.complete(*launch.reserve(2))
    assert [each.id for each in producer.enqueue(left)] == ["4"]


def test_what_is_there_already_is_a_duplicate_however_full_the_queue_is(store: RedisStore, producer: Producer) -> None:
    both = [chosen("a"), message("b", key="k")]
    producer.enqueue(both)
    Producer(store.wire, NAMESPACE).enqueue([message("c")])
    assert [each.duplicate for each in producer.enqueue(both)] == [True, True]
    assert producer.enqueue([message("d", key="k")])[0].id == "b"
    replacing = message("e", key="k")._replace(key_rule="r0", payload=b'{"n": 2}')
    assert producer.enqueue([replacing])[0].id == "b"


def test_producers_that_enqueue_at_the_same_moment_do_not_exceed_it(
    store: RedisStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Producer(store.wire, NAMESPACE)
    producer.enqueue_one(message("a"))
    send = producer._send  # noqa: SLF001  another one enqueues just before

    def send_after_another(*given: Any) -> list[Any]:
        other.enqueue_one(message("b"))
        return send(*given)

    monkeypatch.setattr(producer, "_send", send_after_another)
    with pytest.raises(QueueFull, match="2 ready, 1 more"):
        producer.enqueue([message("c")])


def test_what_an_outbox_has_is_not_refused(producer: Producer) -> None:
    producer.enqueue([message("a"), message("b")])
    producer.enqueue([message("c")], Origin("elsewhere", 1, 0))
    producer.enqueue_sent_on([(Origin("elsewhere", 2, 0), [message("d")])])


def test_a_queue_without_a_limit_is_not_looked_at(
    store: RedisStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer.enqueue([message("a", queue="elsewhere")])
    sent: list[Any] = []
    send = store.wire.all

    def seen(commands: Any, **more: Any) -> Any:
        sent.extend(commands)
        return send(commands, **more)

    monkeypatch.setattr(store.wire, "all", seen)
    producer.enqueue_one(message("b", queue="elsewhere"))
    producer.enqueue([message("c", queue="elsewhere")])
    assert len(sent) == 2
