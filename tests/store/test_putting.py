"""Recurrences that are put at run time: what replacing one changes, when it ends, and whose name is whose."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.choices import Missed, Overlap
from pollconsumer.core.errors import BadData, NotFound
from pollconsumer.core.events import Event, RecurrenceTaken
from pollconsumer.core.lifecycle import State
from pollconsumer.core.notation.instants import datetime_of, epoch_ms
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.store.records.occurrences import id_of, occurrence_of
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.recurrences import PAGE, readable
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, UNATTENDED, AllRecurrences, Launch, Looking, die, finish, retry
from tests.store.servers import await_next_ms, server_ms, snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pollconsumer.core.recurrence import First
    from pollconsumer.store.client.connection import Command
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.recurrence_actions import Occurred

MOVER = Claim("mover::0", "5", "mover:")
NAME = "check:42"
CHECK = Recurrence(NAME, "handler", every=3600, queue=QUEUE, payload={"url": "a"}, at_run_time=True)
NIGHTLY = replace(CHECK, every=None, cron="30 2 * * *", timezone="Europe/Paris")


class Acting:
    """A program that puts, and a launch that ticks and handles."""

    def __init__(self, store: RedisStore) -> None:
        self.store, self.recurring, self.look = store, AllRecurrences(store.wire, NAMESPACE), Looking(store)
        store.maintenance.announce(MOVER, QUEUE)
        store.producer.register(QUEUE)
        self.launch = Launch(store)
        self.events = list[Event]()

    def put(self, recurrence: Recurrence, first: First = "now") -> None:
        self.recurring.put([(recurrence, first)])

    def next(self, name: str = NAME) -> int | None:
        found = self.recurring.find(name).next
        return None if found is None else epoch_ms(found)

    def tick(self, queue: str = QUEUE, attended_since: int = 0) -> int:
        return self.recurring.tick(MOVER, queue, lambda _: attended_since, self.events.append)

    def come_due(self, hours: float, name: str = NAME) -> int:
        """Let so many hours pass, as far as a recurrence can tell."""
        instant = (self.look.score("next_instants", name) or 0) - int(hours * HOUR)
        self.store.wire.command("ZADD", self.look.key("next_instants"), instant, name)
        return instant

    def handle(self, result: str = "") -> None:
        self.launch.step(settled=[finish(each, result) for each in self.launch.reserve(100)])

    def history(self) -> list[Occurred]:
        return self.recurring.history(self.recurring.find(NAME), 100)

    def snapshot_of(self, word: str) -> dict[str, Any]:
        """What is kept of the one recurrence."""
        return {name.removeprefix(f"{NAME}:"): held for name, held in self.look.hash(word).items()}

    def snapshot(self) -> dict[str, Any]:
        return snapshot(self.store.wire)


@pytest.fixture
def act(store: RedisStore) -> Acting:
    return Acting(store)


# Where one begins


def test_a_new_one_is_enqueued_at_once_and_then_a_period_later(act: Acting) -> None:
    act.put(CHECK)
    began = act.next()
    assert began is not None
    assert 0 <= server_ms(act.store.wire) - began < HOUR
    assert act.tick() == 1
    assert act.next() == began + HOUR


def test_a_new_one_begins_with_the_rules_next_instant_or_from_an_instant_on(act: Acting) -> None:
    now = server_ms(act.store.wire)
    act.put(CHECK, "next")
    assert act.next() == (now // HOUR + 1) * HOUR
    for first, expected in ((now + 5 * HOUR + 7, now + 5 * HOUR + 7), (now - 3 * HOUR + 500_007, now + 500_007)):
        act.put(replace(CHECK, name=f"x{first}"), first)
        assert act.next(f"x{first}") == expected
    act.put(replace(NIGHTLY, name="cron"), now + 40 * 24 * HOUR)
    assert act.next("cron") == NIGHTLY.next_after(now + 40 * 24 * HOUR - 1)


def test_periods_count_from_the_first_instant_however_late_each_is_enqueued(act: Acting) -> None:
    act.put(replace(CHECK, missed=Missed.SKIP), 1)
    act.come_due(0.5)
    act.come_due(1000)
    act.tick(attended_since=UNATTENDED)
    following = act.next()
    assert following is not None
    assert (following - 1 + HOUR // 2) % HOUR == 0
    assert 0 < following - server_ms(act.store.wire) <= HOUR


def test_one_with_a_name_as_long_as_it_may_be_yields_ids_that_are_valid(act: Acting) -> None:
    name = ("a:@+" * 25)[:100]
    act.put(replace(CHECK, name=name))
    assert act.tick() == 1
    (message,) = act.launch.reserve()
    assert len(message.id) <= 128
    occurrence = occurrence_of(message.id)
    assert occurrence is not None
    assert occurrence.recurrence.decode() == name


def test_names_that_contain_instants_are_told_from_their_occurrences() -> None:
    inner = id_of("x", 1_700_000_000_000)
    for name in ("x", inner, "x@", "@x", "a@b"):
        for instant in (1_700_000_000_000, 1_700_000_000_123):
            found = occurrence_of(id_of(name, instant).encode())
            assert found == (name.encode(), instant)
    for other in (b"x", b"@2026-01-01T00:00:00Z", b"x@yesterdayZ", b"x@2026-01-01T00:00:00", b"x@0001-01-01T00:00:00Z"):
        assert occurrence_of(other) is None


# Replacing


def test_putting_one_as_it_is_changes_nothing(act: Acting) -> None:
    act.put(CHECK)
    act.put(replace(NIGHTLY, name="n", created_by="ada", times=3), "next")
    act.put(replace(CHECK, name="ended", until=datetime_of(1)))
    act.store.wire.command("ZADD", act.look.key("recurrences_ended"), 1, "ended")
    before = act.snapshot()
    firsts: list[First] = ["now", "next", server_ms(act.store.wire) + 5]
    for first in firsts:
        act.put(replace(CHECK, payload={"url": "a"}), first)
        act.put(replace(NIGHTLY, name="n", created_by="ada", times=3), first)
        act.put(replace(CHECK, name="ended", until=datetime_of(1)), first)
    assert act.snapshot() == before


@pytest.mark.parametrize(
    "change",
    [
        {"payload": {"url": "b"}},
        {"handler": "other"},
        {"priority": 7},
        {"missed": Missed.ALL},
        {"overlap": Overlap.SKIP},
        {"headers": {"trace": "1"}},
        {"created_by": "ben"},
        {"times": 5},
        {"until": datetime_of(4_000_000_000_000)},
    ],
)
def test_what_does_not_change_the_rule_moves_no_instant(act: Acting, change: dict[str, Any]) -> None:
    act.put(CHECK, "next")
    due, created = act.next(), readable(act.recurring.find(NAME)).created
    act.put(replace(CHECK, **change))
    assert act.next() == due
    assert readable(act.recurring.find(NAME)) == replace(CHECK, **change, created=created)


@pytest.mark.parametrize("change", [{"every": 1800}, {"every": None, "cron": "* * * * *"}])
def test_one_with_another_rule_begins_again_and_what_is_due_stays_due(act: Acting, change: dict[str, Any]) -> None:
    act.put(CHECK, server_ms(act.store.wire) + 10 * HOUR)
    act.put(replace(CHECK, **change))
    assert 0 <= server_ms(act.store.wire) - (act.next() or 0) < HOUR
    due = act.come_due(5)
    act.put(CHECK, "next")
    assert act.next() == due


@pytest.mark.parametrize("queue", [QUEUE, "elsewhere"])
def test_one_that_is_put_with_another_period_while_it_is_due_is_aligned_by_that(act: Acting, queue: str) -> None:
    act.store.maintenance.announce(MOVER, "elsewhere")
    act.put(replace(CHECK, missed=Missed.ALL))
    due = act.come_due(2.5)
    act.put(replace(CHECK, every=7200, missed=Missed.ALL, queue=queue), "next")
    aligned = (server_ms(act.store.wire) // (2 * HOUR) + 1) * 2 * HOUR
    assert (act.next(), act.tick(queue)) == (due, 3)
    assert [epoch_ms(each.instant) for each in act.history()][::-1] == [due, due + HOUR, due + 2 * HOUR]
    assert act.next() == aligned


def test_all_that_is_due_stays_due_however_often_another_period_is_put(act: Acting) -> None:
    rule = replace(CHECK, missed=Missed.ALL)
    act.put(rule)
    due = act.come_due(2.5)
    for every in (7200, 1800, 60):
        act.put(replace(rule, every=every), "next")
    assert act.tick() == 3
    assert act.next() == (server_ms(act.store.wire) // 60_000 + 1) * 60_000
    assert act.snapshot_of("recurrence_counters").keys() == {"enqueued", "last", "instants"}
    assert due


def test_one_that_is_paused_while_another_period_waits_for_what_is_due_goes_on_with_that(act: Acting) -> None:
    act.put(CHECK)
    act.come_due(2.5)
    act.put(replace(CHECK, every=7200), "next")
    act.recurring.pause(act.recurring.find(NAME))
    act.recurring.resume(act.recurring.find(NAME))
    assert act.next() == (server_ms(act.store.wire) // (2 * HOUR) + 1) * 2 * HOUR
    assert act.tick() == 0


def test_what_is_due_by_a_definition_that_cannot_be_read_is_left_out(act: Acting) -> None:
    act.put(replace(CHECK, missed=Missed.ALL))
    due = act.come_due(2.5)
    act.store.wire.command("HSET", act.look.key("recurrence_counters"), f"{NAME}:before", b"x y z\n1 2 {}\n\n9 9")
    assert act.tick() == 3
    assert epoch_ms(act.history()[-1].instant) == due


@pytest.mark.parametrize("change", [{"payload": {"url": "b"}}, {"every": 60}])
def test_no_occurrence_of_a_definition_is_enqueued_once_another_was_put(act: Acting, change: dict[str, Any]) -> None:
    """It is put between a mover's look and its script."""
    act.put(CHECK)
    act.come_due(1)

    def put(_now_ms: int) -> int:
        act.put(replace(CHECK, **change))
        return UNATTENDED

    assert act.recurring.tick(MOVER, QUEUE, put, act.events.append) == 0
    assert act.tick() >= 1
    assert [message.payload for message in act.launch.reserve()][-1] == json.dumps(
        change.get("payload", CHECK.payload)
    ).encode()


