"""Instants beyond year 9999, which Python cannot show: nothing new has one, and whoever reads them from a store goes
on."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.messages.continuation import packed, unpacked
from pollconsumer.core.notation.instants import LAST_MILLISECOND, datetime_of
from pollconsumer.interface.api.registry import registry
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.testing import Sandbox
from tests.conftest import NAMESPACE
from tests.launched_here import launches_here
from tests.store.acting import message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.store.servers import Server

HALF_A_DAY = 12 * 3_600_000
LAST = datetime.max.replace(tzinfo=timezone(-timedelta(hours=12)))
"""An aware datetime of Python's that is in year 10000 in UTC."""
READING = (
    ("list",),
    ("status",),
    ("status", "late"),
    ("doctor",),
    ("metrics",),
    ("queue", "list"),
    ("recurrences", "list"),
    ("dashboard", "--static", "pages"),
    ("run", "--until-empty"),
)


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_reader_goes_on_where_a_message_is_due_beyond_the_calendar(
    valkey: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[..., tuple[int, str, str]],
    command: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    late = message("late", queue="default", due=float(LAST_MILLISECOND + HALF_A_DAY))
    RedisStore(valkey.wire(), NAMESPACE).enqueue([late])
    with launches_here(), registry.afresh():
        code, out, err = run("--store", valkey.url, "--namespace", NAMESPACE, *command)
    assert code in ({0, 1} if command == ("doctor",) else {0})
    assert "Traceback" not in out + err
    if command == ("status", "late"):
        assert "9999-12-31T23:59:59.999Z" in out
    if command[0] == "dashboard":
        assert any("9999-12-31" in page.read_text() for page in (tmp_path / "pages").rglob("*.html"))


@pytest.mark.parametrize("at", [LAST, LAST - timedelta(hours=11), datetime.max.replace(tzinfo=UTC)], ids=str)
def test_no_call_in_python_accepts_one(app: PollConsumer, sandbox: Sandbox, at: datetime) -> None:
    del sandbox
    waiting = app.enqueue("f", in_="1h")
    for call in (
        lambda: app.enqueue("f", at=at),
        lambda: waiting.reschedule(at=at),
        lambda: app.recurrences.put("r", every="1h", handler="f", first=at),
        lambda: app.recurrences.put("r", every="1h", handler="f", until=at),
    ):
        with pytest.raises(ValueError, match="beyond year 9999"):
            call()


def test_the_last_instant_of_the_calendar_is_accepted(app: PollConsumer, sandbox: Sandbox) -> None:
    del sandbox
    last = datetime_of(LAST_MILLISECOND)
    assert app.enqueue("f", at=last).status().row.timestamps.due_at == LAST_MILLISECOND
    app.recurrences.put("r", every="1h", handler="f", first=last, until=last)
    app.recurrences.put("c", cron="* * * * *", timezone="Asia/Tokyo", handler="f", first=last)


def test_an_entry_of_a_spool_or_an_outbox_with_one_is_none() -> None:
    given = json.loads(json.dumps(packed(message("late", due=float(LAST_MILLISECOND)))))
    assert unpacked(given).due == LAST_MILLISECOND
    with pytest.raises(ValueError, match="late"):
        unpacked(given | {"due": LAST_MILLISECOND + 1})


@pytest.mark.parametrize("start", ["9999-12-31", "9999-12-31T23:59:59.999Z", "0001-01-01", "0001-01-01T00:00:00Z"])
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles", "UTC"])
@pytest.mark.parametrize("rule", [("--cron", "0 12 * * *"), ("--every", "1h")], ids=" ".join)
def test_a_preview_from_an_end_of_the_calendar_shows_what_there_is(
    valkey: Server, run: Callable[..., tuple[int, str, str]], start: str, zone: str, rule: tuple[str, str]
) -> None:
    place = ("--store", valkey.url, "--namespace", NAMESPACE, "recurrences")
    assert run(*place, "add", "n", "f", *rule, "--timezone", zone, "--queue", "q") == (0, "", "")
    code, _, err = run(*place, "next", "n", "--from", start)
    assert (code, err) == (0, "")
