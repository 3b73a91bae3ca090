"""A batch is the same wherever it is met: with its producer, looked up, in a member, in a callback, where it starts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Batch, Context, Fatal, NotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer import PollConsumer
    from pollconsumer.testing import Sandbox

HANDLERS = ("member", "callback")


class Shop:
    """Its batch has three members: the last one looks at the batch, and so does the callback at its end."""

    def __init__(self, app: PollConsumer, look: Callable[[Batch], object]) -> None:
        self.app, self.found = app, dict[str, Any]()
        self.broken = True

        @app.handler(max_attempts=1)
        def load(path: str) -> int:
            if self.broken and path == "b.csv":
                raise Fatal("no table")
            return len(path)

        @app.handler
        def member(context: Context) -> None:
            assert context.batch is not None
            self.found["member"] = look(context.batch)

        @app.handler
        def callback(context: Context) -> None:
            assert context.batch is not None
            self.found["callback"] = look(context.batch)

        self.load, self.member, self.callback = load, member, callback

    def open(self) -> Batch:
        with self.app.batch("import", ended=self.callback.args()) as batch:
            batch.add(self.load.args("a.csv"))
            batch.add(self.load.args("b.csv").using(headers={"row": "7"}))
            batch.add(self.member.args())
        return batch


def counts(batch: Batch) -> list[object]:
    return [batch.total, batch.completed, batch.dead, batch.cancelled, batch.expired]


def test_its_counts_results_and_failures_are_the_same_wherever_it_is_met(app: PollConsumer, sandbox: Sandbox) -> None:
    def look(batch: Batch) -> tuple[Any, ...]:
        return batch.id, counts(batch), [*batch.results()], [*batch.failures()], batch.index

    shop = Shop(app, look)
    opened = shop.open()
    sandbox.run()
    (name, before, results, failures, index), after = shop.found["member"], shop.found["callback"]
    assert (name, before, index, after[4]) == ("import", [3, 1, 1, 0, 0], 2, None)
    assert [(each.index, each.result) for each in results] == [(0, 5)]
    failure = (1, "load", {"path": "b.csv"}, {"row": "7"}, "dead", None)
    assert [(each.index, each.handler, each.payload, each.headers, each.state, each.result) for each in failures] == [
        failure
    ]
    found = app.batches.get("import")
    assert look(found) == look(opened) == after
    assert opened.wait() == found.wait() == found.status() == asyncio.run(app.batches.get("import").wait_async())
    assert (opened.state, after[1], after[3]) == ("ended", [3, 2, 1, 0, 0], failures)


def test_it_shows_its_counts_as_they_were_read_last(app: PollConsumer, sandbox: Sandbox) -> None:
    shop = Shop(app, lambda batch: (repr(batch), batch.state, repr(batch)))
    assert repr(shop.open()) == "<Batch import>"
    sandbox.run()
    ended = "<Batch import, ended: 2 of 3 completed, 1 dead>"
    assert shop.found["member"] == ("<Batch import>", "closed", "<Batch import, closed: 1 of 3 completed, 1 dead>")
    assert shop.found["callback"] == ("<Batch import>", "ended", ended)
    assert repr(app.batches.get("import")) == repr(next(iter(app.batches))) == ended


def test_a_callback_redrives_what_failed(app: PollConsumer, sandbox: Sandbox) -> None:
    def mend(batch: Batch) -> int:
        shop.broken = False
        return batch.redrive() if batch.index is None else 0

    shop = Shop(app, mend)
    shop.open()
    sandbox.run()
    assert shop.found["callback"] == 1
    assert counts(app.batches.get("import")) == [3, 3, 0, 0, 0]


def test_a_member_cancels_the_others(app: PollConsumer, sandbox: Sandbox) -> None:
    shop = Shop(app, lambda batch: batch.cancel())
    with app.batch("import") as batch:
        batch.add(shop.member.args())
        batch.add(shop.load.args("a.csv"))
    sandbox.run()
    assert shop.found["member"] == (1, 1)  # itself is asked to stop
    assert batch.cancelled == 1


@pytest.mark.parametrize("where", HANDLERS)
def test_nothing_in_hand_waits_for_its_batch(app: PollConsumer, sandbox: Sandbox, where: str) -> None:
    def wait(batch: Batch) -> str:
        with pytest.raises(UsageError) as refused:
            batch.wait()
        return str(refused.value)

    shop = Shop(app, wait)
    shop.open()
    sandbox.run()
    assert shop.found[where] == "batch.wait: in a handler; give the batch a callback: then=, failed=, ended="


def test_one_that_a_handler_starts_is_not_there_before_the_completion(app: PollConsumer, sandbox: Sandbox) -> None:
    seen = list[object]()

    @app.handler
    def starts(context: Context) -> None:
        batch = context.start_batch("started")
        batch.add(brief.args())
        with pytest.raises(NotFound):
            seen.append(batch.state)
        seen.append(batch)

    @app.handler
    def brief() -> None: ...

    starts.enqueue()
    sandbox.run()
    (batch,) = seen
    assert isinstance(batch, Batch)
    assert (batch.id, counts(app.batches.get("started"))) == ("started", [1, 1, 0, 0, 0])


@pytest.mark.usefixtures("sandbox")
def test_one_that_takes_no_members_says_where_they_are_added(app: PollConsumer) -> None:
    shop = Shop(app, lambda _: None)
    shop.open()
    with pytest.raises(UsageError, match=r"^batch: import; add members within the with block of app\.batch\(\.\.\.\)"):
        app.batches.get("import").add(shop.load.args("c.csv"))
