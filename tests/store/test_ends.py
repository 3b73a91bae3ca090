"""How a message ends: what docs/reference/internals.md says of each way, tried with one that has everything."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.lifecycle import state_of
from pollconsumer.core.messages.message_steps import Progress
from pollconsumer.store.records import rows
from pollconsumer.store.records.steps import Settlement
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, expire, message, park, retry
from tests.store.commands_used import LUA, code_of, scripts
from tests.test_architecture import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.records.reservations import Reservation

ENDS = table("How a message ends", "End")
FREED = {
    "unique_keys": "freed",
    "places_taken": "freed",
    "records": "dropped",
    "checkpoints": "dropped",
    "stops": "dropped",
}
"""What a message may have, in the order of the table's columns, and the word for that it is gone after the end."""
MODULES = {
    "QueueStep": "records.steps",
    "Settlement": "records.steps",
    "RedisStore": "queues.redis_store",
    "Maintenance": "queues.maintenance",
    "MessageActions": "actions",
}
LARGE = b'{"x":"%b"}' % (b"x" * 2000)


class Subject:
    """A message with a key, a place, a large record, a checkpoint and progress, and the ways in which it ends."""

    def __init__(self, store: RedisStore, person: MessageActions, look: Looking) -> None:
        self.store, self.person, self.look = store, person, look
        self.launch = Launch(store)
        self.before: dict[str, bool] = {}

    def reserved(self, *, checkpoint: bool = True, expires: int = 0) -> Reservation:
        self.store.enqueue([message("m", payload=LARGE, key="k", concurrency="c", expires=expires)])
        (reservation,) = self.launch.reserve()
        if checkpoint:
            self.store.checkpoint(self.launch.claim, reservation, b"{}", {QUEUE: {b"m": Progress(1)}})
        return reservation

    def stopped(self) -> Reservation:
        reservation = self.reserved()
        self.person.stop(QUEUE, "m")
        return reservation

    def waiting(self, *, expires: int = 0) -> None:
        """Ready again, after an attempt."""
        self.launch.settle(retry(self.reserved(expires=expires)))
        self.store.promote(self.launch.claim, QUEUE, 1)

    def held(self) -> dict[str, bool]:
        """What of `FREED` it has, and whether its progress is known."""
        records = self.look.hash("records")
        large = {name: record for name, record in records.items() if len(record) > 1024}
        return {name: bool(large if name == "records" else self.look.hash(name)) for name in (*FREED, "progress")}

    def is_about_to_end(self) -> None:
        """Right before its end."""
        self.before = self.held()

    def completed(self) -> None:
        reservation = self.stopped()
        self.is_about_to_end()
        self.launch.complete(reservation)

    def dead(self) -> None:
        self._settled(die)

    def malformed(self) -> None:
        self.waiting()
        self.store.wire.command("HSET", self.look.key("rows"), "m", "cut short")
        self.is_about_to_end()
        assert self.launch.reserve() == []

    def dead_with_its_process(self) -> None:
        self.launch.begin(self.reserved(checkpoint=False))
        self.is_about_to_end()
        Launch(self.store, fence=2)

    def expired(self) -> None:
        self._settled(expire)

    def expired_where_nobody_serves(self) -> None:
        self.waiting(expires=1)
        self.is_about_to_end()
        while not self.store.maintenance.expire(QUEUE):
            pass

    def cancelled(self) -> None:
        self.waiting()
        self.is_about_to_end()
        self.person.cancel(QUEUE, "m")

    def stopped_in_its_launch(self) -> None:
        self._settled(lambda r: Settlement.stopped(r, r.reserved_at, r.reserved_at, error="Stopped: no"), stopped=True)

    def stopped_while_it_failed(self) -> None:
        self._settled(lambda r: retry(r, HOUR), stopped=True)

    def stopped_with_its_launch(self) -> None:
        self.stopped()
        self.is_about_to_end()
        Launch(self.store, fence=2)

    def given_back(self) -> None:
        self.stopped()
        self.is_about_to_end()
        self.store.unreserve(self.launch.claim, QUEUE, [])

    def _settled(self, way: Callable[[Reservation], Settlement], *, stopped: bool = False) -> None:
        reservation = self.stopped() if stopped else self.reserved()
        self.is_about_to_end()
        assert self.launch.settle(way(reservation)).stale == []


WAYS: dict[str, Callable[[Subject], None]] = {
    "completed": Subject.completed,
    "dead after its last attempt": Subject.dead,
    "dead, malformed": Subject.malformed,
    "dead with its launch, delivered at most once": Subject.dead_with_its_process,
    "expired": Subject.expired,
    "expired, in a queue that nobody serves": Subject.expired_where_nobody_serves,
    "cancelled before it was reserved": Subject.cancelled,
    "stopped in its launch": Subject.stopped_in_its_launch,
    "stopped, while its handler failed": Subject.stopped_while_it_failed,
    "stopped, its launch died": Subject.stopped_with_its_launch,
    "stopped, released": Subject.given_back,
}


