"""Recurrences that a program puts: what it may say, what comes of it, and what a handler is told of the one before."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import BadData, Context, NotFound, PollConsumer, RetryIn
from pollconsumer.store.recurrences import readable
from pollconsumer.testing import Sandbox
from tests.conftest import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.store.servers import Server

NOON = datetime(2026, 3, 27, 12, 0, 7, 123_000, tzinfo=UTC)
NAME = "check:42"


class Site:
    """An application with a handler that counts its own occurrences, by what the one before has found."""

    def __init__(self, app: PollConsumer, sandbox: Sandbox) -> None:
        self.app, self.sandbox = app, sandbox
        self.seen = list[tuple[datetime | None, Any]]()
        self.failing = False
        self.headers: dict[str, str] = {}

        @app.handler("check", queue="checks")
        def check(context: Context, url: str = "") -> dict[str, Any]:
            before = context.previous
            self.seen.append((context.occurrence, before and before.result["n"]))
            self.headers = dict(context.headers)
            if self.failing:
                raise RetryIn(3600)
            return {"n": 1 if before is None else before.result["n"] + 1, "url": url}

        @app.handler("dated")
        def dated(occurrence: datetime) -> None:
            self.seen.append((occurrence, None))

    def after(self, **span: float) -> list[tuple[datetime | None, Any]]:
        """What is seen when so much time has passed."""
        self.seen.clear()
        self.sandbox.advance(timedelta(**span))
        self.sandbox.run()
        return list(self.seen)


@pytest.fixture
def site() -> Iterator[Site]:
    app = PollConsumer()
    with Sandbox(app, start=NOON) as sandbox:
        yield Site(app, sandbox)


def test_one_that_is_put_runs_at_once_then_by_its_period_and_is_told_what_the_last_one_found(site: Site) -> None:
    site.app.recurrences.put(NAME, every="5m", handler="check", payload={"url": "a"}, created_by="ada")
    assert site.after() == [(NOON, None)]
    assert site.after(minutes=5) == [(NOON + timedelta(minutes=5), 1)]
    site.app.recurrences.put(NAME, every="5m", handler="check", payload={"url": "b"}, created_by="ada")
    assert site.after(minutes=5) == [(NOON + timedelta(minutes=10), 2)]
    standing = site.app.recurrences.get(NAME)
    assert standing.previous is not None
    assert standing.previous.result == {"n": 3, "url": "b"}
    rule = readable(standing)
    assert (standing.queue, rule.created_by, rule.created) == ("checks", "ada", NOON)


def test_occurrences_that_are_reserved_together_know_each_other(site: Site) -> None:
    site.app.recurrences.put(NAME, every="1m", handler="check", missed="all")
    site.app.recurrences.put("other", every="1m", handler="check", missed="all")
    seen = site.after(minutes=5)
    assert sorted(n or 0 for _, n in seen) == sorted([*range(6), *range(6)])


def test_one_that_is_tried_again_is_not_the_previous_one_until_it_is_completed(site: Site) -> None:
    site.app.recurrences.put(NAME, every="45m", handler="check")
    site.failing = True
    assert site.after() == [(NOON, None)]
    site.failing = False
    assert site.after(minutes=45) == [(NOON + timedelta(minutes=45), None)]
    assert site.after(minutes=16) == [(NOON, 1)], "its next attempt comes after the one that was due later"
    assert site.after(minutes=30) == [(NOON + timedelta(minutes=90), 1)], "the previous one is so by its instant"


def test_other_messages_are_no_occurrences(site: Site) -> None:
    site.app.enqueue("check", id="no@instantZ")
    assert site.after() == [(None, None)]


def test_a_handler_that_takes_its_instant_is_given_it(site: Site) -> None:
    site.app.recurrences.put("dated", cron="30 14 * * *", timezone="Europe/Paris", handler="dated", first="next")
    assert site.after(hours=3) == [(datetime(2026, 3, 27, 13, 30, tzinfo=UTC), None)]


def test_headers_travel_with_each_occurrence(site: Site) -> None:
    site.app.recurrences.put(NAME, every="1m", handler="check", headers={"Trace": "7"})
    for minutes in (0, 1):
        site.headers.clear()
        site.after(minutes=minutes)
        assert site.headers == {"Trace": "7"}


def test_one_that_is_paused_removed_or_over_yields_nothing_but_is_triggered(site: Site) -> None:
    recurrences = site.app.recurrences
    recurrences.put(NAME, every="1m", handler="check", times=2, first=NOON + timedelta(minutes=3))
    recurrences.pause(NAME)
    assert site.after(minutes=10) == []
    recurrences.resume(NAME)
    assert len(site.after(hours=10)) == 2
    assert recurrences.get(NAME).ended
    triggered = recurrences.trigger(NAME)
    assert triggered.state == "ready"
    assert site.after() == [(site.sandbox.now, 2)]
    assert recurrences.history(NAME, 1)[0].message.id == triggered.id
    recurrences.remove(NAME)
    for act in (recurrences.get, recurrences.remove, recurrences.pause, recurrences.trigger, recurrences.history):
        with pytest.raises(NotFound, match=NAME):
            act(NAME)


def test_many_are_put_and_gone_through(site: Site) -> None:
    wanted = [{"name": f"c{n}", "handler": "check", "every": 60 + n, "first": "next"} for n in range(1200)]
    assert site.app.recurrences.put_many(wanted) == 1200  # type: ignore[arg-type]  # of plain dicts
    assert {each.name for each in site.app.recurrences} == {each["name"] for each in wanted}


def test_they_are_selected_by_the_beginning_of_their_names_and_by_who_put_them(site: Site) -> None:
    for name, creator in (("check:1", "ada"), ("check:2", "bob"), ("report", "ada"), ("last", None)):
        site.app.recurrences.put(name, every="1h", handler="check", created_by=creator)
    select = site.app.recurrences.select

    def names(**by: Any) -> set[str]:
        return {each.name for each in select(**by)}

    assert names() == {"check:1", "check:2", "report", "last"}
    assert names(prefix="check:") == {"check:1", "check:2"}
    assert names(prefix="check*") == set()
    assert names(created_by="ada") == {"check:1", "report"}
    assert names(prefix="check:", created_by="ada") == {"check:1"}


def test_a_nickname_is_stored_as_the_five_fields_that_versions_before_know(site: Site) -> None:
    site.app.recurrences.put(NAME, cron="@Daily", handler="check")
    site.app.every("@hourly", name="tick")(lambda: None)
    site.sandbox.run()
    assert readable(site.app.recurrences.get(NAME)).cron == "0 0 * * *"
    assert readable(site.app.recurrences.get("tick")).cron == "0 * * * *"


def test_each_has_a_form_for_asyncio(site: Site) -> None:
    async def act() -> list[Any]:
        recurrences = site.app.recurrences
        await recurrences.put_async(NAME, every="1m", handler="check")
        await recurrences.put_many_async([{"name": "b", "every": "1m", "handler": "check"}])
        await recurrences.pause_async(NAME)
        paused = (await recurrences.get_async(NAME)).paused
        await recurrences.resume_async(NAME)
        handle = await recurrences.trigger_async(NAME)
        history = await recurrences.history_async(NAME)
        await recurrences.remove_async("b")
        return [paused, history[0].message.id == handle.id, [each.name for each in recurrences]]

    assert asyncio.run(act()) == [True, True, [NAME]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"every": "5x"}, "recurrence x: every: 5x; units are"),
        ({"every": 0.5}, "every: 0.5; must be 1s or more"),
        ({"every": None}, "give cron or every"),
        ({"cron": "* * * * *"}, "give cron or every"),
        ({"every": None, "cron": "61 * * * *"}, "minute must be 0-59"),
        ({"timezone": "Europe/Lodon"}, "did you mean Europe/London?"),
        ({"missed": "never"}, "missed: 'never'; one of skip, once, all"),
        ({"overlap": "maybe"}, "overlap: 'maybe'; one of skip, allow"),
        ({"handler": ""}, "handler"),
        ({"queue": "a b"}, "queue"),
        ({"priority": 10**6}, "priority"),
        ({"enabled": "yes"}, "enabled: 'yes'; true or false"),
        ({"first": "soon"}, "first: 'soon'; now, next, or an instant"),
        ({"times": 0}, "times: 0; a whole number from 1"),
        ({"times": True}, "times: True"),
        ({"headers": {"a b": "c"}}, "header"),
        ({"created_by": ""}, "created_by: ''; text of 1 to 200"),
        ({"payload": {"a": float("nan")}}, "payload"),
    ],
)
def test_one_that_cannot_be_meant_is_refused_by_name_and_value(site: Site, change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"every": "1m", "handler": "check"} | change
    with pytest.raises(BadData) as raised:
        site.app.recurrences.put("x", **given)
    assert said in str(raised.value)
    with pytest.raises(NotFound):
        site.app.recurrences.get("x")


@pytest.mark.parametrize("change", [{"first": datetime(2030, 1, 1)}, {"until": datetime(2030, 1, 1)}, {"evry": "1m"}])
def test_a_naive_instant_and_an_unknown_option_are_refused(site: Site, change: dict[str, Any]) -> None:
    given: dict[str, Any] = {"every": "1m", "handler": "check"} | change
    with pytest.raises(TypeError):
        site.app.recurrences.put("x", **given)


@pytest.mark.parametrize("name", ["", "a b", "ä", "a" * 101, "a\n", None])
def test_a_name_that_could_not_be_part_of_an_id_is_refused(site: Site, name: Any) -> None:
    with pytest.raises(BadData, match="1 to 100 letters"):
        site.app.recurrences.put(name, every="1m", handler="check")


def test_an_equal_payload_is_no_change_however_it_is_written(site: Site) -> None:
    site.app.recurrences.put(NAME, every="1m", handler="any", queue="checks", payload={"a": 1, "b": NOON}, first="next")
    before = site.app.recurrences.get(NAME)
    site.app.recurrences.put(NAME, every=60, handler="any", payload={"b": NOON, "a": 1}, queue="checks")
    assert site.app.recurrences.get(NAME) == before
    assert readable(before) == replace(readable(before), every=60)


@pytest.mark.parametrize("act", ["get", "pause", "trigger", "history", "remove"])
def test_a_name_that_is_no_text_names_no_recurrence(valkey: Server, act: str) -> None:
    app = PollConsumer(store=valkey.url, namespace=NAMESPACE)
    app.recurrences.put("mine", every="1h", handler="check")
    with pytest.raises(NotFound, match="no such recurrence: 5; recurrences list shows"):
        getattr(app.recurrences, act)(5)
