"""A store as an earlier version left it: all that is in it is read, drained and looked after.

`earlier_store.json` has every key of it, by type; bytes are characters of Latin-1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.lifecycle import State
from pollconsumer.store.queues import outbox
from tests.conftest import NAMESPACE
from tests.store.acting import QUEUE, AllRecurrences, Launch, Looking, message, names, unattended

if TYPE_CHECKING:
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector
    from pollconsumer.store.records.reservations import Reservation

WRITE = {"hash": "HSET", "list": "RPUSH", "set": "SADD", "zset": "ZADD"}
READY = ["background", "keyed", "keyed-for-an-hour", "large", "ready", "urgent", "waits-for-a-place"]
DUE = ["parked", "retried", "soon", "soon-urgent"]
ORPHANS = ["in-hand", "orphan", "resumed"]


def write_earlier(store: RedisStore) -> None:
    """What a version before has stored, with keys of every kind."""
    content = json.loads((Path(__file__).parent / "earlier_store.json").read_text())
    for key, stored in content.items():
        for kind, values in stored.items():
            parts = values
            if kind == "hash":
                parts = [part for pair in values.items() for part in pair]
            if kind == "zset":
                parts = [part for member, score in values.items() for part in (score, member)]
            store.wire.command(WRITE[kind], key, *(part.encode("latin-1") for part in parts))


@pytest.fixture
def earlier(store: RedisStore) -> RedisStore:
    write_earlier(store)
    return store


def drain(launch: Launch) -> dict[str, Reservation]:
    handled: dict[str, Reservation] = {}
    while (stepped := launch.step(wanted=9)).reserved or stepped.more_in == 0:
        handled |= dict(zip(names(stepped.reserved), stepped.reserved, strict=True))
        launch.complete(*stepped.reserved)
    return handled


@pytest.mark.usefixtures("earlier")
def test_each_of_its_messages_is_shown_in_its_state(inspector: Inspector) -> None:
    states: dict[str, Any] = {}
    for found in inspector.messages(None, None, 99):
        states.setdefault(found.state, []).append(found.id)
    assert {state: sorted(ids) for state, ids in states.items()} == {
        State.SCHEDULED: sorted([*DUE, "later"]),
        State.READY: READY,
        State.RESERVED: sorted([*ORPHANS, "begun"]),
        State.COMPLETED: ["completed", "completed-large", "parent", "with-a-result"],
        State.DEAD: ["dead"],
        State.CANCELLED: ["cancelled"],
    }
    assert inspector.message("with-a-result").result == {"n": 1}
    dead = inspector.message("dead")
    assert (dead.handler, dead.payload, dead.last_error) == ("handler", {"n": 2}, "Fatal: no")


def test_it_is_drained_and_nothing_in_it_is_early(earlier: RedisStore, look: Looking, inspector: Inspector) -> None:
    launch = Launch(earlier, fence=2)
    assert launch.recovered == len(ORPHANS) + 1
    assert earlier.promote(launch.claim, QUEUE, 99).moved == len(DUE)
    assert outbox.send(earlier, QUEUE, lambda *_: None) == 2
    handled = drain(launch)
    assert sorted(handled) == sorted([*READY, *DUE, *ORPHANS, "child"])
    assert next(iter(handled)) == "urgent"
    assert next(name for name in handled if name in DUE) == "soon-urgent"  # they become ready at the same instant
    assert handled["ready"].payload == b'{"n":3}'
    assert earlier.recorded(handled["resumed"])[0] is None  # it has completed
    assert handled["resumed"].has_checkpoint
    assert (handled["retried"].attempt, handled["soon"].attempt) == (2, 1)
    assert look.ranked("schedule") == ["child-later", "later"]
    assert look.due("later") == look.due("child-later")
    assert inspector.message("begun").state is State.DEAD  # it is delivered at most once


def test_what_it_holds_and_remembers_is_held_and_remembered(earlier: RedisStore, person: MessageActions) -> None:
    assert [each.id for each in earlier.enqueue([message("a", key="k"), message("completed"), message("ready")])] == [
        "keyed",
        "completed",
        "ready",
    ]
    assert person.redrive(QUEUE, ["dead"]) == ["dead"]
    launch = Launch(earlier, fence=2)
    assert "dead" in drain(launch)
    for _ in range(2):
        earlier.maintenance.trim(QUEUE)
    assert earlier.enqueue([message("dead")])[0].duplicate


def test_its_recurrences_go_on_before_and_after_they_are_defined_again(earlier: RedisStore, look: Looking) -> None:
    recurring, launch = AllRecurrences(earlier.wire, NAMESPACE), Launch(earlier, fence=2)
    standing = {each.name: each for each in recurring.statuses(lambda _: None)}
    assert sorted(standing) == ["nightly", "often"]
    assert recurring.tick(launch.claim, QUEUE, unattended, lambda _: None) == 1
    (occurrence,) = [name for name in drain(launch) if "@" in name]
    assert occurrence.startswith("nightly@")
    next_instant = look.score("next_instants", "nightly")
    nightly = standing["nightly"].recurrence
    assert nightly is not None
    recurring.define("owner", [QUEUE], [nightly], lambda _: None)
    assert look.score("next_instants", "nightly") == next_instant
    (defined,) = [each for each in recurring.statuses(lambda _: None) if each.name == "nightly"]
    assert (defined.recurrence, defined.owners) == (nightly, ("owner",))


def test_due_times_in_milliseconds_are_converted_whatever_their_number(
    store: RedisStore, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.store.queues.maintenance.CONVERT_PAGE", 2)
    store.enqueue([message(f"m{n}", due=4_102_444_800_000 + n) for n in range(5)])
    written = {name: look.score("schedule", name) for name in look.ranked("schedule")}
    for name, score in written.items():
        store.wire.command("ZADD", look.key("schedule"), (score or 0) // 1000, name)
    Launch(store)
    assert {name: look.score("schedule", name) for name in look.ranked("schedule")} == written
