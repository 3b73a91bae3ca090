"""Batches as members of batches: when the outer one ends, how, and what is done to both."""

from __future__ import annotations

from typing import Any

import pytest

from pollconsumer import BadData, Context, Fatal, PollConsumer, UsageError
from pollconsumer.interface.api import batches
from pollconsumer.interface.api.batches import AppBatch
from pollconsumer.testing import Sandbox

INNER = "outer.0:batch"


class Work:
    """Handlers ``load`` and ``tell``: what was called back, with the counts of its batch; what ``load`` refuses."""

    def __init__(self, app: PollConsumer, sandbox: Sandbox) -> None:
        self.app, self.sandbox = app, sandbox
        self.told: list[tuple[str, int, int, int]] = []
        self.refused: set[str] = set()
        self.loaded: list[str] = []

        @app.handler("load", queue="files")
        def load(name: str) -> None:
            if name in self.refused:
                raise Fatal(name)
            self.loaded.append(name)

        @app.handler("tell", queue="told")
        def tell(context: Context, what: str) -> None:
            batch = context.batch
            assert batch is not None
            self.told.append((what, batch.total, batch.completed, batch.dead))

        self.load, self.tell = load, tell

    def callbacks(self, which: str) -> Any:
        return {name: self.tell.args(f"{which} {name}") for name in ("then", "failed", "ended")}

    def send(self) -> None:
        """A batch with a message and a batch of two messages as its members."""
        with self.app.batch("outer", **self.callbacks("outer")) as outer:
            with outer.add_batch(**self.callbacks("inner")) as inner:
                for name in ("a", "b"):
                    inner.add(self.load.args(name))
            outer.add(self.load.args("c"))

    def run(self) -> list[str]:
        """What was called back, once nothing is left to do."""
        self.told.clear()
        for _ in range(4):
            self.sandbox.run()
        return [what for what, *_ in self.told]

    def batch(self, name: str = "outer") -> AppBatch:
        return self.app.batches.get(name)


@pytest.fixture
def work(app: PollConsumer, sandbox: Sandbox) -> Work:
    return Work(app, sandbox)


def test_the_outer_batch_is_completed_when_the_inner_one_and_the_others_are(work: Work) -> None:
    work.send()
    assert (work.batch().state, work.batch(INNER).state) == ("closed", "closed")
    assert work.run() == ["inner then", "inner ended", "outer then", "outer ended"]
    assert work.told[0][1:] == work.told[2][1:] == (2, 2, 0)
    assert (work.batch().state, work.batch(INNER).state) == ("ended", "ended")
    assert [each.id for each in work.batch().members()] == ["outer.1"]


def test_an_inner_batch_without_callbacks_ends_its_outer_one_too(work: Work) -> None:
    with work.app.batch("outer", then=work.tell.args("then")) as outer:
        with outer.add_batch() as inner, inner.add_batch() as innermost:
            innermost.add(work.load.args("a"))
        with outer.add_batch():
            pass
    assert work.run() == ["then"]
    assert work.batch(f"{INNER}.0:batch").status().completed == 1


def test_a_failure_in_the_inner_batch_fails_the_outer_one_when_the_inner_one_has_ended(work: Work) -> None:
    work.refused = {"a"}
    work.send()
    assert work.run() == ["inner failed", "inner ended", "outer failed", "outer ended"]
    assert work.told[-1][1:] == (2, 1, 1)


def test_a_redrive_of_the_outer_batch_reaches_the_inner_one_and_completes_both(work: Work) -> None:
    work.refused = {"a", "c"}
    work.send()
    work.run()
    outer = work.batch()
    assert (outer.state, outer.dead) == ("ended", 2)
    work.refused = set()
    assert outer.redrive() == 2
    assert (outer.state, outer.status().outstanding) == ("closed", 2)
    assert work.run() == ["inner then", "outer then"]
    assert (outer.state, outer.completed, outer.dead) == ("ended", 2, 0)


def test_cancelling_the_outer_batch_cancels_what_the_inner_one_has(work: Work) -> None:
    work.send()
    assert work.batch().cancel() == (3, 0)
    assert sorted(work.run()) == ["inner ended", "inner failed", "outer ended", "outer failed"]
    assert (work.batch().dead, work.batch().cancelled, work.batch(INNER).cancelled) == (1, 1, 2)
    assert work.loaded == []


def test_an_inner_batch_whose_members_are_cancelled_may_count_as_completed(work: Work) -> None:
    outer = work.app.batch("outer", then=work.tell.args("then"))
    with outer, outer.add_batch(cancelled_as="completed") as inner:
        inner.add(work.load.args("a"))
    assert work.batch(INNER).cancel() == (1, 0)
    assert work.run() == ["then"]


