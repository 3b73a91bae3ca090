"""What is read of all queues while the node of a cluster that has one of them is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import NotFound, StoreUnreachable
from pollconsumer.core.lifecycle import State
from pollconsumer.dashboard.excerpts import Excerpts
from pollconsumer.store.reading.inspector import MessageSelector, Selection
from pollconsumer.store.recurrence_actions import Recurrences
from pollconsumer.store.store import Store
from pollconsumer.watching.metrics import metrics_of
from tests.conftest import NAMESPACE
from tests.store.acting import Launch, message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pollconsumer.store.client.wire import Wire
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector

LEFT, LOST = "left", "lost"


@pytest.fixture
def parted(store: RedisStore, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Wire:
    """A message in each of two queues, the node of one of which seems lost."""
    store.enqueue([message(queue, queue=queue) for queue in (LEFT, LOST)])
    monkeypatch.setattr(type(wire), "lost", lambda _, keys: _lost(keys))
    wire.skips_lost = True
    return wire


def _lost(keys: Collection[str]) -> set[str]:
    return {key for key in keys if LOST in key}


def test_what_can_be_read_is_and_the_rest_is_named(parted: Wire, inspector: Inspector) -> None:
    overview = inspector.overview()
    assert ([each.name for each in overview.queues], overview.unreachable) == ([LEFT], [LOST])
    assert parted.unread == {LOST}


@pytest.mark.parametrize(
    "ids",
    [
        lambda wire: [each.id for each in MessageSelector(wire, NAMESPACE).messages(Selection())],
        lambda wire: [each.id for each in Excerpts(Store(wire, NAMESPACE)).messages(State.READY, 9)],
    ],
)
def test_messages_are_those_of_queues_that_can_be_read(parted: Wire, ids: Callable[[Wire], list[str]]) -> None:
    assert ids(parted) == [LEFT]
    parted.skips_lost = False  # as for a program, which is not to take a part for the whole
    assert sorted(ids(parted)) == [LEFT, LOST]
    assert parted.unread == set()


def test_a_message_that_is_found_says_nothing_of_a_lost_queue_and_one_that_is_not_may_be_there(
    parted: Wire, inspector: Inspector
) -> None:
    with pytest.raises(StoreUnreachable, match="queues unreachable: lost; "):
        inspector.message("elsewhere")
    assert inspector.message(LEFT).queue == LEFT
    assert parted.unread == set()
    parted.skips_lost = False
    with pytest.raises(NotFound):
        inspector.message("elsewhere")


def test_a_recurrence_that_is_not_found_may_be_in_a_lost_queue(parted: Wire) -> None:
    with pytest.raises(StoreUnreachable, match="queues unreachable: lost; "):
        Recurrences(parted, NAMESPACE).find("nightly")


def test_totals_of_all_queues_have_a_gap_where_they_would_fall(
    parted: Wire, store: RedisStore, inspector: Inspector
) -> None:
    launch = Launch(store, queue=LEFT)
    launch.complete(*launch.reserve())
    metrics = {each.name: each for each in metrics_of(inspector)}
    assert [each.labels for each in metrics["messages_settled_total"].samples] == [
        {"queue": LEFT, "handler": "handler", "outcome": "completed"}
    ]
    assert metrics["handling_duration_seconds"].samples == []
    assert {each.labels["queue"]: each.value for each in metrics["queue_unreachable"].samples} == {LEFT: 0, LOST: 1}
    parted.skips_lost = False
    assert {each.name: each for each in metrics_of(inspector)}["handling_duration_seconds"].samples
