"""Notes, processes and the ledger become figures, and figures a line of the table."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from pollconsumer.core.choices import HandOff, LauncherRule
from tests.cron.report import Note, expected_start
from tests.forecast.figures import Spread
from tests.forecast.launchers import LaunchedProcess
from tests.platforms.figures import Launch, dropped, figures, launches_of, overruns
from tests.platforms.reckoning import Costs, best_coverage
from tests.platforms.row import as_json
from tests.platforms.table import HEADINGS, failures, line

DEADLINE, BATON = HandOff.DEADLINE, HandOff.BATON
PARALLEL, QUEUE, DROP = LauncherRule.PARALLEL, LauncherRule.QUEUE, LauncherRule.DROP


def handled(sequence: int, start: float, *, sent: float, due: float = 0.0, pid: int = 1) -> list[Note]:
    return [Note(mark, sequence, at, pid, sent, due) for mark, at in (("start", start), ("end", start + 0.01))]


def entry(started: float, acquired: float, ended: float, pid: int) -> dict[str, Any]:
    instants = {"started_ms": started, "acquired_ms": acquired, "ended_ms": ended}
    return {"pid": pid, **{name: int(at * 1000) for name, at in instants.items()}}


FIRST = Launch(started=1.0, ended=59.5, acquired=2.0, released=59.0, worked_until=58.5)
SECOND = Launch(started=61.0, ended=119.5, acquired=62.0, released=119.0, worked_until=118.5)
NOTES = [
    *handled(0, 3.0, sent=2.9),
    *handled(1, 6.0, sent=2.9, due=5.9),
    *handled(2, 62.0, sent=59.5),
    Note("tick", 50, 50.1, 1, 50.0, 50.0),
    Note("tick", 60, 62.1, 1, 60.0, 60.0),
]


def test_coverage_and_gaps_are_the_ledgers_and_the_longest_silence_is_that_of_the_notes() -> None:
    found = figures([FIRST, SECOND], NOTES, {0, 1, 2}, overruns=0)
    assert found.launches == 2
    assert found.coverage == pytest.approx(0.95)
    assert found.gap == Spread(3.0, 3.0, 3.0)
    assert found.silence == pytest.approx(59.0)
    assert (found.start_up, found.exit) == (1.0, 0.5)


def test_latency_is_of_immediate_messages_and_lateness_of_scheduled_ones_and_of_occurrences() -> None:
    found = figures([FIRST, SECOND], NOTES, {0, 1, 2}, overruns=0)
    assert found.latency == pytest.approx((2.5, 2.5, 2.5))
    assert found.due == pytest.approx((0.1, 0.1, 0.1))
    assert found.occurrences == pytest.approx((2.1, 2.1, 2.1))
    assert (found.lost, found.twice, found.early) == (0, 0, 0)


def test_a_message_without_an_end_and_an_instant_without_an_occurrence_are_lost() -> None:
    notes = [*NOTES, Note("start", 3, 70.0, 1, 69.9, 0.0), Note("tick", 80, 80.1, 1, 80.0, 80.0)]
    assert figures([FIRST, SECOND], notes, {0, 1, 2, 3, 4}, overruns=0).lost == 3


def test_a_message_or_an_occurrence_that_started_again_is_counted_as_handled_twice() -> None:
    notes = [*NOTES, *handled(2, 70.0, sent=59.5), Note("tick", 60, 70.0, 1, 60.0, 60.0)]
    found = figures([FIRST, SECOND], notes, {0, 1, 2}, overruns=0)
    assert found.twice == 2
    assert found.latency.most == pytest.approx(2.5)


def test_a_start_before_the_due_time_is_early() -> None:
    assert figures([FIRST, SECOND], handled(1, 5.8, sent=2.9, due=5.9), {1}, overruns=0).early == 1


def test_a_launch_is_its_process_its_ledger_entry_and_its_handlers() -> None:
    processes = [LaunchedProcess(0.9, 59.6), LaunchedProcess(60.8, 119.4)]
    entries = [entry(61.0, 62.0, 119.0, pid=8), entry(1.0, 2.0, 59.0, pid=7), {"pid": 9}]
    notes = [*handled(0, 3.0, sent=2.9, pid=7), *handled(1, 58.49, sent=58.4, pid=7)]
    assert launches_of(processes, entries, notes) == [
        Launch(0.9, 59.6, 2.0, 59.0, notes[-1].at),
        Launch(60.8, 119.4, 62.0, 119.0, 62.0),
    ]


def test_a_ledger_entry_without_a_process_is_refused() -> None:
    with pytest.raises(ValueError, match="no process"):
        launches_of([LaunchedProcess(30.0, 59.6)], [entry(1.0, 2.0, 59.0, pid=7)], [])


def test_a_tick_without_a_start_before_the_next_one_was_dropped() -> None:
    assert (
        dropped([0.0, 60.0, 120.0, 180.0], [LaunchedProcess(1.8), LaunchedProcess(121.8), LaunchedProcess(131.8)]) == 2
    )
    assert dropped([0.0, 60.0], [LaunchedProcess(-0.01), LaunchedProcess(59.99)]) == 0


def test_a_launch_that_started_sooner_than_any_before_it_was_expected_when_these_had_started() -> None:
    starts = [18.0, 64.7, 128.5, 183.6]
    assert expected_start(60.0, starts) == 64.7  # the first launch knows nothing
    assert expected_start(120.0, starts) == 128.5
    assert expected_start(180.0, starts) == pytest.approx(184.7)
    assert expected_start(240.0, starts) == inf


@pytest.mark.parametrize(
    ("rule", "handoff", "changed", "limit", "expected"),
    [
        (DROP, DEADLINE, {}, 0.0, 0),
        (DROP, BATON, {"ended": 60.1}, 0.0, 1),
        (DROP, DEADLINE, {}, -10.0, 2),
        (QUEUE, DEADLINE, {"worked_until": 60.9}, 1.0, 0),
        (PARALLEL, DEADLINE, {"worked_until": 61.1}, 1.0, 1),
        (PARALLEL, BATON, {"worked_until": 61.1}, 1.0, 0),
        (PARALLEL, BATON, {"worked_until": 121.1}, 1.0, 1),
        (QUEUE, BATON, {"worked_until": 61.1}, 1.0, 1),
    ],
)
def test_what_counts_as_an_overrun_follows_from_the_launcher(
    rule: LauncherRule, handoff: HandOff, changed: dict[str, float], limit: float, expected: int
) -> None:
    """``limit``: seconds after each tick."""
    limits = {tick: tick + limit for tick in (0.0, 60.0, 120.0)}
    assert overruns([FIRST._replace(**changed), SECOND], limits, rule, handoff) == expected


def test_the_limit_of_a_launch_is_that_of_a_later_tick_though_its_own_was_expected_later_than_it_came() -> None:
    first, second = FIRST._replace(worked_until=64.0), SECOND._replace(started=63.7)
    assert overruns([first, second], {0.0: 1.0, 60.0: 64.7, 120.0: 121.0}, PARALLEL, DEADLINE) == 0


@pytest.mark.parametrize(
    ("rule", "handoff", "costs", "uncovered"),
    [
        (PARALLEL, BATON, Costs(0.5, 0.25), 0.0),
        (PARALLEL, DEADLINE, Costs(0.5, 0.25, scatter=3.0), 3.5 / 60),
        (DROP, BATON, Costs(0.5, 0.25), 0.75 / 60),
        (DROP, DEADLINE, Costs(0.5, 0.25, reaped_late=10.0), 10.75 / 60),
        (QUEUE, DEADLINE, Costs(0.5, 0.25, delay=4.0), 4.75 / 60),
    ],
)
def test_the_best_coverage_loses_what_the_launcher_forces(
    rule: LauncherRule, handoff: HandOff, costs: Costs, uncovered: float
) -> None:
    assert best_coverage(rule, handoff, costs) == pytest.approx(1 - uncovered)


RESULT = {
    **as_json(figures([FIRST, SECOND], NOTES, {0, 1, 2}, overruns=0)),
    "dropped": 0,
    "best": 0.9875,
    "left": 0,
    "printed": "",
}


def test_a_line_has_a_cell_for_each_column() -> None:
    assert line("debian-cron/deadline", RESULT) == (
        "| debian-cron, deadline | 2 | 0 | 95.00% | 98.75% | 3.00 s, 3.00 s | 59.00 s | 2.50 s, 2.50 s, 2.50 s "
        "| 100.0 ms, 100.0 ms, 100.0 ms | 2.10 s, 2.10 s, 2.10 s | 0, 0, 0 | 0 | 1.00 s, 500.0 ms |"
    )
    assert all(row.count("|") == line("", RESULT).count("|") for row in HEADINGS.splitlines())


def test_a_dropped_tick_and_any_output_are_failures() -> None:
    assert list(failures(RESULT)) == []
    found = {**RESULT, "dropped": 1, "printed": "pollconsumer: warning: late"}
    assert list(failures(found)) == ["1 dropped", "launches printed: pollconsumer: warning: late"]
