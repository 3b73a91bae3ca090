"""An id that the user chose, given again for something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import Conflict
from pollconsumer.core.events import ConflictDropped, Event
from pollconsumer.core.messages.payloads import digest_of
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.queues import maintenance, outbox, producer
from pollconsumer.store.queues.outbox import pack
from pollconsumer.store.queues.producer import Enqueued
from tests.store.acting import QUEUE, Launch, Looking, chosen, die, finish, message, send_and_die
from tests.store.servers import server_ms, snapshot

if TYPE_CHECKING:
    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore

BIG = b'{"x":"%b"}' % (b"x" * 2000)
DUPLICATE = [Enqueued("a", duplicate=True)]


def refuse(store: RedisStore, *messages: NewMessage) -> Conflict:
    """Enqueue, which must be refused with nothing changed."""
    before = snapshot(store.wire)
    with pytest.raises(
        Conflict, match="message id is taken: a; by a message with another handler or payload"
    ) as caught:
        store.enqueue(messages)
    assert snapshot(store.wire) == before
    return caught.value


def test_a_repetition_is_a_duplicate_and_another_handler_or_payload_is_refused(store: RedisStore) -> None:
    store.enqueue([chosen("a", b'{"n":1}')])
    assert store.enqueue([chosen("a", b'{"n":1}')]) == DUPLICATE
    for other in (chosen("a", b'{"n":2}'), chosen("a", b'{"n":1}', handler="other")):
        error = refuse(store, other)
        assert (error.id, error.at, error.accepted) == ("a", 0, [])


def test_a_payload_is_the_same_in_whichever_order_it_gives_its_names(store: RedisStore) -> None:
    first = new_message("h", {"a": 1, "b": {"c": [1, 2.5], "d": "é"}}, id="a", queue=QUEUE)
    again = new_message("h", {"b": {"d": "é", "c": [1, 2.5]}, "a": 1}, id="a", queue=QUEUE)
    store.enqueue([first])
    assert store.enqueue([again]) == DUPLICATE
    assert digest_of("h", b'{"a":[1,2]}') != digest_of("h", b'{"a":[2,1]}')
    refuse(store, new_message("h", {"a": 1, "b": {"c": [2.5, 1], "d": "é"}}, id="a", queue=QUEUE))


@pytest.mark.parametrize("payload", [b"{}", BIG])
@pytest.mark.parametrize("end", ["complete", "die", "cancel", "trim", "purge"])
def test_a_conflict_is_seen_whatever_became_of_the_first_message(
    store: RedisStore, person: MessageActions, monkeypatch: pytest.MonkeyPatch, payload: bytes, end: str
) -> None:
    monkeypatch.setattr(maintenance, "KEEP_FINISHED", 0)
    store.enqueue([chosen("a", payload)])
    launch = Launch(store)
    if end == "cancel":
        person.cancel(QUEUE, "a")
    elif end in ("die", "purge"):
        launch.settle(*map(die, launch.reserve()))
        if end == "purge":
            assert person.purge(QUEUE, ["a"]) == ["a"]
    else:
        launch.complete(*launch.reserve())
        if end == "trim":
            assert store.maintenance.trim(QUEUE) == 1
    assert store.enqueue([chosen("a", payload)]) == DUPLICATE
    refuse(store, chosen("a", b'{"other":1}'))


def test_a_generated_id_never_conflicts(store: RedisStore) -> None:
    store.enqueue([message("a", payload=b'{"n":1}')])
    assert store.enqueue([message("a", payload=b'{"n":2}')]) == DUPLICATE
    assert store.enqueue([chosen("a", b'{"n":3}')]) == DUPLICATE


def test_a_duplicate_by_unique_key_is_no_conflict(store: RedisStore) -> None:
    store.enqueue([message("a", key="k")])
    other = chosen("b", b'{"n":1}')._replace(key="k")
    assert store.enqueue([other]) == DUPLICATE


def test_a_batch_with_a_conflict_within_itself_is_refused_whole(store: RedisStore) -> None:
    store.enqueue([message("first")])
    error = refuse(store, message("b"), chosen("a"), message("c"), chosen("a", b'{"n":1}'), message("d"))
    assert (error.at, error.accepted) == (3, [])


def test_nothing_behind_a_batch_with_a_conflict_is_accepted(store: RedisStore) -> None:
    most = producer.ENQUEUE_PAGE
    store.enqueue([chosen("a")])
    wanted = [message(f"m{n}") for n in range(4 * most)]
    wanted[2 * most + 5] = chosen("a", b'{"n":1}')
    with pytest.raises(Conflict) as caught:
        store.enqueue(wanted)
    assert caught.value.at == 2 * most + 5
    assert caught.value.accepted == [each.id for each in wanted[: 2 * most]]
    assert Looking(store).listed("ready") == ["a", *caught.value.accepted]


def test_the_same_id_in_another_queue_is_another_message(store: RedisStore) -> None:
    store.enqueue([chosen("a")])
    assert store.enqueue([chosen("a", b'{"n":1}', queue="other")]) == [Enqueued("a", duplicate=False)]


def test_what_conflicts_in_an_outbox_is_dropped_and_told_and_the_rest_is_sent(store: RedisStore) -> None:
    store.enqueue([chosen("a"), message("parent")])
    launch = Launch(store)
    _, parent = launch.reserve(2)
    children = [message("b"), chosen("a", b'{"n":1}'), message("c"), chosen("a", b'{"n":2}', queue="other")]
    launch.settle(finish(parent, outgoing=pack(children, server_ms(store.wire))))
    told: list[Event] = []
    outbox.send(store, QUEUE, told.append)
    assert told == [ConflictDropped("a", QUEUE)]
    look = Looking(store)
    assert (look.listed("ready"), look.listed("outbox")) == (["b", "c"], [])
    assert Looking(store, "other").listed("ready") == ["a"]


@pytest.mark.parametrize("before", [[], [message("b")], [message("b"), message("c", queue="other")]])
@pytest.mark.parametrize("after", [[], [message("d", queue="other")]])
def test_a_conflict_in_an_outbox_is_told_once_though_its_sender_dies_and_the_id_is_forgotten(
    store: RedisStore, before: list[NewMessage], after: list[NewMessage]
) -> None:
    store.enqueue([chosen("a"), message("parent")])
    _, parent = Launch(store).reserve(2)
    children = [*before, chosen("a", b'{"n":1}'), *after]
    Launch(store).settle(finish(parent, outgoing=pack(children, server_ms(store.wire))))
    told: list[Event] = []
    (entry,) = store.wire.command("LRANGE", store.keys.queue(QUEUE, "outbox"), 0, -1)
    send_and_die(store, entry, told.append)
    for key in ("records", "rows"):
        store.wire.command("HDEL", store.keys.queue(QUEUE, key), "a")
    outbox.send(store, QUEUE, told.append)
    assert told == [ConflictDropped("a", QUEUE)]
    assert store.wire.command("HEXISTS", store.keys.queue(QUEUE, "records"), "a") == 0
