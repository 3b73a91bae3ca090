"""Messages that a newer version wrote, in the middle of a rolling upgrade: left for one that can read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import BadData
from pollconsumer.core.lifecycle import State
from tests.store.acting import HOUR, QUEUE, Launch, Looking, message, names
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector

RECORD = b"Cof a form that is not known here"


@pytest.fixture
def newer(store: RedisStore, look: Looking) -> bytes:
    """The record of a ready message, which is of a newer version."""
    store.enqueue([message("newer")])
    record: bytes = store.wire.command("HGET", look.key("records"), "newer")
    store.wire.command("HSET", look.key("records"), "newer", RECORD)
    return record


def due_in(store: RedisStore, look: Looking, id: str = "newer") -> float:  # noqa: A002  its name
    due = look.due(id)
    assert due is not None
    return due - server_ms(store.wire)


def make_due(store: RedisStore, look: Looking) -> None:
    store.wire.command("ZADD", look.key("schedule"), 5, "newer")


@pytest.mark.usefixtures("newer")
def test_a_message_of_a_newer_version_is_set_aside_for_a_minute_as_it_is(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("plain")])
    stepped = Launch(store).step(wanted=1)
    assert names(stepped.reserved) == ["plain"]
    assert stepped.newer == [QUEUE]
    assert 50_000 < due_in(store, look) <= 60_000
    assert look.hash("records")["newer"] == RECORD
    assert "newer" not in look.hash("rows")
    assert look.ranked("dead_letters") == []


def test_a_newer_consumer_handles_what_was_set_aside(store: RedisStore, look: Looking, newer: bytes) -> None:
    launch = Launch(store)
    assert launch.reserve() == []
    make_due(store, look)
    store.wire.command("HSET", look.key("records"), "newer", newer)  # readable, as to a newer version it is
    store.promote(launch.claim, QUEUE, 9)
    assert names(launch.reserve()) == ["newer"]


@pytest.mark.usefixtures("newer")
def test_what_was_set_aside_is_looked_at_once_a_minute(store: RedisStore, look: Looking) -> None:
    launch = Launch(store)
    for _ in range(2):
        assert launch.step(wanted=1).newer == [QUEUE]
        assert launch.step(wanted=1).newer == []
        assert store.promote(launch.claim, QUEUE, 9).moved == 0
        make_due(store, look)
        assert store.promote(launch.claim, QUEUE, 9).moved == 1


@pytest.mark.parametrize("options", [{"delay": 1}, {"priority": 7, "delay": 1}])
def test_one_that_has_a_row_keeps_it(store: RedisStore, look: Looking, options: dict[str, Any]) -> None:
    store.enqueue([message("newer", **options)])
    store.wire.command("HSET", look.key("records"), "newer", RECORD)
    launch = Launch(store)
    while store.promote(launch.claim, QUEUE, 9).moved == 0:
        pass
    row = look.hash("rows")["newer"]
    assert launch.step(wanted=1).newer == [QUEUE]
    assert look.hash("rows")["newer"] == row
    make_due(store, look)
    assert store.promote(launch.claim, QUEUE, 9).moved == 1
    assert launch.step(wanted=1).newer == [QUEUE]


def test_many_of_them_do_not_keep_others_waiting(store: RedisStore, look: Looking) -> None:
    several = [f"newer-{n}" for n in range(250)]
    store.enqueue([message(name) for name in [*several, "plain"]])
    store.wire.command("HSET", look.key("records"), *(part for name in several for part in (name, RECORD)))
    launch = Launch(store)
    reserved: list[str] = []
    while not reserved:
        stepped = launch.step(wanted=10)
        reserved = names(stepped.reserved)
        assert reserved or stepped.more_in == 0
    assert reserved == ["plain"]


@pytest.mark.usefixtures("newer")
def test_it_wakes_a_mover_that_would_sleep_longer(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("later", delay=HOUR)])
    look.take_marker("schedule_marker")
    Launch(store).reserve()
    assert look.marker("schedule_marker") == 1


@pytest.mark.usefixtures("newer")
def test_it_is_listed_and_counted_where_it_stands(store: RedisStore, inspector: Inspector) -> None:
    for state in (State.READY, State.SCHEDULED):
        found = inspector.message("newer")
        assert (found.state, found.payload, found.last_error) == (state, None, "written by a newer pollconsumer")
        assert [each.id for each in inspector.messages(None, None, 9)] == ["newer"]
        assert [each.id for each in inspector.messages(state, QUEUE, 9)] == ["newer"]
        counts = inspector.overview().queues[0]
        assert getattr(counts, state.value) == 1
        Launch(store).reserve()


@pytest.mark.usefixtures("newer")
def test_it_can_neither_be_cancelled_nor_rescheduled(store: RedisStore, look: Looking, person: MessageActions) -> None:
    for _ in range(2):
        with pytest.raises(BadData, match="newer pollconsumer"):
            person.cancel(QUEUE, "newer")
        with pytest.raises(BadData, match="newer pollconsumer"):
            person.change(QUEUE, "newer", delay=1)
        assert look.hash("records")["newer"] == RECORD
        Launch(store).reserve()


@pytest.mark.usefixtures("newer")
def test_repeating_its_id_makes_no_second_message(store: RedisStore, look: Looking) -> None:
    Launch(store).reserve()
    assert store.enqueue([message("newer")])[0].duplicate
    assert look.hash("records")["newer"] == RECORD
    assert look.listed("ready") == []


def test_a_first_byte_that_is_no_version_is_malformed(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("broken")])
    store.wire.command("HSET", look.key("records"), "broken", b"{no record of ours\n")
    assert Launch(store).reserve() == []
    assert look.ranked("dead_letters") == ["broken"]


FLAGGED = b"C\x8a\x80\0%b\1k\1\1c\4\0\2{}handler\n{}" % bytes(6)
"""The record of a message with the keys k and c, of letter C, with a flag that is not known here."""


@pytest.mark.parametrize("record", [RECORD, FLAGGED])
@pytest.mark.parametrize("way", ["reserved", "begun at most once", "to stop"])
def test_what_its_launch_left_in_flight_stays_there_until_a_newer_launch_comes(
    store: RedisStore, look: Looking, person: MessageActions, way: str, record: bytes
) -> None:
    store.enqueue([message("newer", key="k", concurrency="c"), message("plain")])
    launch = Launch(store)
    reserved = launch.reserve(2)
    if way == "begun at most once":
        launch.begin(reserved[0])
    elif way == "to stop":
        person.stop(QUEUE, "newer")
    row, readable = look.hash("rows")["newer"], look.hash("records")["newer"]
    store.wire.command("HSET", look.key("records"), "newer", record)
    launch = Launch(store, fence=2)
    assert (launch.recovered, names(launch.reserve(9))) == (1, ["plain"])
    assert look.ranked("in_flight") == ["newer", "plain"]
    assert look.hash("rows")["newer"] == row
    assert (look.hash("places_taken"), look.hash("unique_keys")) == ({"c": b"1"}, {"k": b"newer"})
    store.wire.command("HSET", look.key("records"), "newer", readable)  # as to a newer version it is
    launch = Launch(store, fence=3)
    assert names(launch.reserve(9)) == (["newer", "plain"] if way == "reserved" else ["plain"])
    assert (look.ranked("dead_letters"), look.listed("cancelled")) == (
        ["newer"] if way == "begun at most once" else [],
        ["newer"] if way == "to stop" else [],
    )


def test_a_place_that_it_takes_is_offered_to_no_other(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("newer", key="k", concurrency="c"), message("next", concurrency="c")])
    launch = Launch(store)
    assert names(launch.reserve(9)) == ["newer"]
    store.wire.command("HSET", look.key("records"), "newer", FLAGGED)
    assert store.maintenance.offer_places(QUEUE) == 0
    assert look.hash("places_taken") == {"c": b"1"}
    assert launch.reserve(9) == []
