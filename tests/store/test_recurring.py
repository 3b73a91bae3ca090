"""Recurrences in the store: who defines them, and that what is due stays due whoever does."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from math import inf

import pytest

from pollconsumer.core.choices import After, Missed, Overlap
from pollconsumer.core.errors import LeaseLost, NotFound
from pollconsumer.core.events import (
    Event,
    QueueLeftOut,
    RecurrenceContested,
    RecurrenceRemoved,
    RecurrenceUnreadable,
)
from pollconsumer.core.messages.message import NewMessage, decoded_options
from pollconsumer.core.recurrence import Recurrence, Tick
from pollconsumer.interface.memory_store import MemoryOpener, VirtualClock
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records import rows
from pollconsumer.store.records.occurrences import id_of
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.recurrences import MAX_PAGE_RECURRENCES
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, AllRecurrences, Launch, Looking, park, unattended
from tests.store.servers import server_ms, snapshot

MOVER = Claim("mover::0", "5", "mover:")
HOURLY = Recurrence("x", "handler", every=3600.0, queue=QUEUE)
CHANGED = replace(HOURLY, every=7200.0, payload={"version": 2})
ELSEWHERE = replace(HOURLY, queue="elsewhere")
FIRST, SECOND = "consumer:first", "consumer:second"


@pytest.fixture
def recurring(store: RedisStore) -> AllRecurrences:
    for queue in (QUEUE, "elsewhere"):
        store.maintenance.announce(MOVER, queue)
    return AllRecurrences(store.wire, NAMESPACE)


class Acting:
    """Launches and a mover, and what they said."""

    def __init__(self, recurring: AllRecurrences) -> None:
        self.recurring, self.events = recurring, list[Event]()

    def launch(self, owner: str, *recurrences: Recurrence) -> None:
        self.recurring.define(owner, [QUEUE, "elsewhere"], recurrences, self.events.append)

    def move(self, queue: str = QUEUE) -> int:
        return self.recurring.tick(MOVER, queue, unattended, self.events.append)

    def owners(self) -> dict[str, tuple[str, ...]]:
        return {each.name: each.owners for each in self.recurring.statuses(lambda _: None)}


@pytest.fixture
def act(recurring: AllRecurrences) -> Acting:
    return Acting(recurring)


def come_due(look: Looking, name: str = "x", hours: int = 2) -> int:
    """Let so many hours pass, as far as a recurrence can tell."""
    due = look.score("next_instants", name)
    assert due is not None
    look._wire.command("ZADD", look.key("next_instants"), due - hours * HOUR, name)  # noqa: SLF001
    return due - hours * HOUR


LAUNCHES = list(product((FIRST, SECOND), (HOURLY, CHANGED)))


@pytest.mark.parametrize("first", LAUNCHES)
def test_what_is_due_stays_due_in_any_order_of_launches_of_two_groups_and_two_versions(
    act: Acting, look: Looking, first: tuple[str, Recurrence]
) -> None:
    for n, order in enumerate(product(LAUNCHES, repeat=3)):
        def_of = [(owner, replace(each, name=f"x{n}")) for owner, each in (first, *order)]
        act.recurring.define(def_of[0][0], [QUEUE], [def_of[0][1]], act.events.append)
        due = come_due(look, f"x{n}")
        for owner, recurrence in def_of[1:]:
            act.recurring.define(owner, [QUEUE], [recurrence], act.events.append)
            assert look.score("next_instants", f"x{n}") == due, order
        assert act.move() == 1, order
        for owner in (FIRST, SECOND):
            act.recurring.define(owner, [QUEUE], [], act.events.append)


def test_all_that_is_due_by_a_definition_that_is_replaced_stays_due_by_it_and_the_next_begins_by_its_own_rule(
    act: Acting, look: Looking, store: RedisStore
) -> None:
    every_hour = replace(HOURLY, missed=Missed.ALL)
    act.launch(FIRST, every_hour)
    due = come_due(look, hours=3)
    for period in (60.0, 1800.0, 7200.0):
        act.launch(FIRST, replace(every_hour, every=period))
    assert act.move() == 3
    launch = Launch(store)
    assert [r.id for r in launch.reserve(9)] == [id_of("x", due + n * HOUR).encode() for n in range(3)]
    assert look.score("next_instants", "x") == (server_ms(store.wire) // (2 * HOUR) + 1) * 2 * HOUR


def test_groups_that_share_a_configuration_share_its_recurrences(act: Acting, look: Looking) -> None:
    act.launch(FIRST, HOURLY)
    due = come_due(look, hours=4)
    act.launch(SECOND, HOURLY)
    act.launch(FIRST, HOURLY)
    assert look.score("next_instants", "x") == due
    assert act.owners() == {"x": (FIRST, SECOND)}


def test_a_recurrence_goes_when_its_last_owner_does(act: Acting, look: Looking) -> None:
    for owner in (FIRST, SECOND):
        act.launch(owner, HOURLY)
    act.launch(FIRST)
    assert act.owners() == {"x": (SECOND,)}
    assert act.events == []
    act.launch(SECOND)
    assert act.owners() == {}
    assert act.events == [RecurrenceRemoved("x")]
    assert look.score("next_instants", "x") is None


def absent(look: Looking, owner: str, hours: int) -> None:
    """Have an owner's last launch be so many hours ago."""
    ago = server_ms(look._wire) - hours * HOUR  # noqa: SLF001
    look._wire.command("HSET", look.key("recurrence_owners_seen"), owner, ago)  # noqa: SLF001


