"""Proposals: when there is one, what it changes for which launches, and that it is never worse than what there is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pollconsumer.core.choices import HandOff, LauncherRule, Loop
from pollconsumer.core.durations import OVERRUN_TARGETS
from pollconsumer.core.histogram import BOUNDS, Histogram
from pollconsumer.core.launcher.detection import REAPED_LATE, UNKNOWN, Found
from pollconsumer.core.measured import Measured
from pollconsumer.interface.settings.model import ConsumerSettings, Settings
from pollconsumer.interface.settings.rules import check_given
from pollconsumer.tuning import replay
from pollconsumer.tuning.forecast.consumer_rules import Rules
from pollconsumer.tuning.forecast.distributions import Distribution, Lognormal, draw
from pollconsumer.tuning.launch_facts import (
    FEWEST_LAUNCHES,
    FEWEST_MESSAGES,
    LaunchFacts,
    Seen,
    lacking,
    launcher_of,
    launches_of,
    lineage_to_tune,
    schedule_of,
)
from pollconsumer.tuning.proposal import (
    ENDED_AT_MOST,
    GIVEN_UP_AT_MOST,
    NOTICED,
    NOTICED_SECONDS,
    Proposal,
    burden,
    propose,
)
from pollconsumer.tuning.replay import Replay
from tests.as_set import rules_as_set
from tests.simulation.workloads import Bimodal, Constant, Exponential, Uniform

DROP = Found("supercronic", LauncherRule.DROP)
RULES = rules_as_set(overrun_target=0.1)


@pytest.fixture(autouse=True, scope="module")
def brief() -> Iterator[None]:
    """Simulations that are long enough for what is asked here."""
    with mock.patch.multiple(replay, LAUNCHES=60, MESSAGES=2_000):
        yield


def histogram(durations: Distribution, count: int = 2000) -> Histogram:
    chance, found = random.Random(3), Histogram()
    found.add_all([draw(durations, chance) for _ in range(count)])
    return found


def facts(
    durations: Distribution,
    messages: Callable[[int], int],
    rules: Rules = RULES,
    found: Found = UNKNOWN,
    *,
    launches: int = 100,
    period: float = 60.0,
) -> LaunchFacts:
    seen = [Seen(n * period + 1.2, n * period + 1.6, messages(n), 3.6, 1.2, period, 0.3) for n in range(launches)]
    return LaunchFacts(seen, histogram(durations), rules, found)


def proposal(of: LaunchFacts) -> Proposal:
    return propose(of, lambda: random.Random(1))


def changed(found: Proposal) -> dict[str, float]:
    return {each.setting: each.proposed for each in found.changes}


def test_without_enough_launches_and_durations_it_says_what_is_missing_and_proposes_nothing() -> None:
    few = facts(Constant(1.0), lambda _: 1, launches=FEWEST_LAUNCHES - 1)._replace(
        durations=histogram(Constant(1.0), FEWEST_MESSAGES - 1)
    )
    found = proposal(few)
    assert found.missing == [
        "launches: 29 ended, 30 are needed",
        "durations: 49 messages measured, 50 are needed",
    ]
    assert (found.changes, found.rules, found.today) == ([], few.rules, None)
    assert lacking(facts(Constant(1.0), lambda _: 1, launches=FEWEST_LAUNCHES)) == []


def test_launches_that_come_at_odd_times_cannot_be_simulated() -> None:
    odd = facts(Constant(1.0), lambda _: 1, period=420.0)
    assert "launches start every 7m, " in proposal(odd).missing[0]


@pytest.mark.parametrize(
    ("period", "schedule"),
    [
        (60.0, "*/1 * * * *"),
        (61.0, "*/1 * * * *"),
        (900.0, "*/15 * * * *"),
        (3600.0, "0 * * * *"),
        (7200.0, "0 */2 * * *"),
        (420.0, None),
        (0.0, None),
        (-300.0, None),
        (86_400.0 * 7, None),
    ],
)
def test_a_period_is_a_cron_expression_if_its_ticks_are_always_as_far_apart(
    period: float, schedule: str | None
) -> None:
    assert schedule_of(period) == schedule


def test_for_slow_messages_of_one_length_the_factor_shrinks_since_their_excess_is_margin_enough() -> None:
    found = proposal(facts(Constant(20.0), lambda n: 1 + n % 2))
    assert changed(found) == {"tolerance_factor": 1.0}
    assert found.today is not None
    assert found.proposed is not None
    assert found.proposed.wait < 0.7 * found.today.wait
    assert found.proposed.coverage > found.today.coverage
    assert found.proposed.overruns <= 0.1
    assert found.changes[0].reason.startswith("a message takes 20s on average, ")


def test_for_bursts_of_more_work_than_fits_it_proposes_slots_for_these() -> None:
    found = proposal(facts(Exponential(0.3), lambda n: 400 if n % 10 == 0 else 5))
    assert changed(found)["slots"] == 3
    assert found.today is not None
    assert found.proposed is not None
    assert found.today.wait > 10 > 1 > found.proposed.wait


def test_for_brief_steady_messages_nothing_is_to_be_changed() -> None:
    found = proposal(facts(Constant(0.01), lambda _: 60))
    assert (found.changes, found.rules, found.proposed) == ([], RULES, found.today)


def test_where_many_launches_overrun_the_margin_becomes_longer_though_the_watchdog_ends_none() -> None:
    hasty = RULES._replace(overrun_target=1.0, tolerance_factor=0.1, grace=0.5)
    found = proposal(facts(Lognormal(1.0, 1.0), lambda _: 30, hasty, Found("busybox", LauncherRule.DROP)))
    assert found.today is not None
    assert found.proposed is not None
    assert changed(found)["overrun_target"] <= 0.2
    assert found.today.overruns > 2 * found.proposed.overruns
    assert found.today.ended_by_watchdog == 0


@pytest.mark.parametrize("seconds", [90.0, 200.0])
def test_messages_longer_than_window_and_grace_are_begun_once_each_and_no_launch_is_ended(seconds: float) -> None:
    found = proposal(facts(Constant(seconds), lambda n: int(n % 10 == 0)))
    assert found.today is not None
    assert (found.today.ended_by_watchdog, found.today.overruns) == (0.0, 0.0)


RARE = Bimodal(0.035, 0.01, 25.0)
"""One in a thousand is long."""


def test_a_margin_that_closes_a_third_of_each_window_for_a_rare_long_message_becomes_shorter() -> None:
    found = proposal(facts(RARE, lambda _: 60)._replace(durations=histogram(RARE, 12_000)))
    assert changed(found) == {"overrun_target": 0.5}
    assert found.today is not None
    assert found.proposed is not None
    assert found.today.coverage < 0.75
    assert found.proposed.coverage > 0.85
    assert found.proposed.wait < 0.5 * found.today.wait
    assert found.proposed.ended_by_watchdog <= ENDED_AT_MOST


@pytest.mark.parametrize("found", [UNKNOWN, DROP], ids=["parallel", "drop"])
@pytest.mark.parametrize("durations", [Lognormal(0.5, 1.5), Lognormal(0.5, 2.0), RARE])
def test_for_a_heavy_tail_no_proposal_closes_noticeably_more_of_the_windows(
    durations: Distribution, found: Found
) -> None:
    target = OVERRUN_TARGETS[found.rule]
    proposed = proposal(facts(durations, lambda _: 60, RULES._replace(overrun_target=target), found))
    assert proposed.today is not None
    assert proposed.proposed is not None
    assert proposed.proposed.coverage >= proposed.today.coverage - GIVEN_UP_AT_MOST
    assert proposed.proposed.wait <= proposed.today.wait / (1 - NOTICED) + NOTICED_SECONDS


@pytest.mark.parametrize("scheduled", [True, False])
def test_a_timeout_that_is_shorter_than_the_time_between_launches_is_raised_to_it(scheduled: bool) -> None:
    short = RULES._replace(timeout=30.0, scheduled=scheduled)
    assert changed(proposal(facts(Constant(0.01), lambda _: 60, short))) == {"timeout": 60.0}


def test_without_a_schedule_a_launch_is_gone_before_the_tick_that_would_be_dropped() -> None:
    late = RULES._replace(timeout=90.0, scheduled=False)
    found = proposal(facts(Constant(0.01), lambda _: 60, late, DROP))
    assert changed(found) == {"timeout": 58.0}
    assert found.today is not None
    assert found.today.dropped > 0.4
    assert found.proposed is not None
    assert found.proposed.dropped == 0


def test_the_loop_of_the_article_gets_an_idle_time_that_fits_longer() -> None:
    plain = RULES._replace(loop=Loop.ARTICLE, idle_time=20.0, min_margin=1.0)
    assert changed(proposal(facts(Constant(0.01), lambda _: 60, plain)))["idle_time"] < 20


def test_a_loop_that_is_woken_needs_no_short_idle_time() -> None:
    nervous = RULES._replace(idle_time=0.05)
    assert changed(proposal(facts(Constant(0.01), lambda _: 60, nervous))) == {"idle_time": 5.0}


def test_a_busy_record_is_simulated_with_few_launches_and_messages_of_several_together() -> None:
    busy = Replay(facts(Constant(0.0005), lambda _: 50_000), lambda: random.Random(1))
    outcome = busy.outcome(RULES)
    assert outcome.launches <= 31
    assert 0.3 < busy.load < 0.5
    light = Replay(facts(Constant(0.01), lambda _: 1), lambda: random.Random(1)).outcome(RULES)
    assert light.launches == 60


def test_messages_that_are_not_begun_at_the_end_have_waited_until_then() -> None:
    """Else the settings that leave most of them would look best."""
    idle = RULES._replace(timeout=5.0)
    flooded = Replay(facts(Constant(1.0), lambda _: 50, idle), lambda: random.Random(1))
    assert flooded.outcome(idle).wait > 10 * flooded.outcome(RULES).wait


@hypothesis_settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_durations_are_drawn_as_often_as_they_are_remembered(seed: int) -> None:
    original = histogram(Uniform(0.5, 4.0))
    chance, again = random.Random(seed), Histogram()
    again.add_all([draw(Measured.durations(original), chance) for _ in range(2000)])
    assert again.mean == pytest.approx(original.mean, rel=0.1)
    assert again.excess(0.1) == pytest.approx(original.excess(0.1), rel=0.2)
    assert set(again.counts) <= set(original.counts)


SEEN = st.builds(
    lambda messages, late, gap, exit_: (messages, late, gap, exit_),
    st.integers(0, 40),
    st.floats(0, 5),
    st.none() | st.floats(0, 30),
    st.none() | st.floats(0, 5),
)
ANY_RULES = st.builds(
    Rules,
    handoff=st.sampled_from(HandOff),
    timeout=st.floats(5, 120),
    grace=st.floats(0.5, 30),
    idle_time=st.floats(0.5, 60),
    estimated_duration=st.floats(0, 10),
    tolerance_factor=st.floats(0.1, 50),
    min_margin=st.none() | st.floats(0, 4.9),
    overrun_target=st.floats(0.005, 1),
    slots=st.integers(1, 80),
    loop=st.sampled_from(Loop),
    scheduled=st.booleans(),
    launcher=st.just(LauncherRule.AUTO),
    longest_wait=st.just(0.8),
    call=st.just(0.0005),
)
FOUND = st.sampled_from(
    [
        UNKNOWN,
        DROP,
        Found("systemd", LauncherRule.QUEUE),
        Found("busybox", LauncherRule.DROP, REAPED_LATE),
    ]
)


@hypothesis_settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rules=ANY_RULES,
    found=FOUND,
    seen=st.lists(SEEN, min_size=FEWEST_LAUNCHES, max_size=FEWEST_LAUNCHES),
    period=st.sampled_from([60.0, 120.0]),
    buckets=st.dictionaries(st.integers(0, 270), st.integers(0, 50), min_size=1, max_size=8),
)
def test_a_proposal_is_valid_and_never_worse_by_its_own_measure(
    rules: Rules, found: Found, seen: list[Any], period: float, buckets: dict[int, int]
) -> None:
    durations = Histogram(counts=buckets)
    assume(durations.count >= FEWEST_MESSAGES)
    durations.total = sum(BOUNDS[bucket] * count for bucket, count in buckets.items())
    launches = [
        Seen(n * period + late, n * period + late + 0.4, messages, gap, late, period, exit_)
        for n, (messages, late, gap, exit_) in enumerate(seen)
    ]
    given_facts = LaunchFacts(launches, durations, rules, found)
    proposed = proposal(given_facts)
    assert proposed.today is not None
    assert proposed.proposed is not None
    assert burden(proposed.proposed, found.rule) <= burden(proposed.today, found.rule)
    consumer = ConsumerSettings(
        timeout=proposed.rules.timeout,
        idle_time=proposed.rules.idle_time,
        tolerance_factor=proposed.rules.tolerance_factor,
        min_margin=proposed.rules.min_margin,
        overrun_target=proposed.rules.overrun_target,
        concurrency=proposed.rules.slots,
    )
    check_given(Settings(consumer=consumer), [f"consumer.{key}" for key in vars(consumer)])
    values = {each.setting: each for each in proposed.changes}
    for name in Rules._fields:
        before, after = getattr(rules, name), getattr(proposed.rules, name)
        assert (name in values) == (before != after)
        assert before == after or (values[name].today, values[name].proposed) == (before, after)


def entry(lineage: str, **more: Any) -> dict[str, Any]:
    who = {"role": "consumer", "queues": lineage.split(":")[1].split(","), "lineage": lineage}
    what = {"stop_reason": "interrupted", "handled": 1, "failed": 2, "yielded": 0}
    when = {"started_ms": 5000, "acquired_ms": 5400, "ended_ms": 60_000, "gap_seconds": 1.5, "exit_seconds": 0.2}
    where = {"platform": "cron", "launcher": "parallel", "launch_offset_seconds": 1.0, "next_tick_seconds": 59.0}
    return {**who, **what, **when, **where, **more}


def test_the_lease_whose_launches_handled_most_is_tuned_or_that_of_the_configured_queues() -> None:
    entries = [entry("consumer:a:0"), entry("consumer:a,b:0", handled=7), entry("mover::0", role="mover", handled=99)]
    assert lineage_to_tune(entries, ()) == "consumer:a,b:0"
    assert lineage_to_tune(entries, ("a",)) == "consumer:a:0"
    assert lineage_to_tune(entries, ("b", "a")) == "consumer:a,b:0"
    assert lineage_to_tune(entries, ("c",)) is None


def test_launches_are_those_of_the_lease_that_have_ended_oldest_first() -> None:
    entries = [
        entry("consumer:a:0", stop_reason=None),
        entry("consumer:a:0", started_ms=9000),
        entry("consumer:b:0"),
        entry("consumer:a:0"),
    ]
    assert launches_of(entries, "consumer:a:0") == [
        Seen(5.0, 5.4, 3, 1.5, 1.0, 60.0, 0.2),
        Seen(9.0, 5.4, 3, 1.5, 1.0, 60.0, 0.2),
    ]


def test_the_launcher_is_what_most_launches_took_it_for_unless_the_settings_say() -> None:
    entries = [
        entry("consumer:a:0", platform="", launcher="parallel"),
        *[entry("consumer:a:0", platform="busybox", launcher="drop")] * 2,
    ]
    assert launcher_of(entries, "consumer:a:0", LauncherRule.AUTO) == Found("busybox", LauncherRule.DROP, REAPED_LATE)
    assert launcher_of(entries, "consumer:a:0", LauncherRule.QUEUE).rule is LauncherRule.QUEUE
    assert launcher_of(entries, None, LauncherRule.AUTO) == UNKNOWN


def test_the_overrun_target_of_the_launcher_is_the_measure_of_overruns() -> None:
    found = proposal(facts(Constant(0.01), lambda _: 60)).today
    assert found is not None
    many = found._replace(overruns=0.3)
    assert burden(many, LauncherRule.DROP)[1] == pytest.approx(0.3 - OVERRUN_TARGETS[LauncherRule.DROP])
    assert burden(found, LauncherRule.PARALLEL)[:2] == (0, 0)
