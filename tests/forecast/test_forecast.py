"""The forecast decides as the consumer does, and yields the figures that were measured under launchers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from math import inf, nextafter, ulp
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from pollconsumer.core.choices import HandOff, LauncherRule, Loop
from pollconsumer.core.window import Window
from tests.as_set import rules_as_set
from tests.forecast.consumer_rules import Rules
from tests.forecast.distributions import Arrival as Sent
from tests.forecast.distributions import Demand, Lognormal
from tests.forecast.figures import Figures, Record
from tests.forecast.forecast import Forecast
from tests.forecast.launch import ForecastLaunch, ForecastQueue
from tests.runtime.test_loop import EXTENDED, arrivals
from tests.runtime.virtual import Arrival, Settings, VirtualLaunch, histogram, whole_ticks
from tests.simulation.platforms import PLATFORMS
from tests.simulation.workloads import Constant, Exponential, Pareto, Uniform, Workload

STEADY = Workload(Constant(0.01), every=0.1)
HOUR = 3600.0


@pytest.fixture(autouse=True, scope="module")
def exact() -> Iterator[None]:
    with whole_ticks():
        yield


@hypothesis_settings(max_examples=100)
@given(EXTENDED, arrivals("completed"))
def test_a_launch_of_the_forecast_starts_the_messages_that_the_consumer_starts_and_when(
    settings: Settings, script: list[Arrival]
) -> None:
    settings = replace(settings, waking=True, max_messages=None)
    consumed = VirtualLaunch(settings, script)
    consumed.handle_until_stopped()
    assert started(settings, script) == [at for _, at, _ in consumed.started]


def test_a_launch_with_a_message_in_hand_asks_again_whether_it_may_idle_as_the_consumer_does() -> None:
    settings = Settings(
        4.0, idle_time=2.4, estimated_duration=0.0, tolerance_factor=0.0, slots=2, waking=True, loop=Loop.ARTICLE
    )
    script = [Arrival(0.0, 3.9), Arrival(2.0, 0.0)]
    consumed = VirtualLaunch(settings, script)
    consumed.handle_until_stopped()
    assert started(settings, script) == [at for _, at, _ in consumed.started] == [0.0]


def test_a_wait_until_the_margin_ends_even_if_rounding_leaves_nothing_of_it() -> None:
    """After four hours, half of the clock's resolution before the margin begins."""
    begins = 14_400.0
    stop_before = nextafter(begins + 2.0, inf)
    margin = stop_before - begins - ulp(begins) / 2
    assert begins + margin < stop_before
    assert begins + (stop_before - begins - margin) == begins
    settings = Settings(
        stop_before, idle_time=2 * begins, estimated_duration=0.0, tolerance_factor=0.0, min_margin=margin, waking=True
    )
    script = [Arrival(begins, 0.0)]
    consumed = VirtualLaunch(settings, script)
    consumed.handle_until_stopped()
    assert started(settings, script) == [at for _, at, _ in consumed.started] == [begins]


def started(settings: Settings, script: list[Arrival]) -> list[float]:
    rules = rules_as_set(
        idle_time=settings.idle_time,
        estimated_duration=settings.estimated_duration,
        tolerance_factor=settings.tolerance_factor,
        min_margin=settings.min_margin,
        slots=settings.slots,
        overrun_target=settings.overrun_target,
        loop=settings.loop,
        grace=1e9,
        call=0.0,
    )
    found = Record()
    queue = ForecastQueue(Sent(each.at, each.at, Demand(each.duration)) for each in script)
    launch = ForecastLaunch(0.0, rules, queue, found)
    launch.bound(Window(0.0, settings.stop_before), settings.min_margin)
    launch.acquire(0.0, histogram(*(settings.learned or (0.0, 0))))
    assert launch.work(1e9)
    return [each.at + latency for each, latency in zip(script, found.latencies, strict=False)]


def record(name: str, workload: Workload, rules: Rules, seconds: float, seed: int = 1, **more: Any) -> Record:
    messages = workload.messages(random.Random(seed), 0.0, seconds)
    return Forecast(PLATFORMS[name], rules, messages, random.Random(seed), seconds, **more).run()


def forecast(name: str, workload: Workload, rules: Rules | None = None, hours: float = 1.0, seed: int = 1) -> Figures:
    rules = (rules or rules_as_set())._replace(timeout=PLATFORMS[name].period)
    return record(name, workload, rules, hours * HOUR, seed).figures()


BATON = rules_as_set(HandOff.BATON)


def test_under_debians_cron_a_deadline_leaves_the_gap_that_was_measured() -> None:
    """Measured with a margin of two seconds, and without what the next launch's offset adds to the window."""
    figures = forecast("debian-cron", STEADY, rules_as_set(loop=Loop.ARTICLE, min_margin=2.0))
    assert 5.9 < figures.gap.p50 + 1.6 < 7.9
    assert 0.89 < figures.coverage < 0.94
    assert (figures.launches, figures.dropped, figures.overruns) == (60, 0, 0)


