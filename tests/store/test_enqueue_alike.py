"""Messages that differ in id and payload alone take a shorter way, and are accepted as by the longer one."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.errors import OutcomeUnknown, StoreRefused
from pollconsumer.core.messages.alike import Alike
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.interface.api.app import PollConsumer
from pollconsumer.interface.api.store_pool import StorePool
from pollconsumer.store.client.strict import Strict
from pollconsumer.store.queues.producer import ENQUEUE_BYTES, ENQUEUE_PAGE, ENQUEUE_PAGES, Enqueued, Producer
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.safety.strict_producer import StrictProducer
from tests.conftest import NAMESPACE
from tests.inner import calls_of
from tests.store.acting import QUEUE, Launch, Looking, message, names
from tests.store.servers import snapshot
from tests.store.test_enqueue_new import STEPS, AllHaveIt, Hasty, History, losing_replies, scripts_sent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SHORT = "enqueue_new"
MOST = ENQUEUE_PAGES * ENQUEUE_PAGE
"""In a round trip."""


def alike(count: int, first: int = 0, payload: bytes = b"{}", queue: str = QUEUE) -> Alike:
    return Alike(queue, "handler", [f"m{first + n}" for n in range(count)], [payload] * count)


def three_of(new: NewMessage) -> Alike:
    return Alike(new.queue, new.handler, [f"{new.id}-{n}" for n in range(3)], [new.payload] * 3)


def enqueued(store: Producer, messages: Alike) -> list[Enqueued]:
    return [Enqueued(*pair) for pair in store.enqueue_alike(messages)]


def accepted(messages: Sequence[NewMessage]) -> list[Enqueued]:
    return [Enqueued(each.id, duplicate=False) for each in messages]


@given(st.lists(STEPS, max_size=15))
def test_the_same_history_leaves_the_same_store_by_each_way(steps: list[tuple[str, dict[str, Any]]]) -> None:
    def short_of(store: Producer) -> Callable[[NewMessage], object]:
        return lambda new: enqueued(store, three_of(new))

    long = History(lambda store: lambda new: store.enqueue(list(three_of(new))))
    short = History(lambda store: short_of(store.producer))
    strict = History(lambda store: short_of(StrictProducer(store.wire, NAMESPACE, Strict(None, 0.5))))
    for history in (long, short, strict):
        for n, step in enumerate(steps):
            history.take(n, *step)
    for history in (short, strict):
        assert history.told == long.told
        assert snapshot(history.store.wire) == snapshot(long.store.wire)
    for history in (long, short, strict):
        history.opener.close()


def test_some_hundreds_are_sent_in_one_round_trip_and_are_ready_in_their_order(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.enqueue([message("first")])
    sent = scripts_sent(store.producer, monkeypatch)
    messages = alike(250)
    assert enqueued(store.producer, messages) == accepted(messages)
    assert sent == [SHORT] * ceil(250 / ENQUEUE_PAGE)
    assert look.listed("ready") == ["first", *messages.ids]
    assert names(Launch(store).reserve(251)) == ["first", *messages.ids]


@pytest.mark.parametrize(
    "messages",
    [alike(0), alike(MOST + 1), alike(2, payload=b"x" * (ENQUEUE_BYTES // 2 + 1))],
    ids=["none", "many", "large"],
)
def test_no_message_too_many_or_too_large_ones_take_the_long_way(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch, messages: Alike
) -> None:
    sent = scripts_sent(store.producer, monkeypatch)
    assert enqueued(store.producer, messages) == accepted(messages)
    assert SHORT not in sent
    assert look.listed("ready") == messages.ids


@pytest.mark.own_connection("fakeredis knows no WAIT", server="fakeredis")
@pytest.mark.parametrize(("replicas", "way"), [(0, SHORT), (1, "enqueue")])
def test_messages_that_a_replica_must_have_take_the_long_way(
    wire: Any, monkeypatch: pytest.MonkeyPatch, replicas: int, way: str
) -> None:
    store = StrictProducer(wire, NAMESPACE, AllHaveIt(None, 0.5))
    store.enqueue([message("first")])
    wire.replicas = replicas  # as it would be greeted
    sent = scripts_sent(store, monkeypatch)
    assert enqueued(store, alike(2)) == accepted(alike(2))
    assert sent == [way]


def test_an_id_that_the_queue_has_is_a_duplicate_and_the_others_are_accepted(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("m101", payload=b'{"n":1}')])
    assert [entry.id for entry in enqueued(store.producer, alike(250)) if entry.duplicate] == ["m101"]
    assert sorted(look.listed("ready")) == sorted(alike(250).ids)
    assert look.hash("records")["m101"].endswith(b'{"n":1}')


@pytest.mark.parametrize("key", ["records", "ready", "ready_marker"])
def test_they_are_refused_with_nothing_written_where_a_key_has_another_type(store: RedisStore, key: str) -> None:
    store.enqueue([message("first")])
    name = store.keys.queue(QUEUE, key)
    store.wire.command("DEL", name)
    store.wire.command("SET", name, "another program's")
    before = snapshot(store.wire)
    with pytest.raises(StoreRefused):
        store.producer.enqueue_alike(alike(2))
    assert snapshot(store.wire) == before


def test_a_lost_reply_is_asked_for_the_long_way_and_no_message_is_a_duplicate(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.enqueue([message("first")])
    losing_replies(store, monkeypatch, {SHORT})
    sent = scripts_sent(store.producer, monkeypatch)
    assert enqueued(store.producer, alike(150)) == accepted(alike(150))
    assert sent == [SHORT, SHORT, "enqueue", "enqueue"]
    assert look.listed("ready") == ["first", *alike(150).ids]


def test_those_whose_every_reply_is_lost_have_an_unknown_outcome_and_their_ids(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.enqueue([message("first")])
    losing_replies(store, monkeypatch, {SHORT, "enqueue"})
    monkeypatch.setattr(store.wire, "patience", Hasty)
    with pytest.raises(OutcomeUnknown) as caught:
        store.producer.enqueue_alike(alike(150))
    assert caught.value.ids == alike(150).ids


@pytest.mark.parametrize(("options", "script"), [({}, SHORT), ({"priority": 3}, "enqueue"), ({"in_": 60}, "enqueue")])
def test_many_calls_of_a_handler_without_options_take_the_short_way(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], script: str
) -> None:
    app = PollConsumer()

    def handler(n: int) -> None:
        raise AssertionError(n)

    monkeypatch.setattr(calls_of(app), "_pool", StorePool(lambda _: store.producer, 1.0))
    store.enqueue([message("first")])
    sent = scripts_sent(store.producer, monkeypatch)
    handles = app.handler(queue=QUEUE)(handler).using(**options).enqueue_many([{"n": n} for n in range(MOST + 1)])
    assert sent == [script] * (ENQUEUE_PAGES + 1)
    assert len({handle.id for handle in handles}) == MOST + 1
    assert {(handle.queue, handle.duplicate) for handle in handles} == {(QUEUE, False)}
