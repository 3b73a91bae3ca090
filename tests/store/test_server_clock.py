"""Instants of a server are reckoned as if its replies took no time, however long they take."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.store.queues.redis_store import MOST_DELAYED, SHOWN_FOR, ServerClock
from pollconsumer.store.records.steps import QueueStep
from tests.store.acting import HOUR, QUEUE, Launch, message
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.records.reservations import Reservation

BEGAN = 1_700_000_000.0
"""What the server's clock shows when the monotonic clock shows 0."""


class Server:
    """A reply takes ``back`` seconds, and what is sent to it ``there``. Its clock is ``ahead`` of true time."""

    def __init__(self, there: float, back: float) -> None:
        self.clock, self.there, self.back, self.ahead = ServerClock(), there, back, 0.0

    def misses(self, at: float, *, waiting: float = 0.0, late: float = 0.0) -> float:
        """By how many seconds what is reckoned after a step that is sent at that instant is later than what the clock
        shows. The step waits, and its reply is ``late``."""
        shown = at + self.there + waiting
        instant = int((BEGAN + self.ahead + shown) * 1000)
        shown_at = self.clock.shown_at(QUEUE, instant, at, shown + self.back + late)
        return instant / 1000 - shown_at - BEGAN - self.ahead


def near(seconds: float, by: float = 0.0) -> object:
    return pytest.approx(seconds, abs=by + SHOWN_FOR + 1e-5)


@pytest.mark.parametrize("delay", [0.0, 0.0001, 0.083, 1.5])
def test_a_constant_delay_moves_no_instant(delay: float) -> None:
    server = Server(delay, delay)
    assert server.misses(0.0) == near(0.0)
    assert [server.misses(at, waiting=30.0) for at in (10.0, 50.0, 90.0)] == [near(0.0)] * 3


def test_a_reply_that_is_late_moves_no_instant_once_others_came_sooner() -> None:
    server = Server(0.02, 0.02)
    server.misses(0.0)
    assert server.misses(10.0, late=0.3) == near(0.0)
    assert server.misses(20.0, waiting=9.0, late=0.3) == near(0.0)


@pytest.mark.parametrize("step", [1.0, -1.0, 3600.0, -3600.0, 172_800.0, -172_800.0, 0.1, -0.1])
@pytest.mark.parametrize("waiting", [0.0, 30.0])
def test_a_clock_that_is_set_is_believed_at_once(step: float, waiting: float) -> None:
    server = Server(0.02, 0.02)
    server.misses(0.0)
    server.ahead = step
    if waiting and -MOST_DELAYED < step < 0:  # it cannot be told from a late reply, until one is in no doubt
        server.misses(10.0, waiting=waiting)
        waiting = 0.0
    assert server.misses(50.0, waiting=waiting) == near(0.0)


@pytest.mark.parametrize("drift", [0.0005, -0.0005])
def test_a_clock_that_drifts_is_followed(drift: float) -> None:
    server = Server(0.005, 0.005)
    for minute in range(60):
        server.ahead = 60 * minute * drift
        assert server.misses(60.0 * minute) == near(0.0, by=0.005)


def test_each_queue_may_be_on_a_server_of_its_own() -> None:
    clock = ServerClock()
    for at in (0, 10):
        assert clock.shown_at("one", 1000 * at, at, at + 0.02) == pytest.approx(at + 0.01)
        assert clock.shown_at("other", 1000 * at + 15, at, at + 0.02) == pytest.approx(at + 0.01)


DELAYS = st.floats(0.0, 0.2)


@given(DELAYS, DELAYS, st.lists(st.tuples(DELAYS, st.sampled_from([0.0, 0.0, 7.0])), min_size=1))
def test_no_instant_is_reckoned_before_its_step_was_sent_or_after_its_reply(
    there: float, back: float, steps: list[tuple[float, float]]
) -> None:
    server, took = Server(there, back), there + back
    misses = [server.misses(10.0 * n, late=late, waiting=waits) for n, (late, waits) in enumerate(steps)]
    for (late, waits), miss in zip(steps, misses, strict=True):
        assert -back - late - SHOWN_FOR - 1e-5 <= miss <= there + waits + SHOWN_FOR + 1e-5
    for (late, waits), (_, miss) in zip(steps[1:], pairwise(misses), strict=True):
        if not waits:
            assert abs(miss) <= took + late + SHOWN_FOR + 1e-5


def test_what_took_several_round_trips_lies_early_by_its_reply_and_teaches_nothing() -> None:
    clock = ServerClock()
    assert clock.shown_at(QUEUE, 0, -inf, 5.0) == 5.0
    assert clock.shown_at(QUEUE, 10_000, 9.99, 10.01) == pytest.approx(10.0)
    assert clock.shown_at(QUEUE, 20_000, -inf, 20.06) == pytest.approx(20.0)


# On a server


def far_away(store: RedisStore, delay: float) -> Callable[[], float]:
    """The clock of a launch to whose server all takes ``delay`` seconds each way. A store asks it before a step, and
    after it."""
    away = [-delay, delay]

    def now() -> float:
        away.reverse()
        return server_ms(store.wire) / 1000 - BEGAN + away[1]

    return now


@pytest.mark.parametrize("plain", [False, True])
def test_what_a_far_server_hands_out_is_reckoned_by_its_clock(store: RedisStore, plain: bool) -> None:
    launch, now = Launch(store), far_away(store, 100.0)

    def step(waiting: float) -> list[Reservation]:
        queue_step = QueueStep(QUEUE, 1)
        queue_step.single = plain
        return store.step(launch.claim, [queue_step], lasts_ms=HOUR, now=now, wait=waiting).reserved

    assert [step(0.0), step(0.0)] == [[], []]  # the server knows the script by then
    store.enqueue([message("a"), message("b")])
    for waiting in (0.0, 5.0):
        (reserved,) = step(waiting)
        at = server_ms(store.wire)
        assert reserved.server_ms(at / 1000 - BEGAN) == pytest.approx(at, abs=20_000)


def test_a_first_step_for_which_scripts_are_loaded_is_not_reckoned_too_late(store: RedisStore) -> None:
    store.enqueue([message("a")])
    launch, now = Launch(store), far_away(store, 100.0)
    store.wire.command("SCRIPT", "FLUSH")
    (reserved,) = store.step(launch.claim, [QueueStep(QUEUE, 1)], lasts_ms=HOUR, now=now).reserved
    at = server_ms(store.wire)
    assert reserved.server_ms(at / 1000 - BEGAN) == pytest.approx(at - 100_000, abs=20_000)
