"""Occurrences that are due while the one before is unfinished: one waits, or replaces that one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Context, PollConsumer, RetryIn, Yield
from pollconsumer.core.errors import BadData, ConfigurationError
from pollconsumer.store.recurrences import readable
from pollconsumer.testing import Sandbox

if TYPE_CHECKING:
    from tests.site import Site

NOON = datetime(2026, 3, 27, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("overlap", ["queue", "replace"])
def test_the_messages_have_an_order_key_that_is_the_recurrences_own_or_the_one_given(overlap: Any) -> None:
    app = PollConsumer()
    app.every("1h", name="x", overlap=overlap)(lambda: None)
    with Sandbox(app) as sandbox:
        sandbox.run()
        app.recurrences.put("y", handler="other", queue="q", every="1h", overlap=overlap, order_key="given")
        keys = {name: readable(app.recurrences.get(name)).options for name in ("x", "y")}
    assert keys == {"x": {"order_key": "recurrence:x"}, "y": {"order_key": "given"}}


@pytest.mark.parametrize("overlap", ["queue", "replace"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"after": "end"}, "; with after = end none overlaps: leave it out"),
        ({"priority": 3}, "priority: 3; messages with an order_key are handled in their order: give 0"),
    ],
)
def test_what_contradicts_an_order_is_refused(overlap: Any, change: dict[str, Any], said: str) -> None:
    app = PollConsumer()
    with Sandbox(app), pytest.raises(BadData) as raised:
        app.recurrences.put("x", handler="other", queue="q", every="1h", overlap=overlap, **change)
    assert said in str(raised.value)
    with pytest.raises(ConfigurationError) as refused:
        app.every("1h", name="x", overlap=overlap, **change)(lambda: None)
    assert said in str(refused.value)


@pytest.mark.parametrize("ends", ["sleep", "signal", "deferral", "yield", "failure"])
def test_one_waits_behind_one_that_has_begun_however_its_attempt_ended(ends: str) -> None:
    app, ran = PollConsumer(), list[tuple[int, int]]()
    with Sandbox(app, start=NOON) as sandbox:

        def minute(moment: datetime | None) -> int:
            return round(((moment or NOON) - NOON).total_seconds() / 60)

        @app.handler("slow", max_attempts=20)
        def slow(context: Context) -> None:
            ran.append((minute(context.occurrence), minute(sandbox.now)))
            if ends == "sleep":
                context.sleep("25m")
            elif ends == "signal":
                context.wait_for("go", timeout="25m")
            elif minute(sandbox.now) < 25 and ends == "yield":
                raise Yield
            elif minute(sandbox.now) < 25:
                raise RetryIn("5m", charged=ends == "failure")

        app.recurrences.put("x", every="10m", handler="slow", overlap="queue")
        sandbox.run_for("24m")
        assert {due for due, _ in ran} == {0}
        assert [str(each.state) for each in sandbox.messages()].count("completed") == 0
        assert len(sandbox.messages()) == 2
        sandbox.run_for("2m")
    assert [due for due, at in ran if at >= 25] == [0, 10]


CONFIGURATION = """
handlers = ["work"]
[consumer]
concurrency = 2
[recurrences.x]
handler = "work"
every = "1s"
overlap = "OVERLAP"
"""
WORK = """
import time
from pathlib import Path
from pollconsumer import Context, PollConsumer
app = PollConsumer()
notes = Path(__file__).with_name("notes")
@app.handler("work")
def work(context: Context) -> None:
    first = not notes.exists()
    with notes.open("a") as lines:
        lines.write("began\\n")
    until = time.monotonic() + (90 if OVERLAP == "replace" else 3)
    while first and time.monotonic() < until:
        time.sleep(0.01)
        if context.cancelled:
            raise RuntimeError("replaced")
    if first:
        with notes.open("a") as lines:
            lines.write("ended\\n")
"""


@pytest.mark.parametrize("overlap", ["queue", "replace"])
def test_one_in_flight_is_waited_for_or_stopped(site: Site, overlap: str) -> None:
    (site.directory / "config.toml").write_text(CONFIGURATION.replace("OVERLAP", overlap))
    (site.directory / "work.py").write_text(WORK.replace("OVERLAP", repr(overlap)))
    assert site.command("run", "--max-messages", "2").returncode == 0
    assert site.notes()[:3] == (["began", "ended", "began"] if overlap == "queue" else ["began", "began"])
    history = [each["state"] for each in site.json("recurrences", "history", "x")]
    assert history[-2:] == ["completed", "completed" if overlap == "queue" else "cancelled"]
    (listed,) = site.json("recurrences", "list")
    assert (listed["overlap"], listed["order_key"]) == (overlap, "recurrence:x")
    if overlap == "queue":
        assert listed["skipped"] >= 1
