"""The ledger tells at which ticks no launch was there."""

from __future__ import annotations

from typing import Any

import pytest

from pollconsumer.core.coverage import Hole, holes_of
from pollconsumer.core.launcher import ON_DEMAND
from pollconsumer.core.window import StopReason

NOON = 1_700_000_000_000 // 60_000 * 60_000
MINUTE = 60_000


def launch(minute: float, ran: float = 59.0, *, scheduled: bool = True, **more: Any) -> dict[str, Any]:
    """A launch that began a second after its tick, ``minute`` minutes after noon."""
    started = int(NOON + minute * MINUTE + 1000)
    return {
        "launch_id": f"at {minute:g}",
        "role": "consumer",
        "queues": ["default"],
        "lineage": "consumer:default:0",
        "platform": "cron",
        "stop_reason": StopReason.NO_TIME_TO_IDLE,
        "running_seconds": ran,
        "started_ms": started,
        "ended_ms": int(started + 1000 * ran),
        "launch_offset_seconds": 1.0 if scheduled else None,
        "next_tick_seconds": 59.0 if scheduled else None,
    } | more


def found(launches: list[dict[str, Any]], now: float) -> list[tuple[float, float, int, str | None]]:
    holes = holes_of(launches[::-1], int(NOON + now * MINUTE))
    return [((h.first_ms - NOON) / MINUTE, (h.last_ms - NOON) / MINUTE, h.ticks, h.before) for h in holes]


def test_a_launch_a_minute_leaves_no_hole() -> None:
    assert found([launch(minute) for minute in range(9)], 9.5) == []


@pytest.mark.parametrize("scheduled", [True, False])
@pytest.mark.parametrize("missing", [1, 2, 5, 1440])
def test_each_tick_without_a_launch_is_counted(missing: int, scheduled: bool) -> None:
    came = [*range(4), *range(4 + missing, 8 + missing)]
    late = 0 if scheduled else 1000  # without a schedule, a tick is when a launch began
    launches = [launch(minute, scheduled=scheduled) for minute in came]
    [hole] = holes_of(launches[::-1], NOON + (8 + missing) * MINUTE)
    assert (hole.ticks, hole.before) == (missing, f"at {4 + missing}")
    assert (hole.first_ms, hole.last_ms) == (NOON + 4 * MINUTE + late, NOON + (3 + missing) * MINUTE + late)


def test_a_hole_in_which_no_launch_has_come_yet_has_no_launch_after_it() -> None:
    launches = [launch(minute) for minute in range(4)]
    assert found(launches, 4.9) == []  # it may still come
    assert found(launches, 6.5) == [(4, 5, 2, None)]


def test_a_launch_that_outlasts_its_window_leaves_no_hole() -> None:
    assert found([launch(0), launch(1, 290.0), launch(6), launch(7)], 7.5) == []
    runs = launch(1, 290.0, stop_reason=None)
    assert found([launch(0), {name: value for name, value in runs.items() if name != "ended_ms"}], 9) == []


def test_nor_does_one_that_ended_early() -> None:
    assert found([launch(0), launch(1, 5.0, stop_reason=StopReason.MAX_MESSAGES), launch(2)], 2.5) == []


def test_what_died_was_there_as_long_as_its_entry_says() -> None:
    died = launch(1, 20.0, stop_reason=StopReason.DIED)
    del died["ended_ms"]
    assert found([launch(0), died, launch(4)], 4.5) == [(2, 3, 2, "at 4")]


def test_two_instances_cover_each_other_and_groups_do_not() -> None:
    other: dict[str, Any] = {"lineage": "consumer:default:1"}
    assert found([launch(0), launch(1, **other), launch(2), launch(3, **other)], 3.5) == []
    mail: dict[str, Any] = {"lineage": "consumer:mail:0", "queues": ["mail"]}
    launches = [launch(0), launch(0, **mail), launch(1), launch(2), launch(3), launch(3, **mail)]
    assert found(launches, 3.5) == [(1, 2, 2, "at 3")]


def test_a_group_whose_queues_other_launches_serve_since_has_no_hole() -> None:
    both: dict[str, Any] = {"lineage": "consumer:default,mail:0", "queues": ["default", "mail"]}
    mail: dict[str, Any] = {"lineage": "consumer:mail:0", "queues": ["mail"]}
    before = [launch(0, **both), launch(1, **both)]
    assert found([*before, launch(2), launch(2, **mail), launch(3), launch(3, **mail)], 3.5) == []
    assert found([*before, launch(2), launch(3)], 3.5) == [(2, 2, 1, None)]  # nobody serves mail


@pytest.mark.parametrize("other", [{"platform": ON_DEMAND}, {"stop_reason": StopReason.EMPTY}])
def test_launches_that_no_launcher_starts_have_no_ticks(other: dict[str, Any]) -> None:
    assert found([launch(minute, **other) for minute in (0, 1, 2, 9)], 20) == []


def test_too_few_launches_without_a_schedule_have_none_either() -> None:
    assert found([launch(0, scheduled=False), launch(9, scheduled=False)], 9.5) == []


def test_a_hole_says_whose_it_is() -> None:
    [hole] = holes_of([launch(3), launch(1)], NOON + 3 * MINUTE)
    assert hole == Hole(
        "consumer", ("default",), NOON + 2 * MINUTE, NOON + 2 * MINUTE, 1, 60.0, "at 3", NOON + 3 * MINUTE + 1000
    )