# A clock that is set back


def test_one_that_has_begun_goes_on_with_its_next_period_once_the_clock_was_set_back(act: Acting) -> None:
    act.put(CHECK)
    assert act.tick() == 1
    was = act.come_due(-48) - HOUR
    assert act.next() == was + HOUR
    act.recurring.begin_anew(MOVER, QUEUE)
    following = act.next()
    assert following is not None
    assert 0 < following - server_ms(act.store.wire) <= HOUR
    assert (was - following) % HOUR == 0
    act.recurring.begin_anew(MOVER, QUEUE)
    assert act.next() == following


def test_one_that_has_not_begun_keeps_the_instant_from_which_it_was_put(act: Acting) -> None:
    first = server_ms(act.store.wire) + 48 * HOUR
    act.put(CHECK, first)
    act.recurring.begin_anew(MOVER, QUEUE)
    assert act.next() == first


@pytest.mark.parametrize("enqueued", [0, 1])
def test_one_that_was_put_before_the_clock_was_set_back_begins_when_it_is_put_again_unless_it_has(
    act: Acting, enqueued: int
) -> None:
    act.put(CHECK, server_ms(act.store.wire) + 3 * HOUR)
    definition = act.look.hash("recurrences")[NAME]
    created = b'"created":%d}' % (server_ms(act.store.wire) + 2 * HOUR)
    stored = definition[: definition.rindex(b'"created"')] + created
    act.store.wire.command("HSET", act.look.key("recurrences"), NAME, stored)
    act.store.wire.command("HSET", act.look.key("recurrence_counters"), f"{NAME}:enqueued", enqueued)
    due = act.next()
    act.put(CHECK)
    assert act.tick() == 1 - enqueued
    assert (act.next() == due) == bool(enqueued)


