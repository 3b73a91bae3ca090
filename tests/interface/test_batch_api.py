"""Batches, chains and callbacks as programs use them, in a sandbox."""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import Any

import pytest

from pollconsumer import BadData, Context, Fatal, NotCompleted, NotFound, PollConsumer, Yield
from pollconsumer.core.errors import OutcomeUnknown, UsageError
from pollconsumer.interface.api.batches import LinkHandle, OpenBatch
from pollconsumer.store.reading.batch_reader import FIRST_ADDED, PER_CHUNK, BatchReader, BatchStatus
from pollconsumer.testing import Sandbox
from tests.inner import calls_of

app = PollConsumer()
told: list[tuple[str, Any]] = []


@app.handler("load", queue="load")
def load(context: Context, number: int) -> int:
    assert context.batch is None or context.batch.index is not None
    if number < 0:
        raise Fatal("no")
    return 2 * number


@app.handler("grow", queue="grow")
def grow(context: Context, by: int) -> None:
    assert context.batch is not None
    for number in range(by):
        context.batch.add(load.args(number))


@app.handler("swarm", queue="grow")
def swarm(context: Context, by: int) -> None:
    started, batch = context.start_batch("swarm"), context.batch
    assert batch is not None
    with ThreadPoolExecutor(8) as pool:
        ids = [*pool.map(lambda n: (batch if n % 2 else started).add(nothing.args(n)), range(2 * by))]
    assert len({*ids}) == 2 * by


@app.handler("plain", queue="load")
def plain(word: str) -> str:
    return word


@app.handler("start", queue="load")
def start(context: Context, members: int, fails: bool = False) -> None:
    batch = context.start_batch(f"of-{context.id}", ended=tell.args("started"))
    for number in range(members):
        batch.add(load.args(number))
    if fails:
        raise Fatal("no")


@app.handler("pauses", queue="load")
def pauses(context: Context) -> None:
    if context.state is None:
        context.checkpoint({})
        raise Yield
    context.sleep("5m")


@app.handler("silent", queue="load", result_ttl=0)
def silent(number: int) -> int:
    return number


@app.handler("nothing", queue="load")
def nothing(number: int) -> None: ...


@app.handler("keep", queue="load", result_ttl="7d")
def keep(number: int) -> int:
    return number


@app.handler("brief", queue="load", result_ttl="1m")
def brief(number: int) -> int:
    return number


@app.handler("breaks", queue="tell")
def breaks() -> None:
    raise Fatal("a callback of no use")


@app.handler("tell", queue="tell")
def tell(context: Context, word: str) -> None:
    batch, previous = context.batch, context.previous
    if batch is None:
        told.append((word, previous and (previous.state, previous.result)))
        return
    counts = batch.total, batch.completed, batch.dead, batch.cancelled, batch.expired
    results = [each.result for each in batch.results()]
    told.append((word, (counts, results, [each.error for each in batch.failures()])))


@app.handler("add", queue="add")
def add(context: Context, number: int) -> int:
    if number < 0:
        raise Fatal("less than nothing")
    return number + (context.previous.result if context.previous else 0)


def a_batch(name: str | None = "import", expires: str | None = None) -> OpenBatch:
    return app.batch(
        name, then=tell.args("then"), failed=tell.args("failed"), ended=tell.args("ended"), expires=expires
    )


@pytest.fixture
def sandbox() -> Any:
    told.clear()
    with Sandbox(app) as sandbox:
        yield sandbox


def words() -> list[str]:
    return [word for word, _ in told]


def test_a_batch_calls_back_when_all_members_are_completed(sandbox: Sandbox) -> None:
    with a_batch() as batch:
        ids = [batch.add(load.args(number)) for number in range(3)]
        ids.append(batch.add(plain.args("x")))
    assert ids == ["import.0", "import.1", "import.2", "import.3"]
    assert app.batches.get("import").state == "closed"
    sandbox.run()
    counts: Any = ((4, 4, 0, 0, 0), [0, 2, 4, "x"], [])
    assert told == [("then", counts), ("ended", counts)]
    found = app.batches.get("import")
    assert found.wait().state == "ended"
    assert [(each.id, each.result) for each in found.results()] == [
        ("import.0", 0),
        ("import.1", 2),
        ("import.2", 4),
        ("import.3", "x"),
    ]
    assert [each.id for each in app.batches] == ["import"]