@pytest.mark.parametrize("row", ENDS, ids=[row[0] for row in ENDS])
def test_an_end_leads_where_the_table_says_and_frees_what_it_says(
    store: RedisStore, person: MessageActions, look: Looking, row: list[str]
) -> None:
    end, _, _, place, *columns = row
    subject = Subject(store, person, look)
    WAYS[end](subject)
    lists = {name: look.listed(name) for name in ("completed", "cancelled", "expired")}
    lists["dead_letters"] = look.ranked("dead_letters")
    assert {name: ids for name, ids in lists.items() if "m" in ids} == {place: ["m"]}
    assert look.score("in_flight", "m") is None
    assert state_of(look.row("m").timestamps).value == place.removesuffix("_letters")
    before, after = subject.before, subject.held()
    told = ["–" if not before[name] else "kept" if after[name] else gone for name, gone in FREED.items()]
    assert (told, after["progress"]) == (columns, before["progress"])


def test_the_table_has_every_script_that_ends_messages_and_the_calls_by_which_it_does() -> None:
    ends = {name for name in scripts() if re.search(r"function ended\(|'RPUSH', completed\b", code_of(name))}
    assert {row[1] for row in ENDS} == ends
    for call in {row[2] for row in ENDS}:
        of, _, method = call.partition(".")
        assert hasattr(getattr(importlib.import_module(f"pollconsumer.store.{MODULES[of]}"), of), method), call


def test_no_script_writes_by_itself_how_a_message_ended() -> None:
    writes = re.compile(r"(?:ENDING, |\.\. )'[a-z]'")
    files = {path.name: writes.findall(re.sub(r"--.*", "", path.read_text("utf-8"))) for path in LUA.rglob("*.lua")}
    assert {name: found for name, found in files.items() if found} == {}


def waits_for_its_place(store: RedisStore, launch: Launch, _: MessageActions) -> None:
    store.enqueue([message("m", concurrency="c", limit=1), message("n", concurrency="c", limit=1)])
    launch.reserve(2)


def waits_for_its_rate(store: RedisStore, launch: Launch, _: MessageActions) -> None:
    store.enqueue([message("m", rate_key="r", rate="1/1h"), message("n", rate_key="r", rate="1/1h")])
    launch.reserve(2)


def is_parked(store: RedisStore, launch: Launch, _: MessageActions) -> None:
    store.enqueue([message("n")])
    launch.settle(park(launch.reserve()[0], HOUR))


def is_stopped_as_it_is_parked(store: RedisStore, launch: Launch, person: MessageActions) -> None:
    store.enqueue([message("n")])
    (reserved,) = launch.reserve()
    person.stop(QUEUE, "n")
    launch.settle(park(reserved, HOUR))


@pytest.mark.parametrize("way", [waits_for_its_place, waits_for_its_rate, is_parked, is_stopped_as_it_is_parked])
def test_what_has_ended_waits_for_nothing(
    store: RedisStore,
    person: MessageActions,
    look: Looking,
    way: Callable[[RedisStore, Launch, MessageActions], None],
) -> None:
    way(store, Launch(store), person)
    if look.listed("cancelled") == []:
        flags = look.hash("rows")["n"][rows.FLAGS]
        assert flags & (rows.PARKED | rows.WAITING | rows.BOOKED)
        person.cancel(QUEUE, "n")
    row = look.hash("rows")["n"]
    assert row[rows.FLAGS] & (rows.PARKED | rows.WAITING | rows.BOOKED) == 0
    assert row[rows.STARTED : rows.ENDED] == rows.NEVER
    assert (look.listed("cancelled"), look.members("parked"), look.lined(), look.ranked("schedule")) == (
        ["n"],
        set(),
        [],
        [],
    )


@pytest.mark.parametrize("stopped", [False, True])
def test_an_end_in_a_launch_is_of_the_instant_that_the_launch_gives(
    store: RedisStore, person: MessageActions, look: Looking, *, stopped: bool
) -> None:
    store.enqueue([message("m")])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    if stopped:
        person.stop(QUEUE, "m")
    ended = reservation.reserved_at - 5_000
    launch.settle(Settlement.dead(reservation, ended, ended, error="Fatal: no"))
    found = look.row("m").timestamps
    assert (found.cancelled_at if stopped else found.dead_at) == ended
    assert look.score("dead_letters", "m") == (None if stopped else ended)
