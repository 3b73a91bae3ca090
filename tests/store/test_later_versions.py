"""What a later version may add to a store: this one leaves or ignores it, loses nothing, and its own work goes on.

`ADDED` is a table: what is added, and how a later version writes it beside messages of this one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pollconsumer.core.errors import Conflict
from pollconsumer.core.events import ConflictDropped, Event, NewerMessagesFound
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.continuation import FIRST
from pollconsumer.core.messages.message import FIRST_OPTIONS, NewMessage, Options, decoded_options, has_later
from pollconsumer.core.messages.payloads import digest_of
from pollconsumer.moving.store_closer import StoreCloser
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.outbox import pack
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.records.steps import Settlement, read_progress
from pollconsumer.store.recurrences import LaunchRecurrences
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, chosen, message, names, unattended

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector

INSTANT = b"\0\1\2\3\4\5"
ENTRY = {"id": "follow", "queue": QUEUE, "handler": "handler", "payload": "{}"}
FLAGGED = b"C\x80\x80\0%b\0%%b\0\2{}handler\n{}" % INSTANT
"""A record of letter C, without its second byte of flags."""


class Added(NamedTuple):
    """``key`` of the queue, or of the namespace if it begins with a colon, and what is written there."""

    key: str
    command: str
    parts: tuple[str | bytes, ...]
    found: str = ""
    """How the message is listed, if it is one."""


def record(content: bytes) -> Added:
    return Added("records", "HSET", ("added", content), "ready")


ADDED = {
    "a letter of a record": record(b"Dof a form that is not known here"),
    "a letter of a record that is short": record(b"C"),
    "a flag of a record": record(FLAGGED % b"\4"),
    "another flag of a record": record(FLAGGED % b"\x80"),
    "a record of letter C without options": record(b"C\0\x80\0%b\0\0handler\n{}" % INSTANT),
    "a field of an outbox entry": Added("outbox", "RPUSH", (json.dumps([ENTRY | {"new": 1}]),)),
    "a field of one of an entry": Added("outbox", "RPUSH", (json.dumps([ENTRY, ENTRY | {"id": "b", "new": 1}]),)),
    "a count": Added("counters", "HSET", ("of something new", "none of our numbers")),
    "a total": Added("totals", "HSET", ("new kind\nhandler\n3", "7", "of\nfour\nparts\n1", "7")),
    "a place of a checkpoint": Added("checkpoints", "HSET", ("added\nstep", "{}")),
    "a result of another kind": Added("results", "HSET", ("added\nnew", "{}")),
    "what recurrences have": Added("recurrence_counters", "HSET", ("nightly:new", "x")),
    "a key of a queue": Added("open_groups", "HSET", ("a", "b")),
    "a column of the ledger": Added(
        ":ledger", "HSET", ("x", json.dumps({"launch_id": "x", "stop_reason": "a new reason", "new_seconds": 1.5}))
    ),
    "a part of the fences": Added(":fences", "HSET", ("new:part", "x")),
    "a time in a histogram": Added(":histograms", "HSET", ("new\nhandler", "x")),
    "a key of the namespace": Added(":of_later", "SADD", ("a",)),
}


@pytest.fixture(params=ADDED.values(), ids=[*ADDED])
def added(request: pytest.FixtureRequest, store: RedisStore, look: Looking) -> Callable[[], bool]:
    """Something that a later version has written. Whether it is still there as it was."""
    what: Added = request.param
    key = f"{{{NAMESPACE}}}{what.key}"
    if not what.key.startswith(":"):
        key = f"{{{NAMESPACE}:{QUEUE}}}:new" if what.key == "open_groups" else look.key(what.key)
    if what.found:
        store.enqueue([message("added")])
    store.wire.command(what.command, key, *what.parts)

    def stays() -> bool:
        wanted = [part.encode() if isinstance(part, str) else part for part in what.parts]
        if what.command == "HSET":
            return bool(store.wire.command("HMGET", key, *wanted[::2]) == wanted[1::2])
        if what.command == "SADD":
            return bool(store.wire.command("SISMEMBER", key, *wanted))
        return bool(wanted[0] in store.wire.command("LRANGE", key, 0, -1))

    return stays


def test_what_it_adds_stays_and_neither_ends_nor_holds_up_anything(
    store: RedisStore,
    look: Looking,
    leases: Leases,
    inspector: Inspector,
    person: MessageActions,
    added: Callable[[], bool],
) -> None:
    group = Group("consumer", (QUEUE,), 1)
    assert isinstance(leases.acquire(group, "launch", "{}", "{}"), Claim)
    store.enqueue([message("plain"), message("keyed", key="k", concurrency="c"), message("later", delay=HOUR)])
    launch, told = Launch(store), list[Event]()
    handled = list[str]()
    while (stepped := launch.step(wanted=2)).reserved or stepped.more_in == 0:
        handled += names(stepped.reserved)
        launch.complete(*stepped.reserved)
    assert handled == ["plain", "keyed"]
    for _ in range(3):
        store.maintenance.repair(QUEUE)
        store.maintenance.trim(QUEUE)
        store.maintenance.recover(QUEUE, [])
        outbox.send(store, QUEUE, told.append)
    assert LaunchRecurrences(store.wire, NAMESPACE).tick(launch.claim, QUEUE, unattended, print) == 0
    person.change(QUEUE, "later", delay=1)
    assert look.ranked("dead_letters") == []
    assert not any(isinstance(each, ConflictDropped) for each in told)
    inspector.overview()
    inspector.launches(9)
    inspector.totals()
    listed = {each.id: each.state for each in inspector.messages(None, None, 99)}
    assert listed.pop("added", State.SCHEDULED) is State.SCHEDULED
    assert listed.keys() == {"plain", "keyed", "later"}
    assert added()


def test_of_a_key_that_is_unknown_an_export_says_who_can_move_it_and_not_to_delete_it(
    store: RedisStore, look: Looking
) -> None:
    store.wire.command("HSET", look.key("counters").replace(":c", ":of_later"), "a", "b")
    with pytest.raises(Exception, match=r"unknown key: .*newer pollconsumer") as refused:
        StoreCloser(store.wire, NAMESPACE).close("e1", print)
    assert "delete" not in str(refused.value)


def test_progress_that_says_more_is_shown_as_far_as_it_is_known() -> None:
    progress = read_progress(INSTANT + b'[1, 2, "half", {"new": 3}]')
    assert progress is not None
    assert (progress.done, progress.total, progress.note) == (1, 2, "half")


# Options


def test_an_option_that_is_unknown_is_told_from_those_that_are_malformed() -> None:
    assert decoded_options(b'{"timeout":5,"new":{"a":[1]}}') == (Options(timeout=5), True)
    assert decoded_options(b'{"timeout":5}') == (Options(timeout=5), False)


def test_a_message_with_an_unknown_option_is_listed_with_its_payload(store: RedisStore, inspector: Inspector) -> None:
    newer = b'B\x80\x80\0%b\0\0\x09{"new":1}handler\n{"n":1}' % INSTANT
    store.enqueue([message("newer")])
    store.wire.command("HSET", store.keys.queue(QUEUE, "records"), "newer", newer)
    found = inspector.message("newer")
    assert (found.payload, found.last_error) == ({"n": 1}, "written by a newer pollconsumer")


def test_what_a_launch_sets_aside_is_scheduled_uncharged_and_neither_parked_nor_blamed(
    store: RedisStore, look: Looking, inspector: Inspector
) -> None:
    store.enqueue([message("newer", key="k", concurrency="c")])
    launch = Launch(store)
    launch.settle(*(Settlement.postponed(each, offered_in_ms=HOUR) for each in launch.reserve()))
    found = inspector.message("newer")
    assert (found.state, found.row.attempts, found.row.parked, found.last_error) == (State.SCHEDULED, 0, False, None)
    assert look.hash("places_taken") == {}
    assert store.wire.command("SCARD", look.key("parked")) == 0
    assert store.enqueue([message("other", key="k")])[0].id == "newer"


def test_every_option_that_earlier_versions_would_bury_a_message_for_is_told_from_those_they_know() -> None:
    assert set(Options._fields) >= FIRST_OPTIONS
    for name in Options._fields:
        assert has_later(Options._make("x" if each == name else None for each in Options._fields)) is (
            name not in FIRST_OPTIONS
        )


# Records of letter C: with options that earlier versions of letter B do not know

MESSAGES = {
    "headers": message("m", headers={"a": "b"}),
    "every part": message(
        "m", key="k", concurrency="c", rate_key="r", rate="5/1s", headers={"a": "b"}, expires=HOUR
    )._replace(digest=digest_of("handler", b"{}"), timeout=7.0),
    "a priority and a due time": message("m", headers={"a": "b"}, priority=3, delay=1),
    "a large payload": message("m", payload=b'{"x":"%b"}' % (b"x" * 3000), headers={"a": "b"}, digest="ab" * 8),
}


@pytest.mark.parametrize("given", MESSAGES.values(), ids=MESSAGES)
def test_what_is_written_as_letter_c_is_handled_as_any_other(
    store: RedisStore, look: Looking, inspector: Inspector, monkeypatch: pytest.MonkeyPatch, given: NewMessage
) -> None:
    monkeypatch.setattr(
        "pollconsumer.core.messages.message.FIRST_OPTIONS", frozenset()
    )  # as if all of its options were of a later version
    store.enqueue([given])
    written: bytes = store.wire.command("HGET", look.key("records"), "m")
    assert written[:1] == b"C"
    assert not rows.is_newer(written)
    assert store.enqueue([given])[0].duplicate
    shown = inspector.message("m")
    assert (shown.headers, shown.row.priority) == ({"a": "b"}, given.priority)
    launch = Launch(store)
    while not (reserved := launch.step(wanted=1).reserved):
        store.promote(launch.claim, QUEUE, 9)
    assert reserved[0].payload == given.payload
    assert decoded_options(reserved[0].common.options)[0].headers == {"a": "b"}
    assert (reserved[0].unique_key, reserved[0].concurrency_key) == (
        given.key.encode(),
        given.concurrency_key.encode(),
    )
    launch.complete(*reserved)
    assert look.listed("completed") == ["m"]
    assert look.hash("unique_keys") == {}
    assert look.hash("places_taken") == {}


@pytest.mark.parametrize("cut", range(10, 24))
def test_a_record_of_letter_c_that_was_cut_short_harms_no_other(store: RedisStore, look: Looking, cut: int) -> None:
    store.enqueue([message("a"), message("b")])
    whole = b'C\x82\x80\0%b\3key\0\0\x0b{"timeout":5}handler\n{}' % INSTANT
    store.wire.command("HSET", look.key("records"), "a", whole[:cut])
    launch = Launch(store)
    launch.complete(*launch.reserve(9))
    assert look.listed("completed") == ["b"]


def test_what_a_row_has_after_its_digest_is_no_part_of_it(
    store: RedisStore, look: Looking, inspector: Inspector
) -> None:
    large = chosen("m", b'{"x":"%b"}' % (b"x" * 2000))
    store.enqueue([large])
    launch = Launch(store)
    launch.complete(*launch.reserve())
    assert look.hash("records") == {}
    store.wire.command("HSET", look.key("rows"), "m", look.hash("rows")["m"] + b"\1")
    assert store.enqueue([large])[0].duplicate
    with pytest.raises(Conflict):
        store.enqueue([chosen("m", b'{"x":"%b"}' % (b"y" * 2000))])
    assert inspector.message("m").row.handler == "handler"


# Outboxes


class Later(NewMessage):
    """A message of a later version, with an option more."""

    new = ""
    _field_defaults = NewMessage._field_defaults | {"new": ""}

    def _asdict(self) -> dict[str, Any]:
        return super()._asdict() | {"new": self.new}


class WithLaterOption(Later):
    new = "x"


def test_what_is_at_its_default_is_not_written_so_that_each_version_sends_on_what_it_knows(store: RedisStore) -> None:
    packed = pack([message("a", priority=3), Later(*message("b"))], 5)
    assert json.loads(packed) == [
        {"id": "a", "queue": QUEUE, "handler": "handler", "payload": "{}", "priority": 3},
        {"id": "b", "queue": QUEUE, "handler": "handler", "payload": "{}"},
    ]
    store.wire.command("RPUSH", store.keys.queue(QUEUE, "outbox"), packed)
    assert outbox.send(store, QUEUE, print) == 2


def test_with_a_later_option_all_that_earlier_versions_know_is_written_so_that_they_leave_it(
    store: RedisStore, look: Looking
) -> None:
    packed = pack([WithLaterOption(*message("a"))], 5)
    (given,) = json.loads(packed)
    assert given.keys() == FIRST | {"new"}
    told = list[Event]()
    store.wire.command("RPUSH", look.key("outbox"), packed, pack([message("b")], 5))
    assert outbox.send(store, QUEUE, told.append) == 1
    assert look.listed("outbox") == [packed.decode()]
    assert told == [NewerMessagesFound(QUEUE)]