def test_one_of_another_queue_moves_there_and_what_is_due_stays_due(act: Acting) -> None:
    act.store.maintenance.announce(MOVER, "elsewhere")
    act.put(CHECK, "next")
    due = act.come_due(1)
    act.put(replace(CHECK, queue="elsewhere"), "next")
    assert (act.recurring.find(NAME).queue, act.next()) == ("elsewhere", due)
    assert len(list(act.recurring.statuses(lambda _: None))) == 1
    assert (act.tick(), act.tick("elsewhere")) == (0, 1)


def test_one_that_moves_is_in_one_queue_at_least_whatever_cuts_that_off(
    act: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    act.put(CHECK, "next")
    due, all_, trips = act.come_due(1), act.store.wire.all, list[int]()

    def cut_off(commands: Sequence[Command], **options: Any) -> list[Any]:
        if not trips:
            raise KeyboardInterrupt
        trips.pop()
        return all_(commands, **options)

    for number in count():
        trips[:] = range(number)
        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr(act.store.wire, "all", cut_off)
            act.put(replace(CHECK, queue="elsewhere"), "next")
            break
        assert act.next() == due
    found = list(act.recurring.statuses(lambda _: None))
    assert [(each.queue, each.next) for each in found] == [("elsewhere", datetime_of(due))]


def test_one_that_is_not_enabled_is_listed_and_yields_nothing_until_it_is(act: Acting) -> None:
    act.put(replace(CHECK, enabled=False))
    assert act.next() is None
    assert not act.recurring.find(NAME).ended
    act.put(CHECK)
    assert act.tick() == 1


@pytest.mark.parametrize("to", ["next", "a later instant"])
def test_another_period_that_is_put_in_a_pause_begins_as_it_says_once_it_is_resumed(act: Acting, to: str) -> None:
    act.put(CHECK)
    act.tick()
    act.recurring.pause(act.recurring.find(NAME))
    first: First = "next" if to == "next" else server_ms(act.store.wire) // 1000 * 1000 + 100 * HOUR
    act.put(replace(CHECK, every=600), first)
    act.put(replace(CHECK, every=600, payload={"url": "b"}))  # of the same rule: it goes on
    act.recurring.resume(act.recurring.find(NAME))
    instant = act.next()
    assert instant is not None
    if first == "next":
        assert instant % 600_000 == 0
        assert 0 < instant - server_ms(act.store.wire) <= 600_000
    else:
        assert instant == first


def test_a_person_who_paused_is_obeyed_whatever_is_put_and_periods_go_on_as_they_were(act: Acting) -> None:
    act.put(CHECK)
    began = act.next() or 0
    act.recurring.pause(act.recurring.find(NAME))
    act.put(replace(CHECK, payload={}))
    assert act.recurring.find(NAME).paused
    assert act.tick() == 0
    act.recurring.resume(act.recurring.find(NAME))
    assert act.next() == began + HOUR


# Ends


def test_one_ends_after_so_many_occurrences_even_if_more_were_missed(act: Acting) -> None:
    act.put(replace(CHECK, times=3, missed=Missed.ALL))
    assert act.tick() == 1
    act.come_due(50)
    assert act.tick() == 2
    standing = act.recurring.find(NAME)
    assert (standing.next, standing.ended, standing.enqueued) == (None, True, 3)
    act.recurring.pause(standing)
    act.recurring.resume(act.recurring.find(NAME))
    assert act.recurring.find(NAME).ended


def test_one_ends_at_its_latest_instant_and_one_that_begins_after_that_has_ended(act: Acting) -> None:
    now = server_ms(act.store.wire)
    act.put(replace(CHECK, until=datetime_of(now + HOUR - 1000)))
    assert act.tick() == 1
    assert act.recurring.find(NAME).ended
    act.put(replace(CHECK, name="late", until=datetime_of(now - 1)))
    assert act.recurring.find("late").ended
    assert act.tick() == 0


@pytest.mark.parametrize("limit", [{"times": 1}, {"until": datetime_of(1)}])
def test_one_that_is_limited_afterwards_ends_and_one_whose_limit_is_lifted_begins_again(
    act: Acting, limit: dict[str, Any]
) -> None:
    act.put(CHECK)
    act.tick()
    act.put(replace(CHECK, **limit))
    assert act.recurring.find(NAME).ended
    act.put(replace(CHECK, **limit, payload={}))
    assert act.recurring.find(NAME).ended
    await_next_ms(act.store.wire)  # an instant has one occurrence
    act.put(CHECK)
    assert act.tick() == 1


def test_of_those_that_have_ended_the_newest_are_kept(act: Acting) -> None:
    ended = act.look.key("recurrences_ended")
    act.put(replace(CHECK, name="oldest", until=datetime_of(1)))
    act.put(replace(CHECK, name="paused", until=datetime_of(1)))
    act.store.wire.command(
        "ZADD", ended, 1, "oldest", 2, "paused", *(each for n in range(9998) for each in (3, f"n{n}"))
    )
    act.put(replace(CHECK, until=datetime_of(1)))
    with pytest.raises(NotFound):
        act.recurring.find("oldest")
    assert act.recurring.find("paused").ended
    act.put(replace(CHECK, name="paused"))
    assert act.look.score("recurrences_ended", "paused") is None


# Names of configurations


def test_the_name_of_a_configuration_is_refused_and_nothing_of_the_batch_is_put(act: Acting) -> None:
    act.recurring.define("consumer:x", ["elsewhere"], [Recurrence("f", "h", every=60.0, queue="elsewhere")], print)
    act.store.producer.register("elsewhere")
    before = act.snapshot()
    with pytest.raises(BadData, match=r"cannot put recurrence: f; a configuration defines one of that name"):
        act.recurring.put([(CHECK, "now"), (replace(CHECK, name="f"), "now")])
    assert act.snapshot() == before


def test_a_script_refuses_a_name_that_a_configuration_has_taken_meanwhile(act: Acting) -> None:
    act.recurring.define("consumer:x", [QUEUE], [Recurrence("f", "h", every=60.0, queue=QUEUE)], print)
    before = act.snapshot()
    text, rule = CHECK.as_put()
    arguments = [NAME, text, rule, 1, "", "", "", "f", text, rule, 1, "", "", ""]
    assert act.store.wire.run("put", act.store.keys, QUEUE, arguments) == [b"f"]
    assert act.snapshot() == before


@pytest.mark.parametrize("queue", [QUEUE, "elsewhere"])
def test_a_configuration_leaves_a_name_that_was_put_alone_and_one_line_says_so(act: Acting, queue: str) -> None:
    act.put(CHECK)
    told = list[Event]()
    mine = [Recurrence(name, "h", every=60.0, queue=queue) for name in (NAME, "mine")]
    for recurrences in (mine, mine, []):
        told.clear()
        act.recurring.define("consumer:x", [QUEUE, "elsewhere"], recurrences, told.append)
        assert readable(act.recurring.find(NAME)).at_run_time
        assert (RecurrenceTaken(NAME, QUEUE) in told) == bool(recurrences)
        assert len(told) == 1  # the last says that the other is removed


def test_a_name_that_is_put_while_a_launch_defines_it_stays_as_it_was_put(act: Acting) -> None:
    act.put(CHECK)
    file = Recurrence(NAME, "h", every=60.0, queue=QUEUE)
    removed, contested, taken = act.store.wire.run(
        "define", act.store.keys, QUEUE, ["consumer:x", NAME, file.as_json(), 1]
    )
    assert (removed, contested, taken) == ([], [], [NAME.encode()])
    assert readable(act.recurring.find(NAME)).at_run_time


def test_a_launch_of_a_version_that_kept_no_names_of_its_owners_removes_what_it_defines_no_more(act: Acting) -> None:
    act.recurring.define("consumer:x", [QUEUE], [Recurrence("f", "h", every=60.0, queue=QUEUE)], print)
    act.store.wire.command("DEL", act.look.key("recurrences_of_owners"))
    act.recurring.define("consumer:x", [QUEUE], [], lambda _: None)
    with pytest.raises(NotFound):
        act.recurring.find("f")


# Many


def test_many_are_put_listed_and_ticked(act: Acting) -> None:
    most = 2 * PAGE
    act.recurring.put((replace(CHECK, name=f"c{n}"), "now") for n in range(most))
    listed = [each.name for each in act.recurring.statuses(lambda _: None)]
    assert sorted(listed) == sorted(f"c{n}" for n in range(most))
    came = 0
    while enqueued := act.tick():
        came += enqueued
    assert came == most


# What became of them


def test_the_last_completed_occurrence_by_its_instant_is_kept_with_its_result(act: Acting) -> None:
    act.put(replace(CHECK, missed=Missed.ALL), "next")
    act.come_due(3)
    assert act.tick() == 3
    first, second, third = act.launch.reserve(3)
    act.launch.settle(finish(second, '{"n": 2}'))
    previous = act.recurring.find(NAME).previous
    assert previous is not None
    assert previous.result == {"n": 2}
    assert occurrence_of(second.id) == (NAME.encode(), epoch_ms(previous.instant))
    assert previous.completed >= previous.instant
    act.launch.settle(finish(first, '{"n": 1}'), die(third))
    assert act.recurring.find(NAME).previous == previous
    assert act.store.previous(QUEUE, [b"none", NAME.encode()]) == [None, previous]


def test_one_without_a_result_is_the_previous_one_too(act: Acting) -> None:
    act.put(CHECK)
    act.tick()
    act.launch.complete(*act.launch.reserve())
    previous = act.recurring.find(NAME).previous
    assert previous is not None
    assert previous.result is None


def test_an_occurrence_whose_recurrence_was_removed_leaves_nothing(act: Acting) -> None:
    act.put(CHECK)
    act.tick()
    message = act.launch.reserve()
    act.recurring.remove(NAME)
    act.launch.settle(finish(message[0], "1"))
    assert act.look.hash("recurrence_counters") == {}


def test_a_stale_completion_is_not_the_previous_one(act: Acting) -> None:
    act.put(CHECK)
    act.tick()
    (message,) = act.launch.reserve()
    act.launch.settle(retry(message))
    assert act.launch.settle(finish(message, "1")).stale == [message.id]
    assert act.recurring.find(NAME).previous is None


def test_history_tells_what_became_of_each_occurrence_newest_first(act: Acting) -> None:
    act.put(replace(CHECK, missed=Missed.ALL), "next")
    instant = act.come_due(3)
    act.tick()
    first, second = act.launch.reserve(2)
    act.launch.settle(finish(first, "1"), die(second))
    standing = act.recurring.find(NAME)
    history = act.recurring.history(standing, 100)
    assert [epoch_ms(each.instant) for each in history] == [instant + 2 * HOUR, instant + HOUR, instant]
    assert [each.message.state for each in history] == [State.READY, State.DEAD, State.COMPLETED]
    assert [each.message.result for each in history] == [None, None, 1]
    assert history[0].late_seconds is None
    assert (history[2].late_seconds or 0) >= 2 * 3600
    assert act.recurring.history(standing, 1) == history[:1]
    assert standing.last_state is State.READY


def test_history_has_at_most_a_hundred_of_a_day(act: Acting) -> None:
    for every in (60, 61):
        act.put(replace(CHECK, every=every, missed=Missed.ALL), "next")
        act.come_due(5)
        assert act.tick() > 90  # the periods have some instants in common
        act.come_due(-1)  # so that none is due when the rule is replaced, however late in its minute the test began
    assert len(act.look.hash("recurrence_counters")[f"{NAME}:instants"]) == 600
    act.come_due(-20)
    act.put(replace(CHECK, name="old"), "next")
    act.come_due(40, "old")
    act.tick()
    now = server_ms(act.store.wire)
    kept = [epoch_ms(each.instant) for each in act.recurring.history(act.recurring.find("old"), 100)]
    assert all(instant >= now - 25 * HOUR for instant in kept)


def test_triggering_enqueues_an_occurrence_beside_those_of_the_rule(act: Acting) -> None:
    act.put(replace(CHECK, enabled=False, times=1))
    message_id = act.recurring.trigger(act.recurring.find(NAME))
    assert message_id.startswith(f"{NAME}@")
    (message,) = act.launch.reserve()
    assert (message.name, message.handler, message.payload) == (message_id, "handler", b'{"url": "a"}')
    act.launch.settle(finish(message, "7"))
    standing = act.recurring.find(NAME)
    assert standing.previous is not None
    assert (standing.previous.result, standing.enqueued, standing.last) == (7, 0, message_id)
    assert [each.message.id for each in act.recurring.history(standing, 9)] == [message_id]


def test_triggering_what_was_removed_meanwhile_enqueues_nothing_and_says_so(act: Acting) -> None:
    act.put(CHECK)
    standing = act.recurring.find(NAME)
    act.recurring.remove(NAME)
    with pytest.raises(NotFound, match=NAME):
        act.recurring.trigger(standing)
    assert act.launch.reserve() == []


def test_an_occurrence_that_is_made_again_has_no_result_of_the_forgotten_one(
    act: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.store.queues.maintenance.KEEP_FINISHED", 0)
    act.put(CHECK)
    instant = act.look.score("next_instants", NAME) or 0
    act.tick()
    act.handle("1")
    assert act.look.hash("results") == {id_of(NAME, instant): b"1"}
    act.store.maintenance.trim(QUEUE)
    act.look.forget_ids()
    act.store.wire.command("ZADD", act.look.key("next_instants"), instant, NAME)
    assert act.tick() == 1
    assert id_of(NAME, instant) not in act.look.hash("results")


def test_removing_forgets_all_of_it(act: Acting) -> None:
    before = set(act.snapshot())
    act.put(replace(CHECK, times=1))
    act.tick()
    act.handle("1")
    act.recurring.pause(act.recurring.find(NAME))
    act.recurring.remove(NAME)
    left = {key.rpartition(":")[2] for key in set(act.snapshot()) - before}
    assert not left & {"n", "nz", "nc", "recurrences_ended", "recurrences_unreadable", "recurrence_owners"}
    with pytest.raises(NotFound):
        act.recurring.find(NAME)
