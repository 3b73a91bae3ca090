"""The facts from which findings follow, as they are in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.choices import Missed
from pollconsumer.core.events import Event, OccurrencesSkipped
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.store import Store
from pollconsumer.watching.examiner import UNREADABLE_READ, Examiner
from pollconsumer.watching.facts import Facts
from tests.as_set import expected_as_set
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, message, park
from tests.store.acting import AllRecurrences as Recurrences
from tests.store.servers import server_ms, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from pollconsumer.store.queues.redis_store import RedisStore
    from tests.store.servers import Server


EXPECTED = expected_as_set(recent=60.0)


@pytest.fixture
def server(valkey: Server) -> Server:
    """The one in memory does not describe itself."""
    return valkey


def examined(wire: Wire, data: Path | None = None) -> Facts:
    return Examiner(Store(wire, NAMESPACE)).facts(EXPECTED, data)


def test_a_queue_is_described_with_its_overdue_and_parked_messages(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("unknown", handler="report"), message("late", delay=HOUR), message("later", delay=HOUR)])
    launch = Launch(store)
    launch.settle(park(launch.reserve()[0], HOUR))
    store.enqueue([message("ready")])
    store.wire.command("ZADD", look.key("schedule"), (server_ms(store.wire) - 90_000) * 1000, "late")
    (queue,) = examined(store.wire).queues
    assert (queue.name, queue.counts.ready, queue.counts.overdue, queue.counts.scheduled) == (QUEUE, 1, 1, 3)
    assert queue.parked == {"report": 1}
    assert queue.counts.oldest_ready_seconds is not None
    assert queue.counts.oldest_ready_seconds < 60
    assert queue.overdue_by is not None
    assert 90 <= queue.overdue_by < 150


def test_dead_letters_of_the_last_while_are_counted(store: RedisStore, look: Looking) -> None:
    store.enqueue([message("old"), message("new"), message("a")])
    launch = Launch(store)
    launch.step(settled=[die(each) for each in launch.reserve(2)])
    store.wire.command("ZADD", look.key("dead_letters"), server_ms(store.wire) - 60_000, "old")
    (queue,) = examined(store.wire).queues
    assert queue.died == 1


def test_skipped_occurrences_are_counted_with_when_one_was_last(store: RedisStore, look: Looking) -> None:
    mover = Launch(store)
    recurring = Recurrences(store.wire, NAMESPACE)
    every = Recurrence("tick", "handler", every=60.0, queue=QUEUE, missed=Missed.ONCE)
    recurring.define("consumer:mail", [QUEUE], [every], lambda _: None)
    store.enqueue([message("a")])
    assert examined(store.wire).queues[0].skipped_ago is None
    now = server_ms(store.wire)
    store.wire.command("ZADD", look.key("next_instants"), now - 150_000, "tick")
    told: list[Event] = []
    recurring.tick(mover.claim, QUEUE, lambda _: now, told.append)
    (skipped,) = [each.messages for each in told if isinstance(each, OccurrencesSkipped)]
    (queue,) = examined(store.wire).queues
    assert queue.skipped == skipped > 0
    assert queue.skipped_ago is not None
    assert queue.skipped_ago < 60


def test_what_is_due_later_is_not_overdue(store: RedisStore) -> None:
    store.enqueue([message("late", delay=HOUR)])
    (queue,) = examined(store.wire).queues
    assert (queue.counts.overdue, queue.overdue_by, queue.parked) == (0, None, {})


def test_recurrences_come_with_those_that_define_them(store: RedisStore) -> None:
    recurrence = Recurrence("tick", "handler", every=60.0, queue=QUEUE)
    Recurrences(store.wire, NAMESPACE).define("consumer:mail", [QUEUE], [recurrence], lambda _: None)
    store.enqueue([message("a")])
    found = [(each.name, each.queue, each.owners, each.error) for each in examined(store.wire).recurrences]
    assert found == [("tick", QUEUE, ("consumer:mail",), None)]


def test_of_recurrences_at_run_time_those_that_launches_could_not_read_are_looked_at_alone(
    store: RedisStore, look: Looking
) -> None:
    recurring = Recurrences(store.wire, NAMESPACE)
    for name in ("good", *(f"bad{n:02}" for n in range(UNREADABLE_READ + 5))):
        recurring.put([(Recurrence(name, "handler", every=60.0, queue=QUEUE, at_run_time=True), "now")])
        if name != "good":
            store.wire.command("HSET", look.key("recurrences"), name, "{")
            store.wire.command("ZADD", look.key("recurrences_unreadable"), 1, name)
    facts = examined(store.wire)
    assert [each.name for each in facts.recurrences] == [f"bad{n:02}" for n in range(UNREADABLE_READ)]
    assert {each.error for each in facts.recurrences} == {"its definition is not JSON"}
    assert facts.queues[0].unreadable == UNREADABLE_READ + 5


def test_one_that_launches_define_and_could_not_read_comes_once(store: RedisStore, look: Looking) -> None:
    recurrence = Recurrence("tick", "handler", every=60.0, queue=QUEUE)
    Recurrences(store.wire, NAMESPACE).define("consumer:mail", [QUEUE], [recurrence], lambda _: None)
    store.enqueue([message("a")])
    store.wire.command("HSET", look.key("recurrences"), "tick", "{")
    store.wire.command("ZADD", look.key("recurrences_unreadable"), 1, "tick")
    assert [(each.name, each.owners) for each in examined(store.wire).recurrences] == [("tick", ("consumer:mail",))]


def test_a_server_without_append_only_file_says_so_and_its_clock_is_ours(valkey: Server) -> None:
    server = examined(valkey.wire()).server
    assert server.version.startswith(("Valkey ", "Redis "))
    assert not server.appends
    assert abs(server.skew) - server.skew_within < 0.1
    assert (server.broken, server.lacking, server.may_cut_off, server.disk_free) == ((), (), None, None)
    assert server.used_memory > 0


def test_settings_of_the_server_are_seen_as_they_are_now(valkey: Server, tmp_path: Path) -> None:
    wire = valkey.wire()
    wire.command("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "volatile-lru")
    try:
        server = examined(wire, tmp_path).server
    finally:
        wire.command("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
    assert (server.max_memory, server.policy) == (1 << 30, "volatile-lru")
    assert server.disk_free
    assert server.disk_free > 0


def test_a_server_that_refuses_writes_can_be_examined(valkey: Server) -> None:
    wire = valkey.wire()
    wire.command("CONFIG", "SET", "min-replicas-to-write", "1")
    try:
        assert examined(wire).server.version
    finally:
        wire.command("CONFIG", "SET", "min-replicas-to-write", "0")


@pytest.mark.parametrize("right", ["blpop", "pexpire"])
def test_rights_of_a_launch_that_the_user_lacks_are_named(valkey: Server, right: str) -> None:
    wire = valkey.wire()
    wire.command("ACL", "SETUSER", "some", "on", ">secret", "~*", "+@all", f"-{right}")
    try:
        user = Wire(valkey.url.replace("unix://", "unix://some:secret@"), lambda: Budget(1))
        assert examined(user).server.lacking == (right.upper(),)
        user.close()
    finally:
        wire.command("ACL", "DELUSER", "some")


def test_examining_changes_nothing(store: RedisStore) -> None:
    store.enqueue([message("a"), message("b", delay=HOUR)])
    Launch(store).reserve()
    before = snapshot(store.wire)
    examined(store.wire)
    assert snapshot(store.wire) == before