def test_an_inner_batch_that_expires_fails_the_outer_one_and_completes_it_later(work: Work) -> None:
    with work.app.batch("outer", **work.callbacks("outer")) as outer, outer.add_batch(expires="1h") as inner:
        inner.add(work.load.args("a").using(in_="2h"))
    work.sandbox.advance("1h1s")
    assert work.run() == ["outer failed", "outer ended"]
    work.sandbox.advance("1h")
    assert work.run() == ["outer then"]


def test_an_inner_batch_that_its_producer_left_open_is_abandoned_and_fails_the_outer_one(work: Work) -> None:
    outer = work.app.batch("outer", **work.callbacks("outer"))
    with outer, pytest.raises(ZeroDivisionError), outer.add_batch() as inner:  # noqa: PT012
        inner.add(work.load.args("a"))
        raise ZeroDivisionError
    assert work.run() == []
    work.sandbox.advance("1h1s")
    assert work.run() == ["outer failed", "outer ended"]
    assert work.batch(INNER).state == "abandoned"


def test_a_producer_that_begins_again_adds_the_same_inner_batches_once(work: Work) -> None:
    with pytest.raises(ZeroDivisionError), work.app.batch("outer", **work.callbacks("outer")) as outer:  # noqa: PT012
        with outer.add_batch(**work.callbacks("inner")) as inner:
            inner.add(work.load.args("a"))
            inner.add(work.load.args("b"))
        raise ZeroDivisionError
    assert work.run() == ["inner then", "inner ended"]
    work.send()
    assert work.run() == ["outer then", "outer ended"]
    work.send()
    assert (work.run(), work.loaded) == ([], ["a", "b", "c"])


def test_a_producer_that_begins_again_without_the_inner_batch_is_refused(work: Work) -> None:
    with pytest.raises(ZeroDivisionError), work.app.batch("outer") as outer, outer.add_batch():
        raise ZeroDivisionError
    with pytest.raises(UsageError, match="add the same ones in the same order"), work.app.batch("outer"):
        pass


def test_an_outer_batch_whose_producer_works_within_an_inner_one_is_not_abandoned(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "HEARD_EVERY", -1.0)
    with work.app.batch("outer", **work.callbacks("outer")) as outer, outer.add_batch() as inner:
        for name in ("a", "b", "c", "d"):
            work.sandbox.advance("40m")
            inner.add(work.load.args(name))
    assert work.run() == ["outer then", "outer ended"]


def test_one_that_is_added_and_not_opened_is_refused_since_its_batch_would_wait_for_ever(work: Work) -> None:
    with pytest.raises(UsageError, match=f"{INNER}; it was added, and not opened"), work.app.batch("outer") as outer:
        outer.add_batch()


def test_an_id_that_those_of_inner_batches_end_with_is_refused(work: Work) -> None:
    with pytest.raises(BadData, match="another ending than :batch"):
        work.app.batch("mine:batch")


def test_a_member_adds_a_batch_and_a_handler_starts_batches_within_one(work: Work) -> None:
    app = work.app

    @app.handler("folder")
    def folder(context: Context, names: list[str]) -> None:
        assert context.batch is not None
        inner = context.batch.add_batch(**work.callbacks("inner"))
        for name in names:
            inner.add(work.load.args(name))

    @app.handler("nightly")
    def nightly(context: Context) -> None:
        outer = context.start_batch("night", **work.callbacks("night"))
        innermost = outer.add_batch(**work.callbacks("folder")).add_batch()
        innermost.add(work.load.args("x"))
        outer.add_batch()

    with app.batch("outer", **work.callbacks("outer")) as outer:
        outer.add(folder.args(["a", "b"]))
    assert work.run() == ["inner then", "inner ended", "outer then", "outer ended"]
    assert work.told[-1][1:] == (2, 2, 0)
    nightly.enqueue()
    assert work.run() == ["folder then", "folder ended", "night then", "night ended"]
    assert work.told[-1][1:] == (2, 2, 0)


def test_nothing_takes_a_batch_that_takes_no_member(work: Work) -> None:
    refused: list[str] = []

    @work.app.handler("late")
    def late(context: Context) -> None:
        assert context.batch is not None
        with pytest.raises(UsageError, match="in a callback") as error:
            context.batch.add_batch()
        refused.append(str(error.value))

    with work.app.batch("outer", then=late.args()) as outer:
        pass
    with pytest.raises(UsageError, match="within its with block"):
        outer.add_batch()
    with pytest.raises(UsageError, match="within the with block"):
        work.batch().add_batch()
    work.run()
    assert len(refused) == 1
