"""The pictures: launches drawn to scale, and figures of the last hour."""

from __future__ import annotations

from typing import Any

import pytest

from pollconsumer.core.durations import Histogram
from pollconsumer.core.lifecycle import Timestamps
from pollconsumer.dashboard.drawings import completion_charts, drawn, durations_drawn
from pollconsumer.dashboard.excerpts import Completions
from pollconsumer.dashboard.page_reader import Page
from pollconsumer.store.reading.ledger import _BLANK
from tests.dashboard.pages import Document

NOW = 1_800_000_000_000
MINUTE = 60_000


def launch(minutes_ago: float, **facts: Any) -> dict[str, Any]:
    """One that waited a second, worked 20 of its 50 seconds, and left a margin of five before the minute's end."""
    started = int(NOW - minutes_ago * MINUTE)
    entry = _BLANK | {
        "launch_id": "l", "role": "consumer", "queues": ["mail"], "stop_reason": "no_time_to_handle",
        "gap_seconds": 4.0,
        "started_ms": started, "acquired_ms": started + 1000, "ended_ms": started + 51_000, "running_seconds": 51.0,
        "waited_seconds": 1.0,
        "launch_offset_seconds": 0.0, "next_tick_seconds": 60.0, "handled": 90, "failed": 10, "average_seconds": 0.2,
        "margin_seconds": 5.0,
    }  # fmt: skip
    return entry | facts


def only(*launches: dict[str, Any]) -> Page:
    [group] = drawn(launches, NOW)
    return group


def heights(group: Page) -> dict[str, list[float]]:
    page = Document(str(group.columns))
    kinds = ("waiting", "work", "idle", "margin", "over", "died")
    return {kind: [box[3] for box in page.boxes(kind)] for kind in kinds if page.boxes(kind)}


def test_a_launch_is_a_column_of_waiting_work_idling_and_margin_to_scale() -> None:
    assert heights(only(launch(10))) == {"waiting": [1.0], "work": [20.0], "idle": [30.0], "margin": [5.0]}


def test_a_column_stands_where_its_launch_began_in_the_hour() -> None:
    page = Document(str(only(launch(15), launch(30)).columns))
    assert [box[0] for box in page.boxes("work")] == [1800.0, 2700.0]


def test_what_outlasts_the_window_stands_above_it() -> None:
    late = launch(10, ended_ms=NOW - 10 * MINUTE + 67_000, handled=300, failed=0)
    group = only(late)
    assert heights(group) == {"waiting": [1.0], "work": [59.0], "over": [7.0]}
    assert group.overran == 1
    assert group.top >= 67
    assert only(late | {"longer_than_window": 1}).overran == 0


def test_a_launch_that_started_late_stands_as_much_higher() -> None:
    group = only(launch(10, launch_offset_seconds=8.0, next_tick_seconds=52.0))
    page = Document(str(group.columns))
    [(_, upper, _, height)] = page.boxes("waiting")
    assert -(upper + height) == pytest.approx(8.0)
    assert group.overran == 0


@pytest.mark.parametrize(
    ("reason", "died"), [("died", 1), ("watchdog", 1), ("lease_lost", 1), ("failed", 1), ("empty", 0)]
)
def test_one_that_did_not_end_by_itself_is_marked(reason: str, died: int) -> None:
    group = only(launch(10, stop_reason=reason))
    assert group.died == died
    assert len(heights(group).get("died", [])) == died


def test_one_that_runs_is_drawn_until_now() -> None:
    running = launch(0.5, stop_reason=None, ended_ms=NOW - 29_000)
    assert heights(only(running)) == {"waiting": [1.0], "work": [20.0], "idle": [9.0], "margin": [5.0]}


def test_without_a_schedule_the_window_ends_a_margin_after_the_end() -> None:
    group = only(launch(10, next_tick_seconds=None))
    assert heights(group)["margin"] == [5.0]
    assert heights(only(launch(10, next_tick_seconds=None, stop_reason="empty"))).get("margin") is None