def test_the_callbacks_of_a_batch_are_shown_by_name_with_the_states_of_their_messages(sandbox: Sandbox) -> None:
    with app.batch("import", then=tell.args("then"), failed=plain.args("x"), ended=breaks.args()) as batch:
        batch.add(load.args(1))
        batch.add(load.args(-1))
    found = app.batches.get("import")
    assert [tuple(each) for each in found.status().callbacks] == [
        ("then", "tell", "import:then", "tell", "waiting"),
        ("failed", "plain", "import:failed", "load", "waiting"),
        ("ended", "breaks", "import:ended", "tell", "waiting"),
    ]
    sandbox.run()
    states = [each.state for each in found.status().callbacks]
    assert states == [None, "completed", "dead"]
    assert [each.state for each in next(iter(app.batches)).listed.callbacks] == states


@pytest.mark.usefixtures("sandbox")
def test_a_member_added_outside_of_the_block_is_refused_since_nothing_would_send_it() -> None:
    batch = a_batch()
    with pytest.raises(UsageError, match=r"batch: import; add members within its with block"):
        batch.add(load.args(0))
    with batch:
        batch.add(load.args(1))
    with pytest.raises(UsageError, match="within its with block"):
        batch.add(load.args(2))
    with pytest.raises(UsageError, match="within its with block"):
        asyncio.run(batch.add_async(load.args(3)))
    assert app.batches.get("import").status().total == 1


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("given", [load, 7])
def test_what_are_no_arguments_of_a_handler_is_no_member_and_no_link(given: Any) -> None:
    said = "must be arguments of a handler, as handler.args"
    with a_batch() as batch, pytest.raises(TypeError, match=f"a member of a batch {said}"):
        batch.add(given)
    with pytest.raises(TypeError, match=f"a link of a chain {said}"):
        app.chain(load.args(1), given)


def test_a_batch_with_a_dead_member_calls_back_and_again_after_a_redrive(sandbox: Sandbox) -> None:
    with a_batch() as batch:
        batch.add(load.args(-1))
        batch.add(load.args(1))
    sandbox.run()
    assert told[-1] == ("ended", ((2, 1, 1, 0, 0), [2], ["Fatal: no"]))
    assert words() == ["failed", "ended"]
    found = app.batches.get("import")
    assert [each.id for each in found.members("dead")] == ["import.0"]
    assert found.redrive() == 1
    going_on = found.status()
    assert (going_on.state, going_on.dead, going_on.outstanding, going_on.ended_at) == ("closed", 0, 1, None)
    with pytest.raises(TimeoutError):
        found.wait("10ms")
    sandbox.run()
    again = found.wait()
    assert (again.state, again.dead, again.outstanding) == ("ended", 1, 0)
    assert again.ended_at is not None
    assert words() == ["failed", "ended"]


