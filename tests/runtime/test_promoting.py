"""A launch promotes what comes due in its queues, with no mover."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.choices import Missed
from pollconsumer.core.durations import MarginRule
from pollconsumer.core.events import Event
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.core.retry import RetryIn
from pollconsumer.core.window import StopReason
from pollconsumer.interface.memory_store import MemoryOpener, VirtualClock, VirtualWire
from pollconsumer.interface.sandbox import SandboxLaunch
from pollconsumer.runtime.consumer import consume
from pollconsumer.runtime.handling.executors import Executor
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.launch.launch import LaunchPlan
from pollconsumer.runtime.launch_maintenance import repair
from pollconsumer.runtime.session import exchange
from pollconsumer.runtime.session.pace import ConsumerOptions
from pollconsumer.store.leases import Group
from pollconsumer.store.queues.outbox import pack
from pollconsumer.store.queues.redis_store import RedisStore
from tests.conftest import NAMESPACE
from tests.store.acting import QUEUE, Launch, finish, message
from tests.store.batching import OneBatch, member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pollconsumer.core.messages.message import NewMessage

MIDNIGHT = datetime(2030, 1, 1, tzinfo=UTC)
OPTIONS = ConsumerOptions(
    (QUEUE,), idle_time=5.0, margin=MarginRule(0.1, tolerance_factor=1.0, min_margin=2.0, overrun_target=1.0)
)


class Alone:
    """Launches on a store in memory, one after the other, in virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock(MIDNIGHT)
        self.opener = MemoryOpener(NAMESPACE, self.clock)
        self.store: RedisStore = self.opener.store()
        self.handled: list[tuple[str, float]] = []
        """Payloads, and when each was begun, in seconds from midnight."""
        self.events: list[Event] = []

    def handlers(self) -> dict[str, Handler]:
        def note(payload: dict[str, Any], _: object) -> None:
            self.handled.append((payload.get("name", ""), self.clock()))
            self.clock.now_ms += int(payload.get("seconds", 0) * 1000)
            if len(self.handled) <= payload.get("fails", 0):
                raise RetryIn(3)

        return {"handler": Handler("handler", note, queue=QUEUE)}

    def launch(self, recurrences: Sequence[Recurrence] = (), timeout: float = 60.0, **options: Any) -> StopReason:
        group, plan = Group("consumer", (QUEUE,), 1), LaunchPlan(timeout, 10.0)
        launch = SandboxLaunch(self.opener, group, plan, self.clock, self.events.append)
        chosen = OPTIONS._replace(longest_wait=0.8, **options)
        return launch.run(lambda launch: consume(launch, chosen, self.handlers(), recurrences, Executor(self.clock)))


@pytest.fixture
def alone() -> Iterator[Alone]:
    alone = Alone()
    yield alone
    alone.opener.close()


def payload(name: str, **more: Any) -> bytes:
    return json.dumps({"name": name} | more).encode()


def test_scheduled_messages_are_handled_at_their_due_times(alone: Alone) -> None:
    for name, delay in (("a", 500), ("b", 1500), ("c", 30_000)):
        alone.store.enqueue([message(name, delay=delay, payload=payload(name))])
    assert alone.launch() is StopReason.NO_TIME_TO_HANDLE
    assert [name for name, _ in alone.handled] == ["a", "b", "c"]
    assert [at for _, at in alone.handled] == pytest.approx([0.5, 1.5, 30.0], abs=0.01)


def _enqueue_while_idle(monkeypatch: pytest.MonkeyPatch, alone: Alone, new: NewMessage) -> list[tuple[bool, bool, int]]:
    """Enqueue ``new`` after the launch has waited once. Returns its steps, filled while it runs: whether each waited,
    and promoted, and how many messages it reserved."""
    steps: list[tuple[bool, bool, int]] = []
    step = RedisStore.step

    def recorded(store: RedisStore, *args: Any, wait: float = 0.0, promoting: Sequence[str] = (), **rest: Any) -> Any:
        waited = [each for each in steps if each[0]]
        if wait and len(waited) == 1:
            alone.store.enqueue([new])
        stepped = step(store, *args, wait=wait, promoting=promoting, **rest)
        steps.append((wait > 0, bool(promoting), len(stepped.reserved)))
        return stepped

    monkeypatch.setattr(RedisStore, "step", recorded)
    return steps


