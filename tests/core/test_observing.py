"""What a launcher is seen to do at a tick at which a launch is alive."""

from __future__ import annotations

import pytest

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.launcher import TIMES, Observed, Past, observed, read_observed

AUTO, PARALLEL, QUEUE, DROP = LauncherRule.AUTO, LauncherRule.PARALLEL, LauncherRule.QUEUE, LauncherRule.DROP
OFFSET = 1.8


def before(ended: float, noted: object = None, leaving: float | None = 0.2) -> Past:
    """A launch of the tick at second 0, of one each minute."""
    return Past(OFFSET, ended, OFFSET, 60.0 - OFFSET, leaving, noted)


def at(tick: float, late: float = OFFSET) -> tuple[float, float | None]:
    return tick + late, late


@pytest.mark.parametrize(
    ("ended", "now", "rule"),
    [
        (59.0, at(60.0), AUTO),  # as usual
        (61.5, at(60.0), AUTO),  # alive at the tick, and gone when the launcher looked
        (59.0, at(120.0), AUTO),  # a tick without a launch that had nothing to do with the one before
        (59.0, at(600.0), AUTO),
        (65.0, at(60.0), PARALLEL),
        (121.9, at(120.0), PARALLEL),  # the one of second 60 has died
        (65.0, at(60.0, late=5.3), QUEUE),
        (62.4, at(60.0, late=3.0), AUTO),  # it ended by itself, just before a launcher that is late at times
        (65.0, at(60.0, late=20.0), AUTO),  # a pod that may have been started beside it
        (65.0, at(120.0), DROP),
        (115.0, at(120.0), DROP),
        (121.0, at(180.0), DROP),  # a baton's: alive at the next tick, too
        (65.0, at(300.0), AUTO),  # the machine was suspended, or the launcher stopped
        (65.0, at(7200.0), AUTO),
    ],
)
def test_what_a_launcher_does_is_seen_only_where_a_launch_is_alive_at_the_tick(
    ended: float, now: tuple[float, float | None], rule: LauncherRule
) -> None:
    expected = Observed() if rule is AUTO else Observed(rule, 1)
    assert observed(before(ended), *now, OFFSET) == expected


def test_a_process_that_lives_on_after_its_launch_is_alive() -> None:
    assert observed(before(61.5, leaving=0.5), *at(120.0), OFFSET) == Observed(DROP, 1)
    assert observed(before(61.5, leaving=None), *at(120.0), OFFSET) == Observed()


@pytest.mark.parametrize(
    ("noted", "ended", "now", "expected"),
    [
        (["drop", 1], 65.0, at(120.0), Observed(DROP, 2)),
        (["drop", 2], 59.0, at(60.0), Observed(DROP, 2)),
        (["drop", 9], 65.0, at(60.0), Observed(PARALLEL, 1)),
        (["parallel", 4], 65.0, at(120.0), Observed(DROP, 1)),
        (["drop", 1], 65.0, at(60.0, late=5.3), Observed(QUEUE, 1)),
    ],
)
def test_what_was_seen_is_counted_until_the_opposite_is_seen(
    noted: object, ended: float, now: tuple[float, float | None], expected: Observed
) -> None:
    assert observed(before(ended, noted), *now, OFFSET) == expected


def test_only_what_was_seen_several_times_in_succession_decides() -> None:
    assert [Observed(DROP, times).decides for times in range(TIMES + 1)] == [PARALLEL] * TIMES + [DROP]
    assert Observed().decides is PARALLEL


@pytest.mark.parametrize("unknown", [{"started": None}, {"ended": None}, {"offset": None}, {"next_tick": None}])
def test_a_launch_without_a_schedule_shows_nothing_and_keeps_what_was_seen(unknown: dict[str, None]) -> None:
    past = before(65.0, ["drop", 2])._replace(**unknown)
    assert observed(past, *at(120.0), OFFSET) == Observed(DROP, 2)
    assert observed(before(65.0, ["drop", 2]), 121.8, None, OFFSET) == Observed(DROP, 2)


def test_the_first_launch_has_seen_nothing() -> None:
    assert observed(None, *at(60.0), OFFSET) == Observed()


@pytest.mark.parametrize("corrupt", [None, "drop", [], ["drop"], ["gone", 3], ["drop", "3"], ["drop", -1], {"drop": 3}])
def test_a_corrupt_note_says_nothing(corrupt: object) -> None:
    assert read_observed(corrupt) == Observed()
