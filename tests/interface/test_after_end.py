"""Recurrences whose period counts from the end of the last one: none overlaps, is late, or stops for ever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Context, Fatal, PollConsumer, RetryIn
from pollconsumer.core.errors import BadData, ConfigurationError
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.testing import Sandbox
from tests.inner import calls_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.site import Site

NOON = datetime(2026, 3, 27, 12, 0, tzinfo=UTC)
NAME = "check:42"


class Check:
    """A recurring handler: when it was due and ran, in seconds since noon; each takes so long, and ends so."""

    def __init__(self, app: PollConsumer, sandbox: Sandbox) -> None:
        self.app, self.sandbox = app, sandbox
        self.due, self.ran = list[float](), list[float]()
        self.takes = 45.0
        self.ends: Callable[[], None] = lambda: None

        @app.handler("check", max_attempts=2)
        def check(occurrence: datetime) -> None:
            self.due.append((occurrence - NOON).total_seconds())
            self.ran.append((sandbox.now - NOON).total_seconds())
            sandbox.advance(self.takes)
            self.ends()

    def put(self, every: str = "10s", **options: Any) -> None:
        self.app.recurrences.put(NAME, every=every, after="end", handler="check", **options)

    def run_for(self, **span: float) -> list[float]:
        """When those were due that ran within ``span``, with a launch every five seconds, and at each next instant."""
        self.due.clear()
        self.ran.clear()
        sandbox, until = self.sandbox, self.sandbox.now + timedelta(**span)
        while sandbox.now <= until:
            sandbox.run()
            following = self.app.recurrences.get(NAME).next
            soon = sandbox.now + timedelta(seconds=5)
            if following is not None and following > sandbox.now:
                soon = min(soon, following)
            sandbox.advance_to(soon)
        return list(self.due)


@pytest.fixture
def check() -> Iterator[Check]:
    app = PollConsumer()
    with Sandbox(app, start=NOON) as sandbox:
        yield Check(app, sandbox)


def test_the_next_is_due_a_period_after_the_end(check: Check) -> None:
    check.put()
    assert check.run_for(minutes=3) == [0, 55, 110, 165]
    assert check.ran == check.due


@pytest.mark.parametrize("takes", [0, 0.25, 9.999, 10, 11, 45])
def test_however_long_it_takes_none_is_late(check: Check, takes: float) -> None:
    check.put()
    check.takes = takes
    due = check.run_for(minutes=10)
    assert due == [pytest.approx(n * (takes + 10), abs=0.001 * (n + 1)) for n in range(len(due))]
    assert len(due) >= 600 / (takes + 10) - 1
    assert check.ran == due


def test_it_counts_from_the_final_end_of_one_that_is_tried_again(check: Check) -> None:
    def fail() -> None:
        if len(check.due) == 1:
            raise RetryIn(600)

    check.put("1m")
    check.takes, check.ends = 10, fail
    assert check.run_for(minutes=15)[:3] == [0, 0, 10 + 600 + 10 + 60]


def test_a_dead_occurrence_has_ended_too(check: Check) -> None:
    def die() -> None:
        raise Fatal("no")

    check.put("1m")
    check.takes, check.ends = 10, die
    assert check.run_for(minutes=3) == [0, 70, 140]
    assert len(check.sandbox.messages("dead")) == 3


def test_dead_occurrences_block_no_later_one_that_must_not_overlap(check: Check) -> None:
    def die() -> None:
        raise Fatal("no")

    check.app.recurrences.put(NAME, every="1m", overlap="skip", handler="check")
    check.takes, check.ends = 10, die
    assert check.run_for(minutes=3) == [0, 60, 120, 180]


def test_a_dead_occurrence_that_is_redriven_is_waited_for(check: Check) -> None:
    def die_first() -> None:
        if len(check.due) == 1:
            raise Fatal("no")

    check.put("1m")
    check.takes, check.ends = 10, die_first
    check.run_for(seconds=30)
    check.ends = lambda: None
    assert check.app.messages(state="dead").redrive_all() == 1
    redriven = check.run_for(minutes=3)
    assert redriven == [0, check.ran[0] + 70, check.ran[0] + 140]


def test_a_cancelled_occurrence_has_ended_too(check: Check) -> None:
    check.put("1m", first=NOON + timedelta(minutes=1))
    check.sandbox.advance("90s")
    assert check.app.messages(state="ready").cancel_all() == 1
    check.takes = 0
    assert check.run_for(minutes=2)[0] == 90 + 60


def test_it_counts_from_the_end_of_one_that_is_forgotten_by_then(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[queues.default]\nkeep_completed = "1m"\n')
    app, due = PollConsumer(), set[float]()
    with Sandbox(app, start=NOON, config=config) as sandbox:

        @app.handler("crawl")
        def crawl(context: Context) -> None:
            assert context.occurrence is not None
            due.add((context.occurrence - NOON).total_seconds() / 60)
            context.sleep("100m")

        @app.handler("other")
        def other() -> None:
            pass

        app.recurrences.put(NAME, every="1h", after="end", handler="crawl")
        app.recurrences.put("other", every="5m", handler="other")
        sandbox.run_for("2h", every="5m")
        assert sandbox.messages("completed", handler="crawl") == []
        sandbox.run_for("1h", every="5m")
    assert due == {0, 160}


def test_an_occurrence_of_which_nothing_is_left_stops_none(check: Check) -> None:
    check.put("1m")
    check.sandbox.advance("0s")
    (lost,) = check.sandbox.messages("ready")
    keys = [f"{{pollconsumer:default}}:{suffix}" for suffix in ("b", "m")]
    calls_of(check.app).ask(lambda store: [store.wire.command("HDEL", key, lost.id) for key in keys])
    check.takes = 0
    assert check.run_for(seconds=90) == [60]


def test_a_pause_is_not_made_up_for(check: Check) -> None:
    check.put("1m")
    check.takes = 10
    check.run_for(seconds=30)
    check.app.recurrences.pause(NAME)
    assert check.run_for(hours=1) == []
    check.app.recurrences.resume(NAME)
    due = check.run_for(minutes=2)
    assert len(due) == 2
    assert 3630 < due[0] <= 3630 + 60
    assert due[1] == due[0] + 70


@pytest.mark.parametrize("missed", ["once", "all"])
def test_one_at_most_was_missed_while_nothing_ran(check: Check, missed: str) -> None:
    check.put("1m", missed=missed)
    check.takes = 10
    check.run_for(seconds=30)
    check.sandbox._clock.now_ms += 3_600_000  # noqa: SLF001  no mover lives meanwhile
    due = check.run_for(minutes=2)
    assert due[:2] == [70, check.ran[1]]
    assert check.ran[1] == check.ran[0] + 70


def test_it_yields_so_many_and_none_after_the_latest_instant(check: Check) -> None:
    check.put(times=2)
    assert check.run_for(minutes=5) == [0, 55]
    assert check.app.recurrences.get(NAME).ended
    began = (check.sandbox.now - NOON).total_seconds()
    check.put(until=check.sandbox.now + timedelta(seconds=100), every="11s", first="now")
    assert check.run_for(minutes=5) == [began, began + 56]
    assert check.app.recurrences.get(NAME).ended


def test_a_decorated_function_recurs_after_its_end(check: Check) -> None:
    begins: list[float] = []

    @check.app.every("10s", after="end")
    def tick() -> None:
        begins.append((check.sandbox.now - NOON).total_seconds())
        check.sandbox.advance("45s")

    check.put(first=NOON + timedelta(days=1))
    check.run_for(minutes=3)
    assert begins == [10, 65, 120, 175]


def test_another_rule_lets_what_is_due_be_due(check: Check) -> None:
    check.app.recurrences.put(NAME, every="1m", handler="check", first=NOON + timedelta(minutes=1))
    check.sandbox._clock.now_ms += 90_000  # noqa: SLF001  no mover lives meanwhile
    check.put("1m")
    check.takes = 0
    assert check.run_for(minutes=2)[0] == 60


def test_a_period_alone_counts_from_an_end(check: Check) -> None:
    wrong: Any = {"cron": "@daily", "handler": "check", "after": "end"}
    with pytest.raises(BadData, match="after: end; it needs every, a period"):
        check.app.recurrences.put(NAME, **wrong)
    with pytest.raises(ConfigurationError, match="after: end; it needs every, a period"):
        check.app.every("@daily", name="tick", after="end")(lambda: None)
    with pytest.raises(BadData, match="after: 'start'; one of due, end"):
        check.app.recurrences.put(NAME, **wrong | {"after": "start"})


def test_it_is_added_and_configured(site: Site) -> None:
    config = site.directory / "config.toml"
    config.write_text(config.read_text() + "[recurrences.beat]\nhandler = 'record'\nevery = '1m'\nafter = 'end'\n")
    site.command("recurrences", "add", NAME, "record", '{"name": "a"}', "--every", "5m", "--after", "end")
    listed = {each["name"]: each["rule"] for each in site.json("recurrences", "list")}
    assert (listed["beat"], listed[NAME]) == ("every 1m after the end", "every 5m after the end")


def test_a_launch_takes_up_what_one_of_a_version_before_could_not_read(check: Check) -> None:
    check.put("1m")
    keys = [f"{{pollconsumer:default}}:{suffix}" for suffix in ("nz", "recurrences_unreadable")]
    calls_of(check.app).ask(lambda store: store.wire.command("ZREM", keys[0], NAME))
    calls_of(check.app).ask(lambda store: store.wire.command("ZADD", keys[1], epoch_ms(NOON), NAME))
    check.takes = 0
    assert check.run_for(minutes=1) == [0, 60]
