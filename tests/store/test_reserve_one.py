"""A launch that was idle reserves a plain message by a shorter way, and as by the longer one."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.errors import LeaseLost, PollConsumerError
from pollconsumer.interface.memory_store import MemoryOpener, VirtualClock
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Reservation
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, message, release, retry
from tests.store.servers import snapshot
from tests.store.test_enqueue_new import scripts_sent

PLAIN: list[dict[str, Any]] = [
    {},
    {"payload": b"x" * 900},
    {"key": "k"},
    {"digest": "0123456789abcdef"},
    {"expires": HOUR},
    {"headers": {"a": "b"}},
    {"key": "k", "digest": "0123456789abcdef", "expires": HOUR, "headers": {"a": "b"}},
]
UNUSUAL: list[dict[str, Any]] = [
    {"payload": b"x" * 2000},
    {"priority": 3},
    {"concurrency": "c", "limit": 1},
    {"rate_key": "r", "rate": "1/1m"},
]
ACTS = ("pause", "resume", "promote", "call", "push", "forget", "corrupt", "cancel", "marker")
STEPS: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.one_of(
    st.sampled_from([*PLAIN, *UNUSUAL, {"delay": HOUR}]).map(lambda options: ("enqueue", options)),
    st.sampled_from(["reserve", "complete", "retry", "release", *ACTS]).map(lambda name: (name, {})),
)


class History:
    """What happens in one store; a message is reserved ``plainly`` if it can be."""

    def __init__(self, *, plainly: bool) -> None:
        self.clock = VirtualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.opener = MemoryOpener(NAMESPACE, self.clock)
        self.store = self.opener.store()
        self.plainly, self.launch, self.looking = plainly, Launch(self.store), Looking(self.store)
        self.held: list[Reservation] = []
        self.told: list[Any] = []

    def take(self, n: int, name: str, options: dict[str, Any]) -> None:
        self.clock.now_ms += 7
        if name == "enqueue":
            self.store.enqueue([message(f"m{n}", **options)])
        elif name == "reserve":
            self._reserve()
        elif name == "complete":
            self.launch.complete(*self._taken())
        elif name in ("retry", "release"):
            settle = retry if name == "retry" else release
            self.launch.settle(*map(settle, self._taken()))
        else:
            self._act(name)

    def _taken(self) -> list[Reservation]:
        taken, self.held = self.held, []
        return taken

    def _act(self, name: str) -> None:
        command, key = self.store.wire.command, self.looking.key
        if name in ("pause", "resume"):
            MessageActions(self.store.wire, NAMESPACE).pause(QUEUE, paused=name == "pause")
        elif name == "promote":
            self.clock.now_ms += HOUR
            self.store.promote(self.launch.claim, QUEUE, 100)
        elif name == "call":
            command("SET", f"{key('successor_waits')}:{self.launch.claim.group}", 1)
        elif name == "marker":
            command("DEL", key("ready_marker"))
        elif name == "cancel":
            with suppress(PollConsumerError):
                MessageActions(self.store.wire, NAMESPACE).cancel(QUEUE, "m0")
        else:
            self._damage(name)

    def _damage(self, name: str) -> None:
        """As other programs do."""
        command, key = self.store.wire.command, self.looking.key
        if not (ids := command("LRANGE", key("ready"), 0, 0)):
            return
        if name == "push":
            command("RPUSH", key("ready"), ids[0])
        elif name == "forget":
            command("HDEL", key("records"), ids[0])
        else:
            command("HSET", key("records"), ids[0], b"A\0\x80\0 no line feed")

    def _reserve(self) -> None:
        stepped = self.launch.step(wanted=1, plain=self.plainly)
        if stepped.needs_full_step:
            stepped = self.launch.step(wanted=1)
        self.held += stepped.reserved
        reserved = [
            (each.id, each.row, each.payload, each.handler, each.common.options, each.common.expires, each.reserved_at)
            for each in stepped.reserved
        ]
        found = {**vars(stepped)}
        self.told.append(found | {"reserved": reserved, "dead_letters": len(stepped.dead_letters)})


@pytest.mark.crossing
@given(st.lists(STEPS, max_size=25))
def test_the_same_history_leaves_the_same_store_by_each_way(steps: list[tuple[str, dict[str, Any]]]) -> None:
    long, short = History(plainly=False), History(plainly=True)
    for n, step in enumerate(steps):
        for history in (long, short):
            history.take(n, *step)
        assert snapshot(short.store.wire) == snapshot(long.store.wire)
    assert short.told == long.told
    for history in (long, short):
        history.opener.close()


@pytest.mark.parametrize("options", PLAIN)
def test_a_plain_message_takes_the_short_way(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    launch = Launch(store)
    store.enqueue([message("a", **options), message("b")])
    Looking(store).take_marker()
    sent = scripts_sent(store.producer, monkeypatch)
    (reserved,) = launch.step(plain=True).reserved
    assert (sent, reserved.name, Looking(store).marker()) == (["reserve_one"], "a", 1)


@pytest.mark.parametrize("options", UNUSUAL)
def test_an_unusual_message_is_left_to_the_long_way(store: RedisStore, options: dict[str, Any]) -> None:
    launch = Launch(store)
    store.enqueue([message("a", **options)])
    before = snapshot(store.wire)
    assert launch.step(plain=True).needs_full_step == [QUEUE]
    assert snapshot(store.wire) == before


def test_a_message_that_was_reserved_before_is_left_to_the_long_way(store: RedisStore) -> None:
    launch = Launch(store)
    store.enqueue([message("a")])
    launch.settle(*map(release, launch.reserve()))
    assert launch.step(plain=True).needs_full_step == [QUEUE]


@pytest.mark.parametrize("act", ["cancel", "reschedule"])
def test_once_one_that_was_taken_away_is_passed_over_an_empty_queue_is_seen_by_the_short_way(
    store: RedisStore, act: str
) -> None:
    launch, person = Launch(store), MessageActions(store.wire, NAMESPACE)
    store.enqueue([message("a"), message("b")])
    if act == "cancel":
        person.cancel(QUEUE, "a")
    else:
        person.change(QUEUE, "a", delay=HOUR)
    launch.complete(*launch.reserve(2))
    assert launch.reserve() == []
    assert launch.step(plain=True).needs_full_step == []


def test_a_paused_queue_gives_nothing_by_the_short_way(store: RedisStore) -> None:
    launch = Launch(store)
    store.enqueue([message("a")])
    MessageActions(store.wire, NAMESPACE).pause(QUEUE, paused=True)
    assert launch.step(plain=True).needs_full_step == [QUEUE]
    assert Looking(store).listed("ready") == ["a"]


def test_while_a_successor_waits_nothing_is_reserved_by_the_short_way(store: RedisStore) -> None:
    launch = Launch(store)
    store.enqueue([message("a")])
    store.wire.command("SET", f"{Looking(store).key('successor_waits')}:{launch.claim.group}", 1)
    before = snapshot(store.wire)
    assert launch.step(plain=True).needs_full_step == [QUEUE]
    assert snapshot(store.wire) == before
    assert launch.step(wanted=1).successor


def test_a_stale_launch_reserves_nothing_by_the_short_way_and_wakes_another(store: RedisStore) -> None:
    stale = Launch(store)
    Launch(store, 2)
    store.enqueue([message("a")])
    Looking(store).take_marker()
    with pytest.raises(LeaseLost):
        stale.step(plain=True)
    assert (Looking(store).listed("ready"), Looking(store).marker()) == (["a"], 1)