def test_the_share_of_the_time_for_which_the_lease_was_held_counts_overlaps_once() -> None:
    every = [launch(number) for number in range(1, 61)]
    assert only(*every).covered == pytest.approx(50 / 60, abs=0.01)
    assert only(*every, *every).covered == pytest.approx(50 / 60, abs=0.01)
    assert only(*[each for each in every if each["started_ms"] < NOW - 30 * MINUTE]).covered < 0.45


def test_the_longest_time_without_a_lease_counts_until_now() -> None:
    assert only(launch(10), launch(8)).longest_gap == pytest.approx(8 * 60 - 51)
    assert only(launch(10), launch(3), launch(2), launch(1)).longest_gap == pytest.approx(7 * 60 - 50)


def test_launches_that_did_not_come_are_counted_where_they_come_regularly() -> None:
    minutes = [number for number in range(1, 61) if number not in (20, 30, 31)]
    assert only(*map(launch, minutes)).missing == 3
    assert only(*map(launch, [number for number in minutes if number > 3])).missing == 6
    assert only(*map(launch, range(1, 61))).missing == 0
    by_hand = (50, 49.5, 31, 30, 12, 11.5, 3)
    assert only(*map(launch, by_hand)).missing == 0
    assert only(launch(50), launch(20), launch(19)).missing == 0


def test_each_set_of_queues_is_a_picture_of_its_own_consumers_first() -> None:
    groups = drawn([launch(1, role="mover", queues=[]), launch(2, queues=["reports"]), launch(3), launch(4)], NOW)
    assert [group.title for group in groups] == ["consumer, mail", "consumer, reports", "mover"]
    assert [group.total for group in groups] == [180, 90, 90]


def test_entries_of_a_launch_that_is_starting_and_odd_numbers_draw_nothing_wrong() -> None:
    odd = launch(5, next_tick_seconds="soon", launch_offset_seconds=-3.0, ended_ms=NOW - 9 * MINUTE, handled=-5)
    starting = {key: value for key, value in launch(1).items() if not key.endswith("_ms")}
    group = only(odd, starting)
    page = Document(str(group.columns))
    assert all(box[3] > 0 for kind in ("work", "idle", "margin") for box in page.boxes(kind))
    assert drawn([starting], NOW) == []


def test_throughput_is_that_of_each_minute_and_waits_are_its_shortest_to_its_longest() -> None:
    instants = [NOW - 30 * MINUTE + number * 1000 for number in range(60)]
    samples = [
        Timestamps(due_at=at - 3000, enqueued_at=at - 2000, reserved_at=at - 1000, completed_at=at) for at in instants
    ]
    charts = completion_charts([Completions(instants, [*range(1, 61)], samples)], NOW)
    assert [chart.title for chart in charts] == [
        "completed per minute", "waited for a launch", "became ready after their due time",
    ]  # fmt: skip
    boxes = Document(str(charts[0].image)).boxes("work")
    assert [(box[0], box[3]) for box in boxes] == [(30.0, 60.0)]
    assert charts[0].scale == ("60", "0")
    assert charts[1].scale == ("1s", "31.6ms", "1ms")  # logarithmic
    assert "median 1s, longest 1s" in Document(str(charts[1].image)).text


def test_nothing_completed_is_no_picture() -> None:
    assert completion_charts([Completions()], NOW) == []


def test_a_handlers_durations_are_bars() -> None:
    histogram = Histogram()
    for duration in [0.1] * 90 + [2.0] * 10:
        histogram.add(duration)
    image = durations_drawn(histogram)
    assert [box[3] for box in Document(str(image.image)).boxes("work")] == [90.0, 10.0]
    assert image.top == "90"


def test_the_first_bar_of_durations_begins_at_none() -> None:
    histogram = Histogram()
    histogram.add(0.0003)
    image = durations_drawn(histogram)
    assert (image.shortest, image.longest) == ("0ms", "1ms")