def test_a_message_that_wakes_an_idle_launch_does_not_wait_for_promoting(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = _enqueue_while_idle(monkeypatch, alone, message("a", payload=payload("a")))
    alone.launch()
    assert [name for name, _ in alone.handled] == ["a"]
    assert [each for each in steps if each[2]] == [(True, False, 1)]


def test_what_is_scheduled_while_a_launch_is_idle_is_handled_at_its_due_time(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    _enqueue_while_idle(monkeypatch, alone, message("a", delay=1_700, payload=payload("a")))
    alone.launch()
    assert [at for _, at in alone.handled] == pytest.approx([0.8 + 1.7], abs=0.01)


def test_the_step_for_a_due_time_is_sent_so_soon_that_it_arrives_then(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = RedisStore.step

    def far_away(store: RedisStore, *args: Any, **rest: Any) -> Any:
        alone.clock.now_ms += 20
        stepped = step(store, *args, **rest)
        alone.clock.now_ms += 20
        return stepped

    monkeypatch.setattr(RedisStore, "step", far_away)
    for name, delay in (("a", 500), ("b", 1500)):
        alone.store.enqueue([message(name, delay=delay, payload=payload(name))])
    alone.launch(timeout=10.0)
    assert [at for _, at in alone.handled] == pytest.approx([0.52, 1.52], abs=0.005)


def test_a_retry_is_handled_after_its_delay(alone: Alone) -> None:
    alone.store.enqueue([message("a", payload=payload("a", fails=2))])
    alone.launch()
    assert [at for _, at in alone.handled] == pytest.approx([0.0, 3.0, 6.0], abs=0.01)


def test_what_was_due_before_the_launch_is_handled_at_once_even_until_empty(alone: Alone) -> None:
    alone.store.enqueue([message("a", delay=500, payload=payload("a")), message("b", delay=90_000)])
    alone.clock.now_ms += 60_000
    assert alone.launch(until_empty=True) is StopReason.EMPTY
    assert [name for name, _ in alone.handled] == ["a"]


@pytest.mark.parametrize("missed", Missed)
def test_no_instant_behind_a_long_handler_is_a_missed_one(alone: Alone, missed: Missed) -> None:
    alone.store.enqueue([message("long", payload=payload("long", seconds=50))])
    each = Recurrence("x", "handler", every=10.0, queue=QUEUE, missed=missed, payload={"name": "tick"})
    alone.launch([each], margin=OPTIONS.margin._replace(tolerance_factor=0.0))
    assert [name for name, _ in alone.handled] == ["long", *["tick"] * 5]


@pytest.mark.parametrize(("missed", "made_up_for"), [(Missed.SKIP, 0), (Missed.ONCE, 1), (Missed.ALL, 29)])
def test_instants_without_a_launch_are_missed_ones(alone: Alone, missed: Missed, made_up_for: int) -> None:
    each = Recurrence("x", "handler", every=100.0, queue=QUEUE, missed=missed, payload={"name": "tick"})
    alone.launch([each], timeout=5.0)
    alone.clock.now_ms = alone.clock.start_ms + 2_995_000
    alone.launch([each], timeout=10.0)
    assert [at for _, at in alone.handled[:made_up_for]] == pytest.approx([2995.0] * made_up_for, abs=0.01)
    assert [at for _, at in alone.handled[made_up_for:]] == pytest.approx([3000.0], abs=0.01)


@pytest.mark.parametrize("missed", Missed)
@pytest.mark.parametrize("late", [0.001, 1.0, 60.0, 89.0])
def test_the_occurrence_of_a_launch_that_comes_at_its_instant_or_a_tick_later_is_missed_under_no_policy(
    alone: Alone, late: float, missed: Missed
) -> None:
    each = Recurrence("x", "handler", every=100.0, queue=QUEUE, missed=missed, payload={"name": "tick"})
    alone.launch([each], timeout=5.0)
    alone.clock.now_ms = alone.clock.start_ms + 3_000_000 + round(late * 1000)
    alone.launch([each], timeout=5.0)
    assert [at for _, at in alone.handled] == pytest.approx(
        [3000 + late] * (30 if missed is Missed.ALL else 1), abs=0.01
    )


def test_a_launch_that_lingers_stays_until_there_was_nothing_for_so_long(alone: Alone) -> None:
    alone.store.enqueue([message("a", delay=9_000, payload=payload("a")), message("b", delay=25_000)])
    assert alone.launch(until_empty=True, linger=10.0) is StopReason.EMPTY
    assert [name for name, _ in alone.handled] == ["a"]
    assert alone.clock() == pytest.approx(19.0, abs=0.05)


@pytest.mark.parametrize("in_flight", [False, True])
def test_it_looks_for_what_a_dead_launch_left_only_while_anything_is_in_flight(
    alone: Alone, monkeypatch: pytest.MonkeyPatch, in_flight: bool
) -> None:
    repaired: list[str] = []

    def counting(launch: Any, queue: str, *others: Any) -> int:
        repaired.append(queue)
        return repair(launch, queue, *others)

    monkeypatch.setattr(exchange, "repair", counting)
    if in_flight:
        alone.store.enqueue([message("a")])
        Launch(alone.store, slot=7).reserve()
    alone.launch()
    assert (len(repaired) > 30) == in_flight
    assert in_flight or not repaired


def test_it_sends_on_what_a_dead_launch_left_in_an_outbox(alone: Alone) -> None:
    def die_between(launch: Launch) -> None:
        (parent,) = launch.reserve()
        child = message("child", payload=payload("child"))
        launch.settle(finish(parent, outgoing=pack([child], alone.clock.now_ms)))

    alone.store.enqueue([message("parent")])
    die_between(Launch(alone.store))
    alone.launch()
    assert [name for name, _ in alone.handled] == ["child"]


def test_until_empty_handles_what_its_last_repair_recovered(alone: Alone) -> None:
    alone.store.enqueue([message("a", payload=payload("a"))])
    Launch(alone.store, slot=7).reserve(lasts_ms=0)
    alone.clock.now_ms += 1
    assert alone.launch(until_empty=True) is StopReason.EMPTY
    assert [name for name, _ in alone.handled] == ["a"]


def test_it_recovers_what_a_dead_launch_of_another_group_had_reserved(alone: Alone) -> None:
    alone.store.enqueue([message("a", payload=payload("a"))])
    Launch(alone.store, slot=7).reserve(lasts_ms=5000)
    alone.launch()
    assert [name for name, _ in alone.handled] == ["a"]
    assert alone.handled[0][1] == pytest.approx(5.0, abs=1.1)


def test_a_launch_on_a_cluster_tells_homes_of_batches_again_what_they_were_told_a_minute_before(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VirtualWire, "is_cluster", True)
    batch = OneBatch(alone.store)
    batch.add(member(0))
    batch.close(1)
    alone.launch(timeout=10.0)
    assert batch.status().state == "ended"
    batch.fail_over(1)
    for state in ("closed", "ended"):
        alone.launch()
        assert batch.status().state == state