@pytest.mark.parametrize(("hours", "stays"), [(23, True), (25, False)])
def test_an_owner_that_has_not_launched_for_a_day_keeps_nothing_that_another_takes_out(
    act: Acting, look: Looking, hours: int, stays: bool
) -> None:
    for owner in (FIRST, SECOND):
        act.launch(owner, HOURLY)
    absent(look, FIRST, hours)
    act.launch(SECOND)
    assert act.owners() == ({"x": (FIRST,)} if stays else {})


def test_what_only_an_absent_owner_defines_stays(act: Acting, look: Looking) -> None:
    act.launch(FIRST, HOURLY)
    absent(look, FIRST, 24 * 30)
    act.launch(SECOND, replace(HOURLY, name="y"))
    act.launch(SECOND)
    assert act.owners() == {"x": (FIRST,)}


def test_an_owner_whose_name_is_part_of_another_owners_is_another_owner(act: Acting, look: Looking) -> None:
    act.launch("consumer:a,b", HOURLY)
    act.launch("consumer:a", HOURLY)
    assert act.owners() == {"x": ("consumer:a,b", "consumer:a")}
    act.launch("consumer:a")
    assert act.owners() == {"x": ("consumer:a,b",)}
    for owner in ("consumer:a,b", "consumer:a"):
        absent(look, owner, 24 * 30)
    act.launch("consumer:c")  # what those two defined is not known any more: all that there is will be looked at
    act.launch("consumer:a")
    assert act.owners() == {"x": ("consumer:a,b",)}


def test_defining_a_recurrence_as_it_was_changes_nothing_and_says_nothing(act: Acting, store: RedisStore) -> None:
    def but_for_who_was_here() -> dict[str, object]:
        return {key: held for key, held in snapshot(store.wire).items() if not key.endswith(":recurrence_owners_seen")}

    act.launch(FIRST, HOURLY)
    before = but_for_who_was_here()
    for _ in range(3):
        act.launch(FIRST, HOURLY)
    assert but_for_who_was_here() == before
    assert act.events == []


def test_what_is_due_stays_due_in_another_queue(act: Acting, look: Looking, store: RedisStore) -> None:
    act.launch(FIRST, HOURLY)
    due = come_due(look)
    act.launch(FIRST, ELSEWHERE)
    assert Looking(store, "elsewhere").score("next_instants", "x") == due
    assert act.move("elsewhere") == 1
    assert act.events[0] != RecurrenceRemoved("x")


def test_a_person_who_paused_is_obeyed_whatever_is_defined_meanwhile(act: Acting, look: Looking) -> None:
    act.launch(FIRST, HOURLY)
    act.recurring.pause(act.recurring.find("x"))
    for recurrences in ([CHANGED], [], [HOURLY]):
        act.launch(FIRST, *recurrences)
        assert look.score("next_instants", "x") is None
    assert act.recurring.find("x").paused


