"""Messages that are selected by what they have in common, and what is done to all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import NotFound
from pollconsumer.core.lifecycle import State
from pollconsumer.store import actions as module
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.reading.inspector import MessageSelector, Selection, recurrence_of, unreserved
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, die, message
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from pollconsumer.store.client.wire import Wire
    from pollconsumer.store.queues.redis_store import RedisStore

OTHER = "other"


@pytest.fixture
def selecting(wire: Wire) -> MessageSelector:
    return MessageSelector(wire, NAMESPACE)


@pytest.fixture
def interventions(wire: Wire) -> MessageActions:
    return MessageActions(wire, NAMESPACE)


@pytest.fixture
def several(store: RedisStore) -> RedisStore:
    """One dead, one reserved, the others scheduled or ready, in two queues."""
    store.enqueue([message("dead", handler="mail"), message("reserved", handler="mail")])
    launch = Launch(store)
    dead, _ = launch.reserve(2)
    launch.settle(die(dead, "Fatal: no"))
    store.enqueue(
        [
            message("later", handler="mail", delay=HOUR),
            message("now", handler="mail"),
            message("keyed", key="k", headers={"customer": "7", "plan": "free"}),
            message("labelled", headers={"customer": "7"}),
            message("of another", headers={"customer": "77", "plan": "free"}),
            message("nightly@2026-11-22T02:30:00Z"),
            message("ranked", priority=3),
            message("elsewhere", handler="mail", queue=OTHER),
            message("keyed elsewhere", key="k", queue=OTHER),
        ]
    )
    return store


@pytest.mark.parametrize(
    ("selection", "ids"),
    [
        (Selection(handler="mail"), {"dead", "reserved", "later", "now", "elsewhere"}),
        (Selection(State.DEAD, handler="mail"), {"dead"}),
        (Selection(queue=OTHER), {"elsewhere", "keyed elsewhere"}),
        (Selection(queue=QUEUE, handler="mail"), {"dead", "reserved", "later", "now"}),
        (Selection(recurrence="nightly"), {"nightly@2026-11-22T02:30:00Z"}),
        (Selection(recurrence="now"), set()),
        (Selection(key="k"), {"keyed", "keyed elsewhere"}),
        (Selection(key="k", queue=OTHER), {"keyed elsewhere"}),
        (Selection(State.SCHEDULED, key="k"), set()),
        (Selection(key="none"), set()),
        (Selection(headers={"customer": "7"}), {"keyed", "labelled"}),
        (Selection(headers={"customer": "7", "plan": "free"}), {"keyed"}),
        (Selection(State.SCHEDULED, headers={"customer": "7"}), set()),
        (Selection(headers={"Customer": "7"}), set()),
        (Selection(headers={}, queue=OTHER), {"elsewhere", "keyed elsewhere"}),
    ],
)
def test_messages_are_selected_by_all_that_is_given(
    several: RedisStore, selecting: MessageSelector, selection: Selection, ids: set[str]
) -> None:
    del several
    assert {found.id for found in selecting.messages(selection)} == ids


def test_a_message_that_has_ended_holds_its_key_no_more(store: RedisStore, selecting: MessageSelector) -> None:
    store.enqueue([message("a", key="k")])
    launch = Launch(store)
    launch.settle(die(launch.reserve()[0], "no"))
    assert list(selecting.messages(Selection(key="k"))) == []


def test_an_unknown_queue_is_not_found(several: RedisStore, selecting: MessageSelector) -> None:
    del several
    with pytest.raises(NotFound, match="nowhere"):
        list(selecting.messages(Selection(queue="nowhere")))


def test_the_age_of_a_message_counts_from_when_it_entered_its_state(
    store: RedisStore, selecting: MessageSelector
) -> None:
    store.enqueue([message("a", delay=HOUR)])
    assert [found.id for found in selecting.messages(Selection(older_than=0.0))] == ["a"]
    assert list(selecting.messages(Selection(older_than=60.0))) == []


@pytest.mark.parametrize(
    ("message_id", "name"),
    [
        ("nightly@2026-11-22T02:30:00Z", "nightly"),
        ("check:42@2026-11-22T02:30:00Z", "check:42"),
        ("a@b@2026-11-22T02:30:00Z", "a@b"),
        ("ada@example.org", None),
        ("@2026-11-22T02:30:00Z", None),
        ("nightly", None),
    ],
)
def test_an_occurrence_is_known_by_its_id(message_id: str, name: str | None) -> None:
    assert recurrence_of(message_id) == name


def test_only_what_is_scheduled_or_ready_is_cancelled(
    several: RedisStore, selecting: MessageSelector, interventions: MessageActions, monkeypatch: pytest.MonkeyPatch
) -> None:
    del several
    monkeypatch.setattr(module, "MAX_PAGE_IDS", 2)
    asked = unreserved(selecting, Selection(queue=QUEUE))
    ids = [message_id for _, message_id in asked]
    assert ids[0] == "later"
    assert set(ids) == {"later", "now", "keyed", "labelled", "of another", "nightly@2026-11-22T02:30:00Z", "ranked"}
    assert interventions.cancel_all(QUEUE, [*ids, "reserved", "dead", "unknown"]) == ids
    assert {found.id for found in selecting.messages(Selection(State.CANCELLED))} == set(ids)
    assert unreserved(selecting, Selection(queue=QUEUE)) == []


def test_cancelling_all_again_changes_nothing(
    store: RedisStore, selecting: MessageSelector, interventions: MessageActions, wire: Wire
) -> None:
    store.enqueue([message("a"), message("b")])
    assert interventions.cancel_all(QUEUE, ["a", "b"]) == ["a", "b"]
    before = server_ms(wire)
    while server_ms(wire) == before:
        pass
    assert interventions.cancel_all(QUEUE, ["a", "b"]) == []
    assert all((found.row.timestamps.cancelled_at or 0) <= before for found in selecting.messages(Selection()))
