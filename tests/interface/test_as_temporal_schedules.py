"""What Temporal's schedules do about overlaps, outages, jitter, pauses and triggers, by recurrences."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Context, Fatal, PollConsumer
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.testing import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

NOON = datetime(2026, 3, 27, 12, 0, tzinfo=UTC)
NAME = "report"


class Reports:
    """A recurring handler: for which minute since noon, and in which, each occurrence began. ``takes``: the minutes
    that one takes, by the minute that it is for. One whose launch is told to stop does so."""

    def __init__(self, app: PollConsumer, sandbox: Sandbox) -> None:
        self.app, self.sandbox = app, sandbox
        self.began = list[tuple[float, float]]()
        self.takes = dict[float, float]()

        @app.handler("report", timeout="2h")
        def report(context: Context) -> float:
            due = self.minute(context.occurrence)
            self.began.append((due, self.minute(sandbox.now)))
            for _ in range(round(self.takes.get(due, 0))):
                sandbox.advance("1m")
                if context.stop_asked:
                    raise InterruptedError("replaced")
            return due

    @staticmethod
    def minute(instant: datetime | None) -> float:
        assert instant is not None
        return (instant - NOON).total_seconds() / 60

    def put(self, **options: Any) -> None:
        if "cron" not in options:
            options.setdefault("every", "5m")
        self.app.recurrences.put(NAME, handler="report", **options)

    def states(self) -> list[str]:
        """States of the occurrences, the oldest first."""
        return [str(each.message.state) for each in reversed(self.app.recurrences.history(NAME))]


@pytest.fixture
def reports() -> Iterator[Reports]:
    app = PollConsumer()
    with Sandbox(app, start=NOON) as sandbox:
        yield Reports(app, sandbox)


def test_one_waits_for_the_long_one_and_the_rule_goes_on_after_it(reports: Reports) -> None:
    reports.put(overlap="queue")
    reports.takes = {0: 17}
    reports.sandbox.run_for("30m")
    assert reports.began == [(0, 0), (5, 17), (20, 20), (25, 25), (30, 30)]
    assert reports.app.recurrences.get(NAME).skipped == 2


def test_of_several_that_replace_the_one_in_flight_the_last_one_alone_begins(reports: Reports) -> None:
    reports.put(overlap="replace")
    reports.takes = {0: 3, 5: 30, 10: 30}
    reports.sandbox.run_for("8m")
    assert reports.began == [(0, 0), (5, 5)]
    assert reports.states()[:2] == ["completed", "cancelled"]
    reports.sandbox.run_for("4m")
    assert reports.began == [(0, 0), (5, 5), (10, 10)]


def test_occurrences_that_may_overlap_begin_each_in_its_turn_behind_a_long_one(reports: Reports) -> None:
    reports.put(overlap="allow")
    reports.takes = {0: 17}
    reports.sandbox.run_for("20m")
    assert reports.began == [(0, 0), (5, 17), (10, 17), (15, 17), (20, 20)]


def test_after_an_outage_what_was_missed_begins_but_for_what_is_beyond_its_latest_start(reports: Reports) -> None:
    reports.put(every="1h", missed="all", expires="90m")
    sandbox, app = reports.sandbox, reports.app
    sandbox.run()
    outage = sandbox.now + timedelta(hours=6, minutes=10)
    sandbox._clock.now_ms = epoch_ms(outage)  # noqa: SLF001  nobody is there, not even a mover
    sandbox.run()
    assert [due for due, _ in reports.began] == [0, 300, 360]
    assert reports.states() == ["completed", *["expired"] * 4, "completed", "completed"]
    assert app.recurrences.get(NAME).next == NOON + timedelta(hours=7)


def test_what_would_have_been_due_in_a_pause_is_neither_made_up_for_nor_counted(reports: Reports) -> None:
    reports.put(every="1h", missed="all")
    sandbox, app = reports.sandbox, reports.app
    sandbox.run()
    app.recurrences.pause(NAME)
    sandbox.run_for("5h30m")
    app.recurrences.resume(NAME)
    sandbox.run_for("1h")
    assert [due for due, _ in reports.began] == [0, 360]
    assert app.recurrences.get(NAME).skipped == 0


@pytest.mark.parametrize("overlap", ["queue", "replace"])
def test_a_triggered_occurrence_waits_for_the_one_in_flight_and_replaces_nothing(
    reports: Reports, overlap: Any
) -> None:
    app, sandbox = reports.app, reports.sandbox
    states: list[str] = []

    @app.handler("slow", timeout="2h")
    def slow(context: Context) -> None:
        if context.occurrence == NOON:
            sandbox.advance("10m")
            triggered = app.recurrences.trigger("slow")
            states.extend([str(triggered.state), str(context.stop_asked)])
            sandbox.advance("10m")
        states.append("began")

    app.recurrences.put("slow", every="1h", handler="slow", overlap=overlap)
    sandbox.run_for("30m")
    assert states == ["ready", "False", "began", "began"]


@pytest.mark.parametrize("again", [{}, {"payload": {}}, {"expires": "1h"}])
def test_putting_it_again_between_the_instant_and_its_jittered_time_moves_nothing(
    reports: Reports, again: dict[str, Any]
) -> None:
    rule: dict[str, Any] = {"cron": "30 * * * *", "jitter": "20m", "first": "next"}
    reports.put(**rule)
    due = reports.app.recurrences.get(NAME).next
    assert due is not None
    jittered = reports.minute(due)
    assert 30 < jittered < 50
    reports.sandbox.advance_to(NOON + timedelta(minutes=30, seconds=1))
    reports.put(**rule | again)
    reports.sandbox.run_for("1h")
    assert [began for _, began in reports.began] == [pytest.approx(jittered, abs=0.01)]


@pytest.mark.parametrize("resumes_in_time", [True, False])
def test_a_pause_that_ends_before_the_jittered_time_leaves_the_occurrence(
    reports: Reports, resumes_in_time: bool
) -> None:
    reports.put(cron="30 * * * *", jitter="20m", first="next", missed="all")
    app, sandbox = reports.app, reports.sandbox
    due = app.recurrences.get(NAME).next
    assert due is not None
    sandbox.advance_to(NOON + timedelta(minutes=29))
    app.recurrences.pause(NAME)
    sandbox.advance_to(due + timedelta(seconds=-1 if resumes_in_time else 1))
    app.recurrences.resume(NAME)
    sandbox.run_for("10m")
    assert len(reports.began) == resumes_in_time
    assert app.recurrences.get(NAME).next == due + timedelta(hours=1)


def test_the_previous_result_is_that_of_the_last_one_that_completed_though_others_died_since(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    previous: list[Any] = []

    @app.handler("count", max_attempts=1)
    def count(context: Context) -> int:
        previous.append(context.previous and context.previous.result)
        if len(previous) in (2, 3):
            raise Fatal("no data")
        return len(previous)

    app.recurrences.put("count", every="1h", handler="count")
    sandbox.run_for("4h")
    assert previous == [None, 1, 1, 1, 4]


def test_another_overlap_holds_from_the_next_occurrence_on(reports: Reports) -> None:
    reports.put(overlap="allow")
    reports.takes = {0: 12, 15: 12}
    reports.sandbox.run_for("13m")
    assert reports.began == [(0, 0), (5, 12), (10, 12)]
    reports.put(overlap="skip")
    reports.sandbox.run_for("20m")
    assert reports.began[3:] == [(15, 15), (30, 30)]


def test_a_first_and_a_latest_instant_both_belong_to_the_schedule(reports: Reports) -> None:
    reports.put(first=NOON + timedelta(minutes=10), until=NOON + timedelta(minutes=20))
    reports.sandbox.run_for("1h")
    assert reports.began == [(10, 10), (15, 15), (20, 20)]
    assert reports.app.recurrences.get(NAME).ended
