"""What the deadline allows for starts and exits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.launcher import (
    FLOOR,
    FLOOR_OF_DROP,
    LAUNCHES,
    REAPED_LATE,
    UNLEARNED_EXIT,
    Found,
    Past,
    Punctuality,
    allowance,
    past_launches,
)
from pollconsumer.core.launcher import learned as learned_of

MAIL = "consumer:mail"
PARALLEL, DROP = Found("cron", LauncherRule.PARALLEL), Found("flock", LauncherRule.DROP)
BUSYBOX = Found("busybox", LauncherRule.DROP, REAPED_LATE)
SECONDS = st.floats(0, 100)


def entry(offset: object = None, leaving: object = None, lease_name: str = f"{MAIL}:0") -> bytes:
    return json.dumps({"lineage": lease_name, "launch_offset_seconds": offset, "exit_seconds": leaving}).encode()


def learned(entries: list[bytes], group: str) -> Punctuality:
    return learned_of(past_launches(entries, group), LauncherRule.PARALLEL)


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=30))
def test_the_least_offset_and_the_largest_exit_of_the_last_ten_launches_count(pairs: list[tuple[float, float]]) -> None:
    last = pairs[:LAUNCHES]
    expected = Punctuality(min(offset for offset, _ in last), max(leaving for _, leaving in last))
    assert learned([entry(*pair) for pair in pairs], MAIL) == expected


def test_entries_of_other_groups_are_passed_over() -> None:
    others = [entry(9.0, 9.0, "mover::0"), entry(9.0, 9.0, "consumer:mail,other:0")]
    assert learned([*others, entry(1.0, 0.2, f"{MAIL}:1")] * 2, MAIL) == Punctuality(1.0, 0.2)


def test_where_ticks_are_dropped_an_exit_has_the_least_time_at_least() -> None:
    past = past_launches([entry(1.0, 0.2)], MAIL)
    for rule in LauncherRule.PARALLEL, LauncherRule.QUEUE:
        assert learned_of(past, rule, least_exit=1.5).exit == 0.2
    assert [learned_of(past, LauncherRule.DROP, least_exit=each).exit for each in (0.0, 0.1, 1.5)] == [0.2, 0.2, 1.5]


@pytest.mark.parametrize(
    "corrupt",
    [b"", b"{", b"[]", b"3", entry("1", [2]), entry(1e9, -1e9), entry(True, True), b'{"lineage": 7}'],
)
def test_corrupt_entries_teach_nothing(corrupt: bytes) -> None:
    assert learned([corrupt], MAIL) == Punctuality(0.0, UNLEARNED_EXIT)


def test_a_launch_that_died_teaches_its_offset_alone() -> None:
    assert learned([entry(1.8), entry(1.9, 0.3)], MAIL) == Punctuality(1.8, 0.3)


def past(tick: float, ended: float, offset: float = 1.8, leaving: float | None = 0.2) -> Past:
    return Past(tick + offset, ended, offset, 60.0 - offset, leaving, None)


@pytest.mark.parametrize(("own", "least"), [(None, 4.7), (3.6, 3.6), (-0.2, -0.2), (57.0, 4.7)])
def test_a_launch_that_started_sooner_than_those_before_it_expects_the_next_one_as_soon(
    own: float | None, least: float
) -> None:
    assert learned_of([past(0.0, 59.0, offset=4.7)], LauncherRule.PARALLEL, own).offset == least


def test_the_own_offset_alone_teaches_nothing() -> None:
    """A person may have started it, just before the tick."""
    assert learned_of([], LauncherRule.PARALLEL, 57.0).offset == 0.0


@pytest.mark.parametrize(
    ("before_ended", "least"),
    [(59.7, 9.0), (59.9, 0.0), (65.0, 0.0)],  # gone at the tick; still exiting; handling
)
def test_where_launches_queue_one_that_waited_for_the_one_before_does_not_count_as_started_late(
    before_ended: float, least: float
) -> None:
    launches = [past(60.0, 119.0, offset=9.0), past(0.0, before_ended, offset=30.0)]
    assert learned_of(launches, LauncherRule.QUEUE).offset == least
    assert learned_of(launches, LauncherRule.PARALLEL).offset == 9.0


def test_where_launches_queue_the_first_one_known_does_not_count_as_it_may_have_waited() -> None:
    assert learned_of([past(0.0, 59.0)], LauncherRule.QUEUE).offset == 0.0
    assert learned_of([past(60.0, 119.0), past(0.0, 59.0)._replace(ended=None)], LauncherRule.QUEUE).offset == 0.0


def test_where_launches_queue_the_learned_offset_of_pods_does_not_creep_up() -> None:
    """The launcher looks a second after each tick, or starts a pod as soon as the launch before has ended."""
    launches: list[Past] = []
    decided, offsets = 1.0, list[float]()
    for _ in range(100):
        started = decided + 6.0
        tick = started // 60 * 60
        punctuality = learned_of(launches[: LAUNCHES + 1], LauncherRule.QUEUE)
        late, margin = allowance(Found("kubernetes", LauncherRule.QUEUE), punctuality, None)
        ended = tick + 60 + late - margin
        launches.insert(0, past(tick, ended, offset=started - tick))
        offsets.append(punctuality.offset)
        decided = max(tick + 61.0, ended + 0.2)
    assert max(offsets) == 7.0


def test_nothing_learned_is_a_margin_of_two_seconds_and_more_where_a_tick_may_be_dropped() -> None:
    assert allowance(PARALLEL, Punctuality(), None) == (0.0, 2.0)
    late, margin = allowance(DROP, Punctuality(), None)
    assert margin - late == 2.25


def test_beside_the_next_launch_work_may_last_until_that_starts() -> None:
    assert allowance(PARALLEL, Punctuality(1.8, 0.3), None) == (1.8, 0.3 + FLOOR)


@given(SECONDS, SECONDS, st.none() | SECONDS)
def test_where_ticks_are_dropped_a_process_with_the_largest_exit_is_gone_before_the_tick(
    offset: float, leaving: float, min_margin: float | None
) -> None:
    for launcher in (DROP, BUSYBOX):
        late, margin = allowance(launcher, Punctuality(offset, leaving), min_margin)
        assert late + leaving <= -launcher.reaped_late + 1e-9
        least = max(launcher.reaped_late + leaving + FLOOR_OF_DROP, min_margin or 0.0)
        assert margin - late >= least - 1e-9


def test_a_margin_that_is_set_counts_from_the_tick() -> None:
    """As the one of twelve seconds that was advised for busybox."""
    late, margin = allowance(BUSYBOX, Punctuality(0.3, 0.4), 12.0)
    assert margin - late == pytest.approx(12.0)
    assert allowance(PARALLEL, Punctuality(0.3, 0.4), 12.0) == (0.3, 12.0)
    assert allowance(PARALLEL, Punctuality(0.3, 0.4), 0.0) == (0.3, 0.0)