def test_a_pause_of_what_was_removed_meanwhile_holds_nothing_that_is_defined_later(act: Acting, look: Looking) -> None:
    act.launch(FIRST, HOURLY)
    seen = act.recurring.find("x")
    act.launch(FIRST)
    with pytest.raises(NotFound):
        act.recurring.pause(seen)
    act.launch(FIRST, HOURLY)
    assert look.score("next_instants", "x") is not None
    assert not act.recurring.find("x").paused


def test_removing_a_recurrence_leaves_what_others_were_before_though_their_names_begin_alike(
    act: Acting, look: Looking, store: RedisStore
) -> None:
    longer = replace(HOURLY, name="x longer")
    act.launch(FIRST, HOURLY, longer)
    due = (server_ms(store.wire) // HOUR + 1) * HOUR - 1  # before the next instant by its rule
    store.wire.command("ZADD", look.key("next_instants"), due, "x longer")
    act.launch(FIRST, HOURLY, replace(longer, every=7200.0))
    act.recurring.remove("x")
    act.launch(FIRST, longer)
    assert look.score("next_instants", "x longer") == due


@pytest.mark.parametrize("reserved", [False, True])
def test_none_is_enqueued_while_the_one_before_is_unfinished_where_they_may_not_overlap(
    act: Acting, look: Looking, store: RedisStore, reserved: bool
) -> None:
    act.launch(FIRST, replace(HOURLY, overlap=Overlap.SKIP, missed=Missed.ALL))
    launch = Launch(store)
    come_due(look, hours=3)
    assert act.move() == 1
    in_flight = launch.reserve() if reserved else []
    come_due(look)
    assert act.move() == 0
    launch.complete(*(in_flight or launch.reserve()))
    come_due(look)
    assert act.move() == 1


AFTER_END = replace(HOURLY, after=After.END)


IN_ORDER = {"order_key": "recurrence:x"}


def test_one_waits_behind_the_one_in_flight_and_no_second_one(act: Acting, look: Looking, store: RedisStore) -> None:
    act.launch(FIRST, replace(HOURLY, overlap=Overlap.QUEUE, missed=Missed.ALL, options=IN_ORDER))
    launch = Launch(store)
    come_due(look, hours=3)
    assert act.move() == 1
    come_due(look)
    assert act.move() == 0
    first = launch.reserve()
    assert len(first) == 1
    come_due(look, hours=3)
    assert act.move() == 1
    come_due(look)
    assert act.move() == 0
    assert launch.reserve() == []
    launch.complete(*first)
    assert [each.id for each in launch.reserve()] == [last_id(look).encode()]
    come_due(look)
    assert act.move() == 1


def test_one_that_was_reserved_and_parked_waits(act: Acting, look: Looking, store: RedisStore) -> None:
    act.launch(FIRST, replace(HOURLY, overlap=Overlap.QUEUE, missed=Missed.ALL, options=IN_ORDER))
    launch = Launch(store)
    come_due(look, hours=3)
    assert act.move() == 1
    launch.settle(*(park(each, HOUR) for each in launch.reserve()))
    come_due(look)
    assert act.move() == 0


REPLACING = replace(HOURLY, overlap=Overlap.REPLACE, missed=Missed.ALL, options=IN_ORDER)


def enqueue_one(act: Acting, look: Looking) -> str:
    """Enqueue an occurrence of five hours ago, and no later one. Returns its id."""
    act.launch(FIRST, REPLACING)
    due = int(come_due(look, hours=5))
    found = b"x", b"%d" % due, REPLACING.as_json().encode()
    wire = act.recurring._wire  # noqa: SLF001
    assert wire.all([act.recurring._recur(MOVER, REPLACING, found, Tick((due,), 0, due + HOUR))]) == [1]  # noqa: SLF001
    return last_id(look)


@pytest.mark.parametrize("reserved", [False, True])
def test_one_that_is_due_cancels_the_one_that_waits_or_stops_the_one_in_flight_and_begins_after_it(
    act: Acting, look: Looking, store: RedisStore, reserved: bool
) -> None:
    replaced, launch = enqueue_one(act, look), Launch(store)
    in_flight = launch.reserve() if reserved else []
    assert act.move() == 1
    assert [*look.hash("stops")] == ([replaced] if reserved else [])
    assert (look.row(replaced).timestamps.cancelled_at is None) == reserved
    if reserved:
        assert launch.reserve() == []
        launch.complete(*in_flight)
    assert [each.id for each in launch.reserve()] == [last_id(look).encode()]
    assert act.recurring.find("x").skipped >= 3


def test_one_that_another_launch_has_enqueued_since_the_look_is_not_replaced(
    act: Acting, look: Looking, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue_one(act, look)
    stop = AllRecurrences._stop_before  # noqa: SLF001

    def after_another(self: AllRecurrences, queue: str, name: bytes, instant: int) -> None:
        monkeypatch.undo()
        assert act.move() == 1
        stop(self, queue, name, instant)

    monkeypatch.setattr(AllRecurrences, "_stop_before", after_another)
    assert act.move() == 0
    assert [each.id for each in Launch(store).reserve()] == [last_id(look).encode()]


def test_an_occurrence_may_begin_until_so_long_after_its_instant_however_late_it_is_enqueued(
    act: Acting, look: Looking
) -> None:
    options = {"expires": 3 * 3600.0, "timeout": 30.0, "max_attempts": 2, "concurrency_key": "k"}
    act.launch(FIRST, replace(HOURLY, options=options, headers={"a": "b"}))
    due = come_due(look)
    assert act.move() == 1
    standing = act.recurring.find("x")
    assert standing.last is not None
    record, row = look.hash("records")[standing.last], look.hash("rows")[standing.last]
    _, _, stored, expires, _ = rows.content(record)
    instant = rows.due_at(row[: rows.SCHEDULED] + bytes(6) + row[rows.DUE :])
    assert (instant, expires) == (due + HOUR, due + 4 * HOUR)
    found, _ = decoded_options(stored)
    assert (found.headers, found.timeout, found.max_attempts) == ({"a": "b"}, 30.0, 2)
    assert row[rows.FLAGS] & rows.CONCURRENCY_KEY
    act.recurring.trigger(standing)
    assert act.recurring.find("x").last != standing.last


@pytest.mark.parametrize("reserved", [False, True])
def test_one_whose_period_counts_from_ends_waits_for_an_unfinished_one(
    act: Acting, look: Looking, store: RedisStore, reserved: bool
) -> None:
    act.launch(FIRST, AFTER_END)
    launch = Launch(store)
    come_due(look)
    assert act.move() == 1
    in_flight = launch.reserve() if reserved else []
    come_due(look)
    assert act.move() == 0
    looked = server_ms(store.wire)
    assert 0 <= looked + HOUR - (look.score("next_instants", "x") or 0) < 60_000
    launch.complete(*(in_flight or launch.reserve()))
    come_due(look)
    assert act.move() == 0
    assert look.score("next_instants", "x") == (look.row(last_id(look)).timestamps.ended_at or 0) + HOUR


def last_id(look: Looking) -> str:
    """The id of the last occurrence."""
    return look.hash("recurrence_counters")["x:last"].decode()


@pytest.mark.parametrize("corrupt", [None, b"", b"\0c", b"\0" * 62])
def test_whatever_is_left_of_the_last_one_lets_none_stand_still(
    act: Acting, look: Looking, store: RedisStore, corrupt: bytes | None
) -> None:
    act.launch(FIRST, AFTER_END)
    come_due(look)
    assert act.move() == 1
    last = last_id(look)
    store.wire.command("HDEL", look.key("records"), last)
    if corrupt is None:
        store.wire.command("HDEL", look.key("rows"), last)
    else:
        store.wire.command("HSET", look.key("rows"), last, corrupt)
    come_due(look, hours=3)
    assert act.move() == (corrupt is None or len(corrupt) < 62)


def test_one_that_is_redriven_between_look_and_enqueueing_has_none_beside_it(
    act: Acting, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    act.launch(FIRST, AFTER_END)
    come_due(look)
    assert act.move() == 1
    monkeypatch.setattr(AllRecurrences, "_last_ends", lambda *_: {b"x": 0})
    come_due(look, hours=3)
    assert act.move() == 0


def recur(store: RedisStore, name: str, due: int) -> int:
    """Enqueue an occurrence of a recurrence that was due at that instant when it was looked at."""
    record = rows.new_record(NewMessage("", QUEUE, "handler", b"{}"))
    script = store.wire.scripts["recur"]
    arguments = [MOVER.lease_name, MOVER.fence, name, due, due + HOUR, 0, 0, "", f"{name}@1", due, record]
    enqueued: int = store.wire.call(script, store.keys.names_for(script.keys, QUEUE), arguments)
    return enqueued


def test_what_loses_its_definition_between_look_and_enqueueing_yields_nothing(
    act: Acting, look: Looking, store: RedisStore
) -> None:
    act.launch(FIRST, HOURLY)
    due = come_due(look)
    store.wire.command("HDEL", look.key("recurrences"), "x")
    assert recur(store, "x", due) == -1
    assert look.listed("ready") == []


def test_what_is_put_right_between_look_and_putting_aside_is_not_put_aside(
    act: Acting, look: Looking, store: RedisStore
) -> None:
    act.launch(FIRST, HOURLY)
    following = look.score("next_instants", "x")
    script = store.wire.scripts["quarantine"]
    arguments = [MOVER.lease_name, MOVER.fence, "x", 1]
    store.wire.call(script, store.keys.names_for(script.keys, QUEUE), arguments)
    assert (look.score("next_instants", "x"), look.ranked("recurrences_unreadable")) == (following, [])


def test_one_that_stands_still_or_too_far_ahead_goes_on_with_the_next_launch(act: Acting, look: Looking) -> None:
    act.launch(FIRST, HOURLY)
    wire = act.recurring._wire  # noqa: SLF001
    for spoil in (
        ("ZREM", look.key("next_instants"), "x"),
        ("ZADD", look.key("next_instants"), "+inf", "x"),
        ("ZADD", look.key("next_instants"), "1e300", "x"),
        ("ZADD", look.key("next_instants"), "-inf", "x"),
        ("ZADD", look.key("next_instants"), "-1", "x"),
    ):
        wire.command(*spoil)
        act.launch(FIRST, HOURLY)
        assert HOURLY.next_after(server_ms(wire)) == look.score("next_instants", "x"), spoil


# Two versions that take turns, while an upgrade is under way


def at(hour: int, minute: int) -> Recurrence:
    return replace(HOURLY, every=None, cron=f"{minute} {hour} * * *")


@pytest.mark.parametrize("owners", [(FIRST, FIRST), (FIRST, SECOND)])
@pytest.mark.parametrize("even", [0, 1])
@pytest.mark.parametrize(
    ("first", "second", "come"),
    [
        ([at(1, 0)], [at(1, 29)], {60, 89}),
        ([at(1, 1)], [at(1, 30)], {61, 90}),
        ([], [at(1, 0)], {60}),
        ([at(1, 0)], [replace(at(1, 0), payload={"version": 2})], {60}),
        ([at(1, 0)], [replace(at(1, 30), enabled=False)], {60}),
    ],
)
def test_versions_that_take_turns_keep_none_of_each_others_occurrences_from_coming(
    owners: tuple[str, str], even: int, first: list[Recurrence], second: list[Recurrence], come: set[int]
) -> None:
    """A mover looks at each minute's beginning, before that minute's launch, and after it."""
    start = datetime(2025, 6, 1, tzinfo=UTC)
    clock = VirtualClock(start)
    wire = MemoryOpener(NAMESPACE, clock).wire()
    store, recurring, events = RedisStore(wire, NAMESPACE), AllRecurrences(wire, NAMESPACE), list[Event]()
    store.maintenance.announce(MOVER, QUEUE)
    enqueued = set()
    for minute in range(120):
        clock.now_ms = int((start + timedelta(minutes=minute)).timestamp() * 1000)
        came = recurring.tick(MOVER, QUEUE, unattended, events.append)
        clock.now_ms += 400
        version = (minute + even) % 2
        recurring.define(owners[version], [QUEUE], (first, second)[version], events.append)
        came += recurring.tick(MOVER, QUEUE, unattended, events.append)
        if came:
            enqueued.add(minute)
    assert {minute - late for minute in enqueued for late in (0, 1)} >= come
    assert len(enqueued) == len(come)
    contested = [event for event in events if isinstance(event, RecurrenceContested)]
    assert contested or (owners == (FIRST, SECOND) and not first)


def test_a_definition_that_comes_back_after_more_than_an_hour_begins_anew() -> None:
    start = datetime(2025, 6, 1, tzinfo=UTC)
    clock = VirtualClock(start)
    wire = MemoryOpener(NAMESPACE, clock).wire()
    store, recurring = RedisStore(wire, NAMESPACE), AllRecurrences(wire, NAMESPACE)
    store.maintenance.announce(MOVER, QUEUE)
    for hours, recurrences in ((0.0, [at(1, 0)]), (0.5, [at(23, 0)]), (2.0, [at(1, 0)])):
        clock.now_ms = int((start + timedelta(hours=hours)).timestamp() * 1000)
        recurring.define(FIRST, [QUEUE], recurrences, lambda _: None)
    assert recurring.tick(MOVER, QUEUE, unattended, lambda _: None) == 0
    assert recurring.find("x").next == start + timedelta(hours=25)


def test_what_was_replaced_is_kept_for_its_own_hour_whatever_is_replaced_meanwhile() -> None:
    start = datetime(2025, 6, 1, tzinfo=UTC)
    clock = VirtualClock(start)
    wire = MemoryOpener(NAMESPACE, clock).wire()
    store, recurring = RedisStore(wire, NAMESPACE), AllRecurrences(wire, NAMESPACE)
    store.maintenance.announce(MOVER, QUEUE)
    other = replace(at(22, 0), name="y")
    for hours, recurrences in (
        (0.0, [at(1, 0), other]),
        (0.5, [at(23, 0), other]),
        (1.25, [at(23, 0), replace(other, payload={"version": 2})]),
        (2.0, [at(1, 0)]),
    ):
        clock.now_ms = int((start + timedelta(hours=hours)).timestamp() * 1000)
        recurring.define(FIRST, [QUEUE], recurrences, lambda _: None)
    assert recurring.find("x").next == start + timedelta(hours=25)


def test_what_was_replaced_is_forgotten_though_nothing_is_replaced_any_more(
    act: Acting, look: Looking, store: RedisStore
) -> None:
    act.launch(FIRST, HOURLY)
    act.launch(FIRST, CHANGED)
    assert 0 < store.wire.command("PTTL", look.key("recurrences_replaced")) <= HOUR


def test_definitions_that_differ_once_are_a_change_and_in_turn_are_contested(act: Acting) -> None:
    for recurrence in (HOURLY, CHANGED, HOURLY):
        act.launch(FIRST, recurrence)
    assert act.events == []
    for recurrence in (CHANGED, HOURLY):
        act.launch(FIRST, recurrence)
    assert act.events == [RecurrenceContested("x", QUEUE)]


# What cannot be read


def garbage(store: RedisStore, look: Looking, name: str | bytes, definition: str | bytes | None, score: object) -> None:
    if definition is not None:
        store.wire.command("HSET", look.key("recurrences"), name, definition)
    store.wire.command("ZADD", look.key("next_instants"), str(score), name)


GARBAGE: list[tuple[str | bytes, str | bytes | None, object, str]] = [
    ("x", "not json", 1, "not JSON"),
    ("x", b"\xff\xfe", 1, "not JSON"),
    ("x", "[]", 1, "not a JSON object"),
    ("x", "[" * 100_000, 1, "not JSON"),
    ("x", "{}", 1, "no name"),
    ("x", None, 1, "no definition"),
    (b"\xff", HOURLY.as_json(), 1, "is one of x"),
    ("y", HOURLY.as_json(), 1, "is one of x"),
    ("x", HOURLY.as_json()[:-1] + ', "times": 3}', 1, "times"),
    ("x", HOURLY.as_json(), "-inf", "-inf"),
    ("x", HOURLY.as_json(), -1, "-1"),
    ("x", HOURLY.as_json(), "-1e300", "no rule yields"),
    ("x", replace(HOURLY, every=0.0).as_json(), 1, "every is 0.0"),
    ("x", replace(HOURLY, every=-5.0).as_json(), 1, "every is -5.0"),
    ("x", replace(HOURLY, every=float("nan")).as_json(), 1, "every is nan"),
    ("x", replace(HOURLY, every=1e9).as_json(), 1, "every is 1000000000.0"),
    ("x", replace(HOURLY, every=1e300).as_json(), 1, "every is 1e+300"),
    ("x", replace(HOURLY, every=10**400).as_json(), 1, "not a number of seconds"),
    ("x", replace(HOURLY, every=None, cron="99 * * * *").as_json(), 1, "not a cron expression"),
    ("x", replace(HOURLY, every=None, cron="* * * * *", timezone="Mars/Base").as_json(), 1, "'Mars/Base' is not known"),
    ("x", replace(HOURLY, every=None, cron="* * * * *", timezone="../etc/passwd").as_json(), 1, "is not known here"),
    ("x", replace(HOURLY, every=None, cron="* * * * *", timezone="America").as_json(), 1, "is not known here"),
    ("x", replace(HOURLY, priority=10**6).as_json(), 1, "priority"),
    ("x", replace(HOURLY, handler="a\nb").as_json(), 1, "handler name"),
    ("x", replace(HOURLY, payload={"a": "\ud800"}).as_json(), 1, "payload"),
    ("x", replace(HOURLY, payload={"a": float("inf")}).as_json(), 1, "payload"),
    ("x", HOURLY.as_json().replace('"once"', '"never"'), 1, "missed is 'never'"),
]


@pytest.mark.parametrize(("name", "definition", "score", "reason"), GARBAGE)
def test_one_that_cannot_be_read_is_said_once_shown_and_removed_and_others_go_on(
    act: Acting,
    store: RedisStore,
    look: Looking,
    name: str | bytes,
    definition: str | bytes | None,
    score: object,
    reason: str,
) -> None:
    act.launch(FIRST, replace(HOURLY, name="good"))
    come_due(look, "good")
    garbage(store, look, name, definition, score)
    assert act.move() == 1
    assert act.move() == 0
    (event,) = [each for each in act.events if isinstance(each, RecurrenceUnreadable)]
    assert reason in event.reason
    promoted = store.promote(MOVER, QUEUE, 100)
    assert not promoted.recurring
    assert 0 < promoted.next_due < inf
    shown = {standing.name: standing for standing in act.recurring.statuses(lambda _: None)}
    assert shown["good"].error is None
    assert reason in (shown[event.recurrence].error or "")
    act.recurring.remove(event.recurrence)
    assert [standing.name for standing in act.recurring.statuses(lambda _: None)] == ["good"]


def test_names_that_are_no_text_are_told_apart_and_removed_by_what_is_shown_or_by_their_bytes(
    act: Acting, store: RedisStore, look: Looking
) -> None:
    for name in (b"\xff", rb"\xff", b"\xfe"):
        garbage(store, look, name, "?", 1)
    shown = [standing.name for standing in act.recurring.statuses(lambda _: None)]
    assert shown == [r"\x5cxff", r"\xfe", r"\xff"]
    act.recurring.remove(shown[0])
    assert set(store.wire.command("HKEYS", look.key("recurrences"))) == {b"\xfe", b"\xff"}
    act.recurring.remove(shown[1])
    act.recurring.remove(os.fsdecode(b"\xff"))
    assert look.hash("recurrences") == {}


def test_those_that_cannot_be_read_do_not_starve_those_behind_them(
    act: Acting, store: RedisStore, look: Looking
) -> None:
    act.launch(FIRST, HOURLY)
    come_due(look)
    for n in range(3 * MAX_PAGE_RECURRENCES):
        garbage(store, look, f"bad{n}", "?", n)
    ticks = 0
    while not act.move():
        ticks += 1
    assert ticks == 3
    assert act.move() == 0


def test_a_later_launch_looks_again_and_what_was_due_is_still_due(
    act: Acting, store: RedisStore, look: Looking
) -> None:
    """One of a newer version, say, or on a machine that knows the time zone."""
    act.launch(FIRST, HOURLY)
    due = come_due(look)
    store.wire.command("HSET", look.key("recurrences"), "x", "of a newer version")
    act.move()
    assert look.score("next_instants", "x") is None
    store.wire.command("HSET", look.key("recurrences"), "x", HOURLY.as_json())
    store.maintenance.announce(MOVER, QUEUE)
    assert look.score("next_instants", "x") == due
    assert act.move() == 1


@pytest.mark.parametrize("definition", ["", "garbage"])
def test_an_overtaken_mover_enqueues_nothing_and_puts_nothing_aside(
    act: Acting, store: RedisStore, look: Looking, definition: str
) -> None:
    act.launch(FIRST, HOURLY)
    come_due(look)
    if definition:
        store.wire.command("HSET", look.key("recurrences"), "x", definition)
    store.maintenance.announce(MOVER._replace(fence="6"), QUEUE)
    before = snapshot(store.wire)
    with pytest.raises(LeaseLost):
        act.move()
    assert snapshot(store.wire) == before


def test_an_overtaken_mover_has_nothing_looked_at_again(act: Acting, store: RedisStore, look: Looking) -> None:
    act.launch(FIRST, HOURLY)
    come_due(look)
    store.wire.command("HSET", look.key("recurrences"), "x", "garbage")
    act.move()
    store.maintenance.announce(MOVER._replace(fence="6"), QUEUE)
    before = snapshot(store.wire)
    with pytest.raises(LeaseLost):
        store.maintenance.announce(MOVER, QUEUE)
    assert snapshot(store.wire) == before


def test_one_put_aside_is_paused_and_defined_anew_like_any_other(act: Acting, store: RedisStore, look: Looking) -> None:
    act.launch(FIRST, HOURLY)
    due = come_due(look)
    store.wire.command("HSET", look.key("recurrences"), "x", "?")
    act.move()
    act.launch(FIRST, HOURLY)
    assert look.score("next_instants", "x") == due
    store.wire.command("HSET", look.key("recurrences"), "x", "?")
    act.move()
    act.recurring.pause(act.recurring.find("x"))
    store.maintenance.announce(MOVER, QUEUE)
    assert look.score("next_instants", "x") is None


@pytest.mark.parametrize("score", ["+inf", "1e300", "1e15"])
def test_an_instant_that_never_comes_leaves_the_mover_a_wait(
    act: Acting, store: RedisStore, look: Looking, score: str
) -> None:
    garbage(store, look, "x", HOURLY.as_json(), score)
    promoted = store.promote(MOVER, QUEUE, 100)
    assert not promoted.recurring
    assert 3600 < promoted.next_due < inf
    assert act.recurring.find("x").error


def test_counts_that_are_no_numbers_stop_nothing(act: Acting, store: RedisStore, look: Looking) -> None:
    act.launch(FIRST, replace(HOURLY, missed=Missed.SKIP))
    come_due(look, hours=5)
    store.wire.command("HSET", look.key("recurrence_counters"), "x:enqueued", "many", "x:skipped", "1e9999")
    assert [standing.enqueued for standing in act.recurring.statuses(lambda _: None)] == [0]
    act.move()
    assert act.recurring.find("x").skipped >= 4


@pytest.mark.parametrize(
    "key",
    [
        "recurrences",
        "next_instants",
        "recurrence_counters",
        "recurrence_owners",
        "recurrence_owners_seen",
        "recurrences_replaced",
        "recurrences_unreadable",
    ],
)
def test_a_queue_whose_keys_are_not_ours_is_left_out_and_recurrences_of_others_are_defined(
    act: Acting, store: RedisStore, look: Looking, key: str
) -> None:
    store.wire.command("SET", look.key(key), "somebody else's")
    act.launch(FIRST, HOURLY, replace(ELSEWHERE, name="y"))
    assert [type(event) for event in act.events] == [QueueLeftOut]
    assert Looking(store, "elsewhere").score("next_instants", "y") is not None
    assert set(look.hash("recurrences") if key != "recurrences" else ()) == set()
