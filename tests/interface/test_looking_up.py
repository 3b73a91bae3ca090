"""Messages looked up from Python, one by its id or many by what they have in common, and what is done to them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import BadData, Fatal, NotCompleted, NotFound, PollConsumer
from pollconsumer.core.errors import UsageError
from pollconsumer.store.reading import inspector
from pollconsumer.testing import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

NOON = datetime(2026, 3, 27, 12, tzinfo=UTC)


class Site:
    """An application with two handlers, in a sandbox. ``failing``: whether `work` does."""

    def __init__(self, app: PollConsumer, sandbox: Sandbox) -> None:
        self.app, self.sandbox, self.failing, self.handled = app, sandbox, False, list[int]()

        @app.handler("work")
        def work(n: int) -> int:
            if self.failing:
                raise Fatal("told to")
            self.handled.append(n)
            return n

        @app.handler("other", queue="second")
        def other() -> None: ...

        self.work, self.other = work, other


@pytest.fixture
def site() -> Iterator[Site]:
    app = PollConsumer()
    with Sandbox(app, start=NOON) as sandbox:
        yield Site(app, sandbox)


def test_any_message_is_looked_up_by_its_id(site: Site) -> None:
    enqueued = site.work.using(id="mine").enqueue(7)
    found = site.app.message("mine")
    assert (found, found.queue, found.state) == (enqueued, "default", "ready")
    assert found.listed is not None
    assert found.listed.payload == {"n": 7}
    site.sandbox.run()
    assert (found.state, found.wait(0), found.status().attempts) == ("completed", 7, 1)
    assert found.listed.state == "ready", "what was read is kept"
    with pytest.raises(NotFound, match="unknown"):
        site.app.message("unknown")
    with pytest.raises(NotFound, match="no such message: 5; an id is text"):
        site.app.message(5)  # type: ignore[arg-type]


def test_an_id_that_two_queues_have_needs_the_queue(site: Site) -> None:
    for queue in ("default", "second"):
        site.app.enqueue("work", {"n": 1}, id="twin", queue=queue)
    with pytest.raises(UsageError, match="default and second"):
        site.app.message("twin")
    assert site.app.message("twin", queue="second").queue == "second"
    with pytest.raises(NotFound):
        site.app.message("twin", queue="third")


def test_a_message_is_cancelled_until_it_has_ended(site: Site) -> None:
    handle = site.work.enqueue(1)
    site.app.message(handle.id).cancel()
    handle.cancel()
    assert handle.state == "cancelled"
    with pytest.raises(NotCompleted):
        handle.wait(0)
    ended = site.work.enqueue(2)
    site.sandbox.run()
    assert site.handled == [2]
    with pytest.raises(BadData, match="completed already"):
        ended.cancel()


def test_a_message_gets_another_due_time(site: Site) -> None:
    handle = site.work.using(in_="1h").enqueue(1)
    handle.reschedule(at=NOON + timedelta(hours=5))
    assert handle.status().timestamps.due_at == NOON + timedelta(hours=5)
    handle.reschedule(in_="10s")
    site.sandbox.run_for("60s")
    assert site.handled == [1]
    with pytest.raises(BadData, match="completed already"):
        handle.reschedule(in_=1)


@pytest.mark.parametrize(
    ("times", "error"),
    [
        ({}, TypeError),
        ({"in_": 1, "at": NOON}, TypeError),
        ({"at": NOON.replace(tzinfo=None)}, TypeError),
        ({"in_": "soon"}, BadData),
    ],
)
def test_a_due_time_that_is_none_changes_nothing(site: Site, times: dict[str, object], error: type[Exception]) -> None:
    handle = site.work.using(in_="1h").enqueue(1)
    before = handle.status()
    with pytest.raises(error):
        handle.reschedule(**times)  # type: ignore[arg-type]  # what type checkers refuse
    assert handle.status() == before


def test_a_dead_letter_is_redriven_and_nothing_else_is(site: Site) -> None:
    site.failing = True
    handle = site.work.enqueue(1)
    with pytest.raises(BadData, match="ready, no dead letter"):
        handle.redrive()
    site.sandbox.run()
    assert handle.state == "dead"
    site.failing = False
    handle.redrive()
    site.sandbox.run()
    assert (handle.state, handle.status().generation) == ("completed", 1)


def test_a_dead_letter_whose_unique_key_is_taken_stays_one(site: Site) -> None:
    site.failing = True
    handle = site.work.using(key="k").enqueue(1)
    site.sandbox.run()
    site.work.using(key="k").enqueue(2)
    with pytest.raises(BadData, match="unique key"):
        handle.redrive()
    assert handle.state == "dead"


def test_messages_are_found_by_what_they_have_in_common(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector, "PAGE", 2)
    later = [site.work.using(in_="1h").enqueue(n) for n in range(3)]
    ready, keyed = site.work.enqueue(3), site.work.using(key="k").enqueue(4)
    other = site.other.enqueue()
    app = site.app
    assert {*app.messages()} == {*later, ready, keyed, other}
    assert [*app.messages(state="scheduled")] == later
    assert {*app.messages(handler="work", state="ready")} == {ready, keyed}
    assert [*app.messages(queue="second")] == [other]
    assert [*app.messages(key="k")] == [keyed]
    with_same = site.other.using(key="k", queue="default").enqueue()
    assert not with_same.duplicate
    assert {*app.messages(key="k")} == {keyed, with_same}
    assert [*app.messages(key="k", handler="other")] == [with_same]
    assert site.other.using(key="k", key_scope="queue", queue="default").enqueue().id not in (keyed.id, with_same.id)
    assert app.messages(key="k", handler="other").cancel_all() == 2
    site.sandbox.advance("30s")
    assert [*app.messages(older_than="1m")] == []
    assert app.messages(older_than="30s").count() == 8


def test_the_occurrences_of_a_recurrence_are_found(site: Site) -> None:
    @site.app.every("60s", name="tick")
    def tick() -> None: ...

    site.sandbox.run_for("150s")
    site.work.enqueue(1)
    found = [each.id for each in site.app.messages(recurrence="tick")]
    assert found
    assert all(each.startswith("tick@2026-03-27T") for each in found)


def test_messages_are_cancelled_and_redriven_by_their_headers(site: Site) -> None:
    ours = site.work.using(headers={"customer": "7", "plan": "free"}).enqueue(1)
    theirs = site.work.using(headers={"customer": "8"}).enqueue(2)
    site.work.enqueue(3)
    app = site.app
    assert [*app.messages(header={"customer": "7"})] == [ours]
    assert [*app.messages(header={"customer": "7", "plan": "full"})] == []
    assert app.messages(header={"customer": "8"}).cancel_all() == 1
    assert theirs.state == "cancelled"
    assert app.messages(header={"customer": "8"}).redrive_all() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"state": "lost"}, "lost"),
        ({"older_than": "yesterday"}, "yesterday"),
        ({"header": {"customer": 7}}, "header customer: 7"),
        ({"header": "customer=7"}, "headers: 'customer=7'"),
    ],
)
def test_what_selects_no_message_in_any_store_is_refused_at_once(
    site: Site, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        site.app.messages(**options)


def test_messages_can_be_gone_through_twice_and_be_acted_on_meanwhile(site: Site) -> None:
    site.work.enqueue_many([{"n": n} for n in range(5)])
    messages = site.app.messages(handler="work")
    for each in messages:
        each.cancel()
    assert {each.state for each in messages} == {"cancelled"}


def test_all_that_can_be_are_cancelled(site: Site) -> None:
    site.work.enqueue(0)
    site.sandbox.run()
    site.work.enqueue_many([{"n": n} for n in range(1, 4)])
    site.work.using(in_="1h").enqueue(4)
    other = site.other.enqueue()
    assert site.app.messages(handler="work", state="scheduled").cancel_all() == 1
    assert site.app.messages(handler="work").cancel_all() == 3
    assert site.app.messages(handler="work").cancel_all() == 0
    site.sandbox.run()
    assert (site.handled, other.state) == ([0], "completed")


def test_all_dead_letters_are_redriven(site: Site) -> None:
    site.failing = True
    site.work.enqueue_many([{"n": n} for n in range(3)])
    site.app.enqueue("work", {"n": 3}, queue="second")
    site.sandbox.run()
    site.failing = False
    assert site.app.messages(state="completed").redrive_all() == 0
    assert site.app.messages(queue="default").redrive_all() == 3
    assert site.app.messages().redrive_all() == 1
    site.sandbox.run()
    assert sorted(site.handled) == [0, 1, 2, 3]


def test_an_iteration_reads_each_page_when_it_comes_to_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector, "PAGE", 3)
    read = list[int]()
    those = inspector.Inspector.those

    def counting(self: inspector.Inspector, queue: str, ids: list[bytes], index: object = None) -> object:
        read.append(len(ids))
        return those(self, queue, ids, index)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(inspector.Inspector, "those", counting)
    site.work.enqueue_many([{"n": n} for n in range(9)])
    messages = iter(site.app.messages(state="ready"))
    next(messages)
    assert read == [3], "no page is read before it is needed"
    assert sum(1 for _ in messages) == 8