@pytest.mark.parametrize("name", ["debian-cron", "cronie", "systemd"])
def test_a_last_wait_until_a_learned_margin_covers_97_percent_under_a_deadline(name: str) -> None:
    assert forecast(name, STEADY, hours=0.5).coverage > 0.97


def test_under_debians_cron_a_baton_leaves_none() -> None:
    figures = forecast("debian-cron", STEADY, BATON)
    assert figures.gap.most < 0.01
    assert figures.coverage > 0.999


PARALLEL = LauncherRule.PARALLEL
"""As launches behave that do not know that their launcher drops ticks."""


def test_busybox_drops_each_second_tick_unless_launches_are_gone_before_49() -> None:
    assert forecast("busybox", STEADY, rules_as_set(launcher=PARALLEL), hours=0.2).dropped == 6
    assert (
        forecast("busybox", STEADY, rules_as_set(launcher=PARALLEL, min_margin=12.0, idle_time=1.0), hours=0.2).dropped
        == 0
    )
    figures = forecast("busybox", STEADY, hours=0.5)
    assert figures.dropped == 0
    assert figures.coverage > 0.78


@pytest.mark.parametrize("name", ["supercronic", "flock", "kudu", "nomad"])
def test_a_baton_costs_each_second_tick_where_ticks_are_dropped_unless_the_launch_knows(name: str) -> None:
    assert forecast(name, STEADY, BATON._replace(launcher=PARALLEL), hours=0.2).dropped == 6
    assert forecast(name, STEADY, BATON, hours=0.2).dropped == 0


@pytest.mark.parametrize("name", ["systemd", "kubernetes-forbid"])
def test_a_baton_costs_ticks_where_they_are_queued_unless_the_launch_knows(name: str) -> None:
    assert forecast(name, STEADY, BATON._replace(launcher=PARALLEL), hours=0.2).dropped > 0
    assert forecast(name, STEADY, BATON, hours=0.2).dropped == 0


@pytest.mark.parametrize("name", ["busybox", "supercronic", "flock", "kudu", "nomad"])
def test_a_machine_whose_exits_take_seconds_costs_a_tick_until_that_is_learned(name: str) -> None:
    busy = PLATFORMS[name]._replace(exit=Uniform(1.0, 8.0))
    messages = STEADY.messages(random.Random(1), 0.0, HOUR / 2)
    figures = Forecast(busy, rules_as_set(), messages, random.Random(1), HOUR / 2).run().figures()
    assert figures.dropped <= 3


def test_a_margin_of_five_means_bounds_exponential_handlers_and_not_heavy_tails() -> None:
    overruns = [
        forecast("debian-cron", Workload(durations, every=0.3), rules_as_set(overrun_target=1.0), hours=3).overruns
        for durations in (Exponential(0.4), Lognormal(0.4, 1.5), Pareto(0.4))
    ]
    assert overruns[0] < 0.03
    assert min(overruns[1:]) > 0.05


def test_a_message_that_hangs_is_ended_by_the_watchdog_and_handled_at_most_three_times() -> None:
    hanging = Workload(Constant(0.01), every=600.0, hanging=1.0)
    found = record("debian-cron", hanging, rules_as_set(handler_limit=100.0), 1200.0)
    assert len(found.latencies) == found.ended_by_force == 6
    lasted = [each.released - each.acquired for each in found.tenures if each.released > each.stop_before]
    assert [110.0 <= each < 111.0 for each in lasted] == [True] * 6


def test_a_message_longer_than_window_and_grace_is_handled_once_by_a_launch_that_outlasts_its_window() -> None:
    found = record("debian-cron", Workload(Constant(200.0), every=600.0), rules_as_set(), 1200.0)
    assert (len(found.latencies), found.ended_by_force, found.cut_off) == (2, 0, 0.0)
    assert sum(each.released - each.acquired >= 200.0 for each in found.tenures) == 2


def test_a_message_that_crashes_its_process_ends_the_tenure_at_once() -> None:
    crashing = Workload(Constant(1.0), every=600.0, crashing=1.0)
    found = record("debian-cron", crashing, rules_as_set(), 590.0)
    assert [round(each.released - each.acquired) for each in found.tenures[:3]] == [1, 1, 1]
    assert len(found.latencies) == 3


def test_a_message_that_is_due_during_a_launch_starts_when_it_is_due() -> None:
    figures = forecast("debian-cron", Workload(Constant(0.01), every=1.0, scheduled=2), BATON)
    assert figures.lateness.p99 < 0.02


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_seed_forecasts_the_same_figures_each_time(name: str) -> None:
    pareto = Workload(Pareto(0.5), every=1.0)
    first, second, other = (forecast(name, pareto, BATON, hours=0.2, seed=seed) for seed in (1, 1, 2))
    assert first == second != other
