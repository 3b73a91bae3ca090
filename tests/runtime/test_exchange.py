"""A launch's exchange with the store: what goes with the beginning of a message that is handled at most once, and with
a step that waits for messages."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from pollconsumer.core.durations import MarginRule
from pollconsumer.core.events import QueueLeftOut, ReservationsLost
from pollconsumer.core.messages.message_steps import Progress
from pollconsumer.interface.memory_store import MemoryOpener, VirtualClock
from pollconsumer.interface.sandbox import SandboxLaunch
from pollconsumer.runtime.handling.handler import Handler, Hooks
from pollconsumer.runtime.launch.launch import LaunchPlan
from pollconsumer.runtime.launch_maintenance import EVERY
from pollconsumer.runtime.session import contexts
from pollconsumer.runtime.session.contexts import Deliveries, Predecessors, ProgressReporter
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.runtime.session.pace import ConsumerOptions
from pollconsumer.runtime.session.settlements import Settlements
from pollconsumer.store.leases import Group
from pollconsumer.store.records.steps import Kept, Limits, Retention
from tests.conftest import NAMESPACE
from tests.runtime.test_promoting import MIDNIGHT
from tests.store.acting import Looking, finish, message
from tests.store.test_enqueue_new import scripts_sent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pollconsumer.core.events import Event
    from pollconsumer.store.records.reservations import Reservation

QUEUES = ("mail", "other")


class Exchanging:
    def __init__(
        self,
        limits: Mapping[str, Limits] | None = None,
        keeping: Mapping[str, Retention] = MappingProxyType({}),
    ) -> None:
        self.clock = clock = VirtualClock(MIDNIGHT)
        self.opener = MemoryOpener(NAMESPACE, clock)
        group, plan = Group("consumer", QUEUES, 1), LaunchPlan(60.0, 10.0)
        self.told: list[Event] = []
        self.launch = launch = SandboxLaunch(self.opener, group, plan, clock, self.told.append)
        self.reporting = ProgressReporter(launch, 7200.0)
        reserved: deque[Reservation] = deque()
        self.predecessors = Predecessors(launch, reserved)
        context_of = Deliveries(launch, {}, nullcontext(), self.reporting, self.predecessors).context_of
        self.settling = Settlements(launch, context_of, {}, self.predecessors)
        options = ConsumerOptions(QUEUES, 1.0, MarginRule(1.0, 2.0, 0.25, 0.01), limits=limits or {}, keeping=keeping)
        pace: Any = SimpleNamespace(page_size=lambda *_: 9, measure=lambda _: None, margin=lambda: 0.0)
        pace.durations = SimpleNamespace(mean=None, longer_than_window=0)
        self.exchange = Exchange(launch, options, self.settling, pace, self.reporting, reserved, set())
        for queue in QUEUES:
            launch.store.maintenance.announce(launch.claim, queue)

    def reserve(self, name: str, queue: str = "mail", *, key: str = "") -> Reservation:
        self.launch.store.enqueue([message(name, queue=queue, key=key)])
        self.exchange.reserve()
        reservation = self.exchange.next()
        assert reservation is not None
        return reservation

    def complete(self, reservation: Reservation) -> None:
        flight = self.launch.progress.flight
        flight.enter(reservation, last=True)
        flight.end(reservation)
        self.settling.complete(finish(reservation))

    def look(self, queue: str = "mail") -> Looking:
        return Looking(self.launch.store, queue)


@pytest.fixture
def exchanging() -> Iterator[Exchanging]:
    exchanging = Exchanging()
    yield exchanging
    exchanging.opener.close()


def test_what_was_reserved_beside_a_queue_with_unusable_keys_is_reserved_again_uncharged(
    exchanging: Exchanging,
) -> None:
    exchanging.complete(exchanging.reserve("of other", "other"))
    store, rows = exchanging.launch.store, exchanging.look("other").key("rows")
    store.wire.all([("DEL", rows), ("SET", rows, "a text")])
    store.enqueue([message(f"of mail {n}") for n in range(2)])
    exchanging.exchange.reserve()
    reserved = [(each.id, each.attempt) for each in iter(exchanging.exchange.next, None)]
    assert reserved == [(b"of mail 0", 1), (b"of mail 1", 1)]
    assert [type(event) for event in exchanging.told] == [QueueLeftOut]


@pytest.mark.parametrize("with_a_step", [True, False])
def test_each_queue_is_trimmed_to_what_it_keeps(monkeypatch: pytest.MonkeyPatch, *, with_a_step: bool) -> None:
    monkeypatch.setattr("pollconsumer.runtime.session.exchange.TRIM_EVERY", 1)
    exchanging = Exchanging(keeping={"mail": Retention(Kept(0))})
    for queue in QUEUES:
        exchanging.complete(exchanging.reserve(f"{queue}'s", queue))
    exchanging.exchange.settle()
    if with_a_step:
        for queue in QUEUES:
            exchanging.complete(exchanging.reserve(f"{queue}'s next", queue))
        exchanging.exchange.settle()
        left = {"mail": ["mail's next"], "other": ["other's", "other's next"]}
    else:
        exchanging.exchange.release_all()
        left = {"mail": [], "other": ["other's"]}
    assert {queue: exchanging.look(queue).listed("completed") for queue in QUEUES} == left
    exchanging.opener.close()


@pytest.mark.parametrize("stale", [False, True])
def test_a_dead_letter_that_is_settled_as_others_are_reserved_is_told_unless_its_reservation_was_stale(
    exchanging: Exchanging, stale: bool
) -> None:
    told: list[str] = []
    hooks = Hooks(lambda text, _: told.append(text))
    hooks.on_dead.append(lambda context, _: told.append(context.id))
    reservation = exchanging.reserve("a")
    exchanging.settling.dead_letter(reservation, Handler("handler", lambda *_: None, hooks=hooks), ValueError("no"), 1)
    if stale:
        exchanging.launch.store.wire.command("HDEL", exchanging.look().key("rows"), "a")
    exchanging.exchange.reserve()
    exchanging.settling.call_hooks()
    assert told == ([] if stale else ["a"])


def test_of_those_begun_together_a_stale_one_is_told_and_has_not_begun(exchanging: Exchanging) -> None:
    exchanging.launch.store.enqueue([message(name) for name in "abc"])
    exchanging.exchange.reserve()
    together = [*exchanging.exchange.reserved]
    exchanging.launch.store.wire.command("HDEL", exchanging.look().key("rows"), "b")
    exchanging.exchange.begin(together)
    assert exchanging.told == [ReservationsLost(("b",))]
    assert [each.begun for each in together] == [True, False, True]


def test_a_step_that_waits_for_messages_leaves_the_reports_of_handlers_that_go_on(
    exchanging: Exchanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "CARRIED_WITHIN", 3600.0)
    going_on = exchanging.reserve("going on")
    exchanging.launch.store.enqueue([message("next")])
    exchanging.reporting.report(going_on, Progress(1))
    exchanging.exchange.reserve_when_woken(60.0)
    assert exchanging.exchange.next() is not None
    with exchanging.reporting.carried() as reports:
        assert reports == {"mail": {going_on.id: Progress(1)}}


def test_an_idle_launch_takes_the_short_way_but_for_ten_seconds_after_an_unusual_message(
    exchanging: Exchanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = scripts_sent(exchanging.launch.store.producer, monkeypatch)
    ways = []
    for n, (priority, pause) in enumerate([(0, 0), (1, 0), (1, 9_900), (0, 100), (0, 0)]):
        exchanging.launch.store.enqueue([message(f"m{n}", priority=priority)])
        sent.clear()
        exchanging.exchange.reserve_when_woken(60.0)
        assert exchanging.exchange.next() is not None
        ways.append([name for name in sent if name != "promote"])
        exchanging.clock.now_ms += pause
    # The other queue has no message; and a virtual wire passes on what follows a blocking command as a call of its own.
    short, both, long = ["reserve_one"] * 4, [*["reserve_one"] * 4, "step"], ["step", "reserve_one"] * 2
    assert ways == [short, both, long, long, short]


def test_an_idle_launch_reserves_from_a_limited_queue_within_its_limits() -> None:
    exchanging = Exchanging({"mail": Limits(max_in_flight=1)})
    exchanging.reserve("first")
    exchanging.launch.store.enqueue([message("second")])
    exchanging.exchange.reserve_when_woken(60.0)
    assert exchanging.exchange.next() is None
    exchanging.opener.close()


def test_a_repair_does_not_hold_up_messages_that_were_reserved_as_it_was_found_to_be_due(
    exchanging: Exchanging,
) -> None:
    in_flight, exchange = exchanging.reserve("in hand"), exchanging.exchange
    with patch.object(exchange, "repair", wraps=exchange.repair) as repair:
        exchanging.clock.now_ms += int(EVERY * 1000)
        exchanging.launch.store.enqueue([message("next")])
        assert exchange.reserve()
        assert exchange.next()
        exchanging.complete(in_flight)
        exchange.settle()
        repair.assert_not_called()
        assert not exchange.reserve()
        repair.assert_called_once_with()
        exchanging.clock.now_ms += int(EVERY * 1000)
        assert not exchange.reserve()
        assert repair.call_count == 2