def test_a_batch_whose_redriven_member_ends_while_it_is_looked_at_is_told_as_it_is_then(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_batch() as batch:
        batch.add(load.args(-1))
    sandbox.run()
    found = app.batches.get("import")
    assert found.redrive() == 1
    app.message("import.0").change(payload={"number": 1})
    read = BatchReader.page

    def ending(reader: BatchReader, batch: BatchStatus, which: str | None, chunk: int) -> Any:
        sandbox.run()
        return read(reader, batch, which, chunk)

    monkeypatch.setattr(BatchReader, "page", ending)
    seen = found.status()
    assert (seen.state, seen.completed, seen.dead) == ("ended", 1, 0)


def test_a_redriven_member_is_no_failure_and_is_cancelled_with_the_others(sandbox: Sandbox) -> None:
    with app.batch("import", failed=tell.args("failed").using(in_="1h")) as batch:
        batch.add(load.args(-1))
        batch.add(load.args(-2))
    sandbox.run()
    app.message("import.1").redrive()
    sandbox.advance("1h")
    calls_of(app).ask(lambda store: store.actions.pause("load", paused=True))
    sandbox.run()
    assert told == [("failed", ((2, 0, 1, 0, 0), [], ["Fatal: no"]))], "of the two dead ones one is redriven"
    assert app.batches.get("import").cancel() == (1, 0)
    assert (app.message("import.0").state, app.message("import.1").state) == ("dead", "cancelled")


def test_a_member_that_yields_and_sleeps_has_not_ended(sandbox: Sandbox) -> None:
    with a_batch() as batch:
        batch.add(pauses.args())
    sandbox.run()
    sandbox.run()
    assert (app.message("import.0").state, words()) == ("scheduled", [])
    sandbox.advance("5m")
    sandbox.run()
    assert words() == ["then", "ended"]


def test_members_that_leave_no_result_are_counted(sandbox: Sandbox) -> None:
    with a_batch() as batch:
        batch.add(silent.args(1))
        batch.add(silent.args(2))
    sandbox.run()
    assert told[0] == ("then", ((2, 2, 0, 0, 0), [None, None], []))


def test_results_of_members_are_kept_for_the_callback(sandbox: Sandbox) -> None:
    with a_batch() as batch:
        batch.add(brief.args(1))
        batch.add(load.args(1).using(in_="2h"))
    sandbox.run()
    sandbox.advance("2h")
    sandbox.run()
    assert told[0] == ("then", ((2, 2, 0, 0, 0), [1, 2], []))


def test_results_outlive_their_members_and_are_passed_over_after_that(sandbox: Sandbox) -> None:
    with a_batch() as batch:
        batch.add(load.args(1))
        batch.add(app.chain(keep.args(1), plain.args("x")))
        batch.add(keep.args(3))
        batch.add(load.args(2).using(in_="39h"))
    sandbox.run_for("40h", every="8h")
    with pytest.raises(NotFound):
        app.message("import.0")
    assert told[0] == ("then", ((4, 4, 0, 0, 0), [2, 3, 4], []))  # not of a chain whose links are forgotten
    found = app.batches.get("import")
    assert [each.id for each in found.members("completed")] == ["import.3"]
    sandbox.run_for("16h", every="8h")
    assert (found.status().completed, [(each.id, each.result) for each in found.results()]) == (
        4,
        [("import.2", 3), ("import.3", 4)],
    )


def test_a_callback_that_fails_leaves_its_batch_and_the_members_as_they_are(sandbox: Sandbox) -> None:
    with app.batch("import", then=breaks.args(), ended=tell.args("ended")) as batch:
        batch.add(load.args(1))
    sandbox.run()
    found = app.batches.get("import")
    assert (found.state, found.status().completed, words()) == ("ended", 1, ["ended"])
    assert [app.message(each).state for each in ("import.0", "import:then")] == ["completed", "dead"]


def test_a_member_adds_members(sandbox: Sandbox) -> None:
    with a_batch() as batch:
        batch.add(grow.args(5))
        batch.add(grow.args(0))
    sandbox.run()
    assert told[0] == ("then", ((7, 7, 0, 0, 0), [None, None, 0, 2, 4, 6, 8], []))
    assert words() == ["then", "ended"]


def test_a_batch_whose_producer_takes_its_time_is_not_abandoned(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.interface.api.batches.HEARD_EVERY", 0.0)
    with a_batch() as batch:
        for number in range(3):
            batch.add(load.args(number))
            sandbox.advance("40m")
    sandbox.run()
    assert words() == ["then", "ended"]


def test_the_members_of_an_open_batch_are_found(sandbox: Sandbox) -> None:
    with a_batch() as batch:
        for number in range(600):
            batch.add(load.args(number))
        found = app.batches.get("import")
        assert len([*found.members()]) == 600
        assert found.cancel() == (600, 0)
    assert sandbox.messages("cancelled")


def test_members_of_an_open_batch_are_found_after_many_that_have_ended(sandbox: Sandbox) -> None:
    with a_batch() as batch:
        for number in range(600):
            batch.add(load.args(number).using(in_="0s" if number < PER_CHUNK else "1d"))
        found = app.batches.get("import")
        assert sandbox.run().handled == PER_CHUNK
        assert found.cancel() == (600 - PER_CHUNK, 0)
    sandbox.run()
    assert words() == ["failed", "ended"]


def test_a_chain_that_is_too_large_is_refused() -> None:
    with pytest.raises(BadData, match="callbacks and links"):
        app.chain(*[plain.args("x" * 1_000_000)] * 6)


def test_a_batch_of_many_members_is_sent_as_it_grows(sandbox: Sandbox) -> None:
    with a_batch() as batch:
        for number in range(700):
            batch.add(load.args(number))
        assert sandbox.messages(queue="load")
    assert app.batches.get("import").status().total == 700
    assert app.batches.get("import").cancel() == (700, 0)
    sandbox.run()
    assert words() == ["failed", "ended"]
    assert app.batches.get("import").status().cancelled == 700


def test_a_batch_whose_producer_failed_goes_on_where_it_was_and_each_member_counts_once(sandbox: Sandbox) -> None:
    def begin() -> None:
        with a_batch() as batch:
            for number in range(400):
                batch.add(load.args(number))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        begin()
    sandbox.run()
    assert told == []
    assert app.batches.get("import").state == "open"
    for is_duplicate in (False, True):
        with a_batch() as batch:
            for number in range(400):
                batch.add(load.args(number))
        assert batch.duplicate is is_duplicate
        sandbox.run()
    assert words() == ["then", "ended"]
    assert app.batches.get("import").status().completed == 400


@pytest.mark.parametrize(
    ("ready", "scheduled", "said"),
    [(400, 0, 300), (0, 400, 11), (10, 390, 11), (11, 389, 11), (20, 380, 20), (10, 0, None), (0, 10, None)],
)
def test_a_producer_that_begins_again_with_fewer_members_is_refused(
    sandbox: Sandbox, ready: int, scheduled: int, said: int | None
) -> None:
    members = [load.args(1)] * ready + [load.args(1).using(in_="5m")] * scheduled

    def produce(count: int) -> None:
        with a_batch() as batch:
            for member in members[:count]:
                batch.add(member)
            if count > 10:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        produce(400)
    sandbox.run()
    refusal = f"batch: import; this run has added 10 members, one before it at least {said}: add the same"
    with pytest.raises(UsageError, match=refusal) if said else nullcontext():
        produce(10)
    assert app.batches.get("import").state == ("open" if said else "closed")


def test_members_that_have_ended_and_are_forgotten_are_not_enqueued_again(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.interface.api.batches.PAGE", 1)
    batch = a_batch().__enter__()
    batch.add(load.args(-1))  # and its producer dies
    sandbox.run()
    assert calls_of(app).ask(lambda store: store.actions.purge("load", ["import.0"])) == ["import.0"]
    for _ in range(3):  # so long its id is remembered
        sandbox.advance("11m")
        sandbox.run()
    for is_duplicate in (False, True):
        with a_batch() as batch:
            batch.add(load.args(-1))
            batch.add(load.args(1))
        assert batch.duplicate is is_duplicate
        sandbox.run()
        with pytest.raises(NotFound):
            app.message("import.0")
    assert words() == ["failed", "ended"]


def add_one() -> None:
    with a_batch() as batch:
        batch.add(load.args(-1))


OTHER = r"batch: import; there was a message import\.0 before, which is no member of it: give the batch another id"


def test_a_message_that_has_the_id_of_a_member_is_refused_since_the_batch_would_wait_for_ever(sandbox: Sandbox) -> None:
    plain.using(id="import.0").enqueue("x")
    for _ in range(2):
        with pytest.raises(UsageError, match=OTHER):
            add_one()
    sandbox.advance("61m")
    sandbox.run()
    assert (app.batches.get("import").state, words()) == ("abandoned", ["failed", "ended"])


def test_a_dead_member_of_an_earlier_batch_is_no_member_until_it_is_purged_and_forgotten(sandbox: Sandbox) -> None:
    add_one()
    sandbox.run()
    sandbox.run_for("50h", every="10h")
    with pytest.raises(UsageError, match=OTHER):
        asyncio.run(enqueue_async(0))
    calls_of(app).ask(lambda store: store.actions.purge("load", ["import.0"]))
    with pytest.raises(UsageError, match=OTHER):  # it is remembered
        add_one()
    for _ in range(3):
        sandbox.advance("11m")
        sandbox.run()
    add_one()
    sandbox.run()
    assert words() == ["failed", "ended"] * 2


TAKEN = "give the {} another id; or purge that message, and 20 minutes later run this again"


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("name", ["then", "failed", "ended"])
def test_a_batch_whose_callback_has_the_id_of_another_message_is_refused_since_it_would_not_be_called(
    name: str,
) -> None:
    tell.using(id=f"import:{name}").enqueue("another")
    for begin in (add_one, lambda: asyncio.run(enqueue_async(0))):
        with pytest.raises(UsageError, match=f"there was a message import:{name} before.*{TAKEN.format('batch')}"):
            begin()
    with pytest.raises(NotFound):
        app.batches.get("import")


def test_a_batch_that_is_there_has_its_own_callbacks(sandbox: Sandbox) -> None:
    for is_duplicate in (False, True):
        with a_batch() as batch:
            batch.add(load.args(1))
        assert batch.duplicate is is_duplicate
        sandbox.run()
    assert words() == ["then", "ended"]


@pytest.mark.parametrize("what", ["link", "then", "failed"])
def test_a_message_is_refused_if_a_queue_has_the_id_of_what_is_to_follow_it(sandbox: Sandbox, what: str) -> None:
    follows: dict[str, Any] = {"then": tell.args("then"), "failed": tell.args("failed")}
    sends: list[Callable[[], Any]] = [
        lambda: add.using(id="a", **follows).enqueue(1),
        lambda: add.enqueue_many([add.args(1).using(id="a", **follows)]),
        lambda: asyncio.run(add.using(id="a", **follows).enqueue_async(1)),
        lambda: app.enqueue("add", {"number": 1}, id="a", **follows),
    ]
    if what == "link":
        chain = app.chain(add.args(1).using(id="a"), add.args(2))
        sends = [chain.enqueue, lambda: asyncio.run(chain.enqueue_async())]
    another = "a+2" if what == "link" else f"a:{what}"
    taken = add.using(id=another).enqueue(1) if what == "link" else tell.using(id=another).enqueue("another")
    for send in sends:
        with pytest.raises(
            UsageError, match=rf"there was a message {re.escape(another)} before.*{TAKEN.format('message')}"
        ):
            send()
    taken.cancel()
    for _ in range(4):
        sandbox.advance("26h")
        sandbox.run()
    for send in sends:
        send()
    sandbox.run()
    assert app.message("a").state == "completed"


def test_members_that_are_sent_again_after_a_lost_reply_count(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue = calls_of(app).enqueue_messages

    def lose_reply(messages: Any, **options: Any) -> Any:
        monkeypatch.setattr(calls_of(app), "enqueue_messages", enqueue)
        enqueue(messages, **options)
        sandbox.run()
        raise OutcomeUnknown([each.id for each in messages])

    with a_batch() as batch:
        monkeypatch.setattr(calls_of(app), "enqueue_messages", lose_reply)
        for number in range(300):
            with suppress(OutcomeUnknown):
                batch.add(load.args(number))
    sandbox.run()
    assert words() == ["then", "ended"]
    assert app.batches.get("import").status().completed == 300


def test_a_batch_whose_producer_died_is_abandoned(sandbox: Sandbox) -> None:
    a_batch().__enter__()
    sandbox.advance("61m")
    sandbox.run()
    assert words() == ["failed", "ended"]
    assert app.batches.get("import").state == "abandoned"
    with pytest.raises(UsageError, match="abandoned"):
        a_batch().__enter__()


def test_an_abandoned_batch_has_as_many_members_as_have_ended_and_all_their_results(sandbox: Sandbox) -> None:
    batch = a_batch().__enter__()
    for number in range(950):
        batch.add(load.args(number))
    sandbox.run()
    sandbox.advance("61m")
    sandbox.run()
    assert told[-1] == ("ended", ((900, 900, 0, 0, 0), [2 * number for number in range(900)], []))


def test_a_batch_expires_with_members_that_nobody_has_handled(sandbox: Sandbox) -> None:
    with a_batch(expires="1h") as batch:
        batch.add(load.args(1).using(in_="2h"))
    sandbox.advance("61m")
    sandbox.run()
    assert words() == ["failed", "ended"]
    assert app.batches.get("import").state == "expired"


def test_a_batch_whose_members_are_cancelled_may_go_on_as_if_they_were_completed(sandbox: Sandbox) -> None:
    with app.batch("import", then=tell.args("then"), failed=tell.args("failed"), cancelled_as="completed") as batch:
        batch.add(load.args(1))
        batch.add(load.args(2).using(in_="1h"))
    sandbox.run()
    app.message("import.1").cancel()
    sandbox.run()
    assert told == [("then", ((2, 1, 0, 1, 0), [2], [None]))]
    with pytest.raises(BadData, match="cancelled_as: 'dead'; completed, or leave it out"):
        app.batch(cancelled_as="dead")  # type: ignore[arg-type]


@pytest.mark.usefixtures("sandbox")
def test_a_producer_of_too_many_batches_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pollconsumer.store.queues.batches.MOST_BATCHES", 0)
    with pytest.raises(UsageError, match="queue tell has 10000 batches that have not ended, the maximum: let some end"):
        a_batch().__enter__()


def test_an_empty_batch_calls_back(sandbox: Sandbox) -> None:
    with a_batch(None):
        pass
    sandbox.advance(1)
    sandbox.run()
    assert words() == ["then", "ended"]


@pytest.mark.parametrize("option", [{"id": "a"}, {"key": "k"}])
@pytest.mark.usefixtures("sandbox")
def test_a_member_a_link_and_a_callback_have_no_id_and_no_key_of_their_own(option: dict[str, Any]) -> None:
    with app.batch() as batch, pytest.raises(UsageError, match="a member of a batch"):
        batch.add(plain.args("x").using(**option))
    with pytest.raises(UsageError, match="the callback then"):
        app.batch(then=plain.args("x").using(**option))
    with pytest.raises(UsageError, match="a link of a chain"):
        app.chain(plain.args("x"), plain.args("y").using(**option))


def test_a_batch_that_a_handler_starts_is_accepted_with_its_completion_or_not_at_all(sandbox: Sandbox) -> None:
    one, none, failed = start.enqueue(2), start.enqueue(0), start.enqueue(2, fails=True)
    sandbox.run()
    assert [word for word, _ in told] == ["started", "started"]
    assert {app.batches.get(f"of-{each.id}").status().total for each in (one, none)} == {0, 2}
    with pytest.raises(NotFound):
        app.batches.get(f"of-{failed.id}")


@pytest.mark.parametrize("is_started", [True, False])
def test_a_member_that_a_handler_adds_with_the_id_of_another_message_is_dropped_and_its_batch_ends(
    sandbox: Sandbox, is_started: bool
) -> None:
    if is_started:
        plain.using(id="of-a.1").enqueue("another")
        start.using(id="a").enqueue(3)
    else:
        plain.using(id=f"import.{FIRST_ADDED + 1}").enqueue("another")
        with a_batch() as batch:
            batch.add(grow.args(3))
    sandbox.run()
    status = app.batches.get("of-a" if is_started else "import").status()
    assert (status.state, status.completed, status.cancelled) == ("ended", 2 if is_started else 3, 1)
    assert words() == (["started"] if is_started else ["failed", "ended"])


def test_a_chain_hands_results_on_and_its_handle_waits_for_the_last_link(sandbox: Sandbox) -> None:
    handle = app.chain(add.args(1), add.args(2).using(in_="5m"), add.args(3), failed=tell.args("failed")).enqueue()
    assert handle.state == "waiting"
    sandbox.run()
    assert handle.state == "waiting"
    with pytest.raises(TimeoutError):
        handle.wait(0)
    sandbox.advance("5m")
    sandbox.run()
    assert (handle.state, handle.wait(), told) == ("completed", 6, [])


def test_a_chain_ends_with_the_link_that_fails_and_says_so_and_goes_on_when_that_is_redriven(
    sandbox: Sandbox,
) -> None:
    handle = app.chain(add.args(1), add.args(-1), add.args(3), failed=tell.args("failed")).enqueue()
    sandbox.run()
    assert told == [("failed", ("dead", None))]
    with pytest.raises(NotCompleted, match="less than nothing") as ended:
        handle.wait()
    assert handle.status().id in str(ended.value)
    assert handle.state == "waiting"
    handle.redrive()
    sandbox.run()
    assert words() == ["failed"]


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("act", [lambda handle: handle.wait(0), lambda handle: handle.cancel()])
def test_a_chain_whose_last_link_was_purged_is_not_waited_for(
    sandbox: Sandbox, act: Callable[[LinkHandle], None], before: int
) -> None:
    handle = app.chain(*[add.args(1)] * before, add.args(-1 - before)).enqueue()
    sandbox.run()
    dead = handle.status()
    assert (dead.id, dead.state) == (handle.id, "dead")
    calls_of(app).ask(lambda store: store.actions.purge(dead.queue, [dead.id]))
    with pytest.raises(NotFound):
        act(handle)


@pytest.mark.parametrize("ends", [lambda handle: handle.cancel(), lambda handle: handle.stop()])
def test_a_chain_whose_last_link_waits_ends_with_the_one_that_is_cancelled(
    sandbox: Sandbox, ends: Callable[[LinkHandle], None]
) -> None:
    handle = app.chain(add.args(1), add.args(2).using(in_="5m"), add.args(3), failed=tell.args("failed")).enqueue()
    sandbox.run()
    handle.reschedule(in_="1h")
    sandbox.advance("5m")
    sandbox.run()
    assert (handle.state, handle.status().state) == ("waiting", "scheduled")
    ends(handle)
    sandbox.run()
    assert told == [("failed", ("cancelled", None))]
    assert (handle.state, handle.status().id) == ("waiting", f"{handle.id.removesuffix('+3')}+2")


def test_what_is_done_to_a_link_that_is_completed_meanwhile_is_done_to_the_next(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = app.chain(add.args(1), add.args(2).using(in_="5m"), failed=tell.args("failed")).enqueue()
    first = handle.status()
    sandbox.run()
    seen = iter([first])
    status = handle.status
    monkeypatch.setattr(LinkHandle, "status", lambda _: next(seen, None) or status())
    handle.cancel()
    sandbox.run()
    assert told == [("failed", ("cancelled", None))]


@pytest.mark.usefixtures("sandbox")
def test_a_link_and_a_callback_that_are_not_enqueued_yet_are_said_to_follow_others() -> None:
    handle = app.chain(add.args(1).using(id="a"), add.args(2), add.args(3)).enqueue()
    with pytest.raises(NotFound, match=r"such message: a\+3; .* the one before, a\+2, is completed"):
        handle.signal("approved")
    with pytest.raises(NotFound, match=r"a\+2; .* the one before, a, is completed"):
        app.message("a+2")
    with (
        a_batch() as batch,
        pytest.raises(NotFound, match=r"import:then; a callback is enqueued once .* import, has ended"),
    ):
        app.message(f"{batch.id}:then").cancel()


def test_a_chain_in_a_batch_counts_as_one_member(sandbox: Sandbox) -> None:
    with a_batch() as batch:
        assert batch.add(app.chain(add.args(1), add.args(2))) == "import.0"
        batch.add(app.chain(add.args(1), add.args(-2), add.args(3)))
    sandbox.run()
    assert told[-1] == ("ended", ((2, 1, 1, 0, 0), [3], ["Fatal: less than nothing"]))
    assert [each.id for each in app.batches.get("import").members()] == ["import.0+2", "import.1+2"]
    assert app.batches.get("import").redrive() == 1


def test_many_brief_messages_that_are_handled_in_passes_bring_about_what_follows_each(sandbox: Sandbox) -> None:
    with a_batch() as batch:
        for number in range(20):
            batch.add(nothing.args(number))
            batch.add(app.chain(nothing.args(number), nothing.args(number)))
            app.chain(nothing.args(number), tell.args("link")).enqueue()
            nothing.using(then=tell.args("then of one")).enqueue(number)
    sandbox.run()
    counts = Counter(words())
    assert counts == {"link": 20, "then of one": 20, "then": 1, "ended": 1}
    assert told[-1] == ("ended", ((40, 40, 0, 0, 0), [None] * 40, []))


def test_the_batch_grows_with_the_last_link_of_a_chain_and_not_before(sandbox: Sandbox) -> None:
    with a_batch() as batch:
        batch.add(app.chain(plain.args("x"), grow.args(2)))
        batch.add(app.chain(grow.args(2).using(max_attempts=1), plain.args("x")))
    sandbox.run()
    assert words() == ["failed", "ended"]
    assert told[-1][1][0] == (4, 3, 1, 0, 0)
    assert told[-1][1][2] == [
        "UsageError: batch.add: before the last link of a chain; add members in the last link",
    ]


def test_threads_of_a_handler_add_members_with_numbers_of_their_own(sandbox: Sandbox) -> None:
    with a_batch() as batch:
        batch.add(swarm.args(300))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        sandbox.run()
    finally:
        sys.setswitchinterval(before)
    assert app.batches.get("import").status().completed == 301
    assert app.batches.get("swarm").status().completed == 300


def test_callbacks_of_one_message(sandbox: Sandbox) -> None:
    then, failed = tell.args("then"), tell.args("failed")
    add.using(then=then, failed=failed).enqueue(3)
    add.using(id="a", then=then, failed=failed).enqueue(-1)
    app.enqueue("add", {"number": 4}, then=then, failed=failed)
    handle = add.using(in_="1h", then=then, failed=failed).enqueue(5)
    handle.cancel()
    sandbox.run()
    assert sorted(told) == [
        ("failed", ("cancelled", None)),
        ("failed", ("dead", None)),
        ("then", ("completed", 3)),
        ("then", ("completed", 4)),
    ]
    assert app.message("a:failed").state == "completed"


@pytest.mark.parametrize(
    ("follows", "longest", "ending"),
    [
        ({"then": tell.args("then")}, 123, ":then"),
        ({"then": tell.args("then"), "failed": tell.args("failed")}, 121, ":failed"),
    ],
)
def test_an_id_that_leaves_no_room_for_those_of_callbacks_is_refused(
    sandbox: Sandbox, follows: dict[str, Any], longest: int, ending: str
) -> None:
    add.using(id="x" * longest, **follows).enqueue(-1)
    sandbox.run()
    refusal = f"; 1 to {longest} letters, .*, since its callbacks or links get this id with {ending}"
    bad: Any
    for bad in ("x" * (longest + 1), "a b", 7):
        with pytest.raises(BadData, match=refusal):
            add.using(id=bad, **follows).enqueue(1)


def test_an_id_that_leaves_no_room_for_those_of_links_is_refused(sandbox: Sandbox) -> None:
    for failed, longest, ending in ((None, 126, r"\+2"), (tell.args("failed"), 121, ":failed")):
        app.chain(add.args(-1).using(id="x" * longest), add.args(2), failed=failed).enqueue()
        with pytest.raises(BadData, match=f"; 1 to {longest} letters, .*, since its callbacks .* with {ending}"):
            app.chain(add.args(1).using(id="x" * (longest + 1)), add.args(2), failed=failed)
    sandbox.run()
    assert words() == ["failed"]


@pytest.mark.usefixtures("sandbox")
def test_messages_enqueued_together_have_options_of_their_own() -> None:
    handles = plain.using(priority=2).enqueue_many(
        [
            plain.args("a").using(id="8.a", in_="5m"),
            plain.args("b"),
            {"word": "c"},
            plain.args("d").using(priority=-1),
        ]
    )
    assert handles[0].id == "8.a"
    assert [each.status().priority for each in handles] == [2, 2, 2, -1]
    assert [str(each.state) for each in handles] == ["scheduled", "ready", "ready", "ready"]


async def enqueue_async(members: int) -> None:
    async with a_batch() as batch:
        for number in range(members):
            await batch.add_async(load.args(number))
        batch.add(load.args(members))
    found = await app.batches.get_async("import")
    assert (await found.status_async()).total == members + 1


@pytest.mark.usefixtures("sandbox")
def test_a_batch_in_an_asyncio_program() -> None:
    asyncio.run(enqueue_async(400))


def test_nobody_waits_for_a_batch_in_a_handler_and_nothing_is_added_in_a_callback(sandbox: Sandbox) -> None:
    problems = list[BaseException]()

    @app.handler("waits", queue="tell")
    def waits(context: Context) -> None:
        assert context.batch is not None
        with pytest.raises(UsageError) as refused:
            context.batch.add(plain.args("x"))
        problems.append(refused.value)

    with app.batch("import", ended=waits.args()):
        pass
    sandbox.advance(1)
    sandbox.run(raising=True)
    assert "start_batch" in str(problems[0])
    del calls_of(app).handlers["waits"]


@pytest.mark.usefixtures("sandbox")
def test_an_open_batch_is_gone_on_with_while_the_event_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cut_off() -> None:
        async with a_batch() as batch:
            await batch.add_async(load.args(0))
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        asyncio.run(cut_off())
    monkeypatch.setattr(calls_of(app), "ask", lambda _: pytest.fail("asked in the event loop"))

    async def go_on() -> None:
        async with a_batch() as batch:
            for number in range(3):
                await batch.add_async(load.args(number))

    asyncio.run(go_on())
    monkeypatch.undo()
    assert app.batches.get("import").status().total == 3
