"""What Hangfire promises of recurring jobs and of continuations, by recurrences and callbacks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Context, Fatal, PollConsumer
from pollconsumer.testing import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

NOON = datetime(2026, 3, 27, 12, 0, tzinfo=UTC)


@pytest.fixture
def noon(app: PollConsumer) -> Iterator[Sandbox]:
    with Sandbox(app, start=NOON) as sandbox:
        yield sandbox


@pytest.fixture
def began(app: PollConsumer) -> list[float]:
    """The minutes since noon for which occurrences of the handler ``report`` began."""
    found: list[float] = []

    @app.handler("report")
    def report(occurrence: datetime) -> None:
        found.append((occurrence - NOON).total_seconds() / 60)

    return found


def test_a_trigger_moves_no_instant_of_the_rule(app: PollConsumer, noon: Sandbox, began: list[float]) -> None:
    app.recurrences.put("report", every="1h", handler="report", times=3)
    noon.run()
    noon.advance("20m")
    before = app.recurrences.get("report").next
    app.recurrences.trigger("report")
    noon.run()
    assert app.recurrences.get("report").next == before == NOON + timedelta(hours=1)
    noon.run_for("5h")
    assert [each for each in began if each % 60 == 0] == [0, 60, 120]
    assert len(began) == 4


def test_another_time_zone_counts_from_now_and_brings_nothing_past(
    app: PollConsumer, noon: Sandbox, began: list[float]
) -> None:
    rule: dict[str, Any] = {"cron": "0 13 * * *", "handler": "report", "missed": "all", "first": "next"}
    app.recurrences.put("report", **rule)
    noon.advance("30m")
    app.recurrences.put("report", **rule, timezone="Europe/Paris")  # there it is half past one
    noon.run_for("23h")
    assert began == []
    noon.run_for("1h")
    assert began == [24 * 60]


def test_a_continuation_of_a_failed_parent_comes_once_the_parent_is_redriven(app: PollConsumer, noon: Sandbox) -> None:
    told: list[str] = []
    mended: list[bool] = []

    @app.handler("parent")
    def parent() -> str:
        if not mended:
            raise Fatal("no")
        return "yes"

    @app.handler("tell")
    def tell(context: Context, which: str) -> None:
        assert context.previous is not None
        told.append(f"{which}: {context.previous.state}, {context.previous.result}")

    message = parent.using(then=tell.args("then"), failed=tell.args("failed")).enqueue()
    noon.run()
    assert told == ["failed: dead, None"]
    mended.append(True)
    message.redrive()
    noon.run()
    noon.run()
    assert told == ["failed: dead, None", "then: completed, yes"]


@pytest.mark.parametrize(("overlap", "waiting"), [("allow", 5), ("skip", 1), ("queue", 1), ("replace", 1)])
def test_a_recurrence_whose_handler_nobody_has_stops_no_other_and_goes_on_once_it_is_there(
    app: PollConsumer, noon: Sandbox, began: list[float], overlap: Any, waiting: int
) -> None:
    app.recurrences.put("gone", every="5m", handler="gone", queue="default", overlap=overlap)
    app.recurrences.put("report", every="5m", handler="report")
    noon.run_for("20m")
    assert began == [0, 5, 10, 15, 20]
    states = [str(each.message.state) for each in app.recurrences.history("gone")]
    assert sum(state in ("ready", "scheduled") for state in states) == waiting
    assert set(states) <= {"ready", "scheduled", "cancelled"}
    found: list[datetime | None] = []

    @app.handler("gone")
    def gone(context: Context) -> None:
        found.append(context.occurrence)

    noon.run_for("2m")
    assert len(found) == waiting
    assert found == sorted(found, key=str)
