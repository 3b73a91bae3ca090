"""The sandbox for users' tests: what happens in it is what happens in production, in virtual time."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from pollconsumer import (
    Backoff,
    Context,
    Fatal,
    NotCompleted,
    NotFound,
    PollConsumer,
    RetryIn,
    Yield,
)
from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface import memory_store
from pollconsumer.interface.api.registry import registry
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.testing import Launched, Sandbox, StopReason
from tests.conftest import UsersStore
from tests.inner import calls_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PARIS = ZoneInfo("Europe/Paris")
NOON = datetime(2026, 3, 27, 12, tzinfo=UTC)


class Notes:
    """What handlers did, and when."""

    def __init__(self) -> None:
        self.sandbox: Sandbox | None = None
        self.made: list[Any] = []

    def note(self, what: object) -> None:
        assert self.sandbox is not None
        self.made.append((what, (self.sandbox.now - NOON).total_seconds()))

    def names(self) -> list[Any]:
        return [what for what, _ in self.made]


@pytest.fixture(autouse=True)
def _store_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the quick one of our other tests."""
    monkeypatch.setattr(memory_store, "FakeStore", UsersStore)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def sandbox(app: PollConsumer, notes: Notes) -> Iterator[Sandbox]:
    with Sandbox(app, start=NOON) as sandbox:
        notes.sandbox = sandbox
        yield sandbox


def configured(app: PollConsumer, tmp_path: Path, text: str) -> Sandbox:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return Sandbox(app, start=NOON, config=path)


def test_a_message_is_handled_by_a_launch_and_not_before(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler
    def double(n: int) -> int:
        return 2 * n

    handle = double.enqueue(21)
    assert (handle.state, sandbox.message(handle).attempts) == ("ready", 0)
    assert sandbox.run() == Launched(1, 0, 0, StopReason.EMPTY)
    message = sandbox.message(handle.id)
    assert (message.state, message.result, message.attempts, message.handler) == ("completed", 42, 1, "double")
    assert message.timestamps.completed_at == NOON
    assert handle.wait() == 42
    assert sandbox.run() == Launched(0, 0, 0, StopReason.EMPTY)


def test_nothing_is_ready_before_its_due_time(app: PollConsumer, sandbox: Sandbox, notes: Notes) -> None:
    app.handler("note")(notes.note)
    app.enqueue("note", {"what": "in"}, in_="1d")
    app.enqueue("note", {"what": "at"}, at=NOON + timedelta(hours=1))
    sandbox.advance(timedelta(hours=1) - timedelta(milliseconds=1))
    assert sandbox.run().handled == 0
    assert [message.payload for message in sandbox.messages("scheduled")] == [{"what": "at"}, {"what": "in"}]
    sandbox.advance(0.001)
    assert [message.payload for message in sandbox.messages("ready")] == [{"what": "at"}]
    sandbox.run()
    sandbox.advance_to(NOON + timedelta(days=2))
    sandbox.run()
    assert notes.made == [("at", 3600), ("in", 2 * 86400)]


def test_messages_become_ready_in_the_order_of_their_due_times(
    app: PollConsumer, sandbox: Sandbox, notes: Notes
) -> None:
    app.handler("note")(notes.note)
    for minutes in (3, 1, 2):
        app.enqueue("note", {"what": minutes}, in_=60 * minutes)
    app.enqueue("note", {"what": "urgent"}, in_="3m", priority=-10)
    sandbox.advance("1h")
    enqueued = [message.timestamps.enqueued_at for message in sandbox.messages("ready")]
    assert sorted((at - NOON).total_seconds() for at in enqueued if at) == [60, 120, 180, 180]
    sandbox.run()
    assert notes.names() == ["urgent", 1, 2, 3]


def test_failures_are_retried_by_their_backoff_and_end_as_a_dead_letter(
    app: PollConsumer, sandbox: Sandbox, notes: Notes
) -> None:
    @app.handler(max_attempts=4, retry=Backoff("10s", 3, "1m", jitter=1))
    def fail(n: int) -> None:
        notes.note(n)
        raise ValueError(f"not {n}")

    handle = fail.enqueue(7)
    assert sandbox.run() == Launched(0, 1, 0, StopReason.EMPTY)
    assert sandbox.message(handle).state == "scheduled"
    assert sandbox.run_for("1h")[:3] == (0, 3, 0)
    assert notes.made == [(7, 0), (7, 10), (7, 40), (7, 100)]
    (dead,) = sandbox.messages("dead")
    assert (dead.id, dead.attempts, dead.last_error) == (handle.id, 4, "ValueError: not 7")
    assert "in fail" in (dead.traceback or "")
    with pytest.raises(NotCompleted):
        handle.wait()


class Linear:
    def delay(self, attempt: int, chance: float) -> float:
        return 30 * attempt + chance


def test_failures_are_retried_by_a_policy_of_the_users_own(
    app: PollConsumer, sandbox: Sandbox, notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    @app.handler(max_attempts=4, retry=Linear())
    def fail(n: int) -> None:
        notes.note(n)
        raise RetryIn(5) if len(notes.made) == 3 else ValueError

    fail.enqueue(7)
    sandbox.run_for("1h")
    assert notes.made == [(7, 0), (7, 30), (7, 90), (7, 95)]
    assert len(sandbox.messages("dead")) == 1
    assert [record for record in caplog.records if "retry policy" in record.message] == []


class Says:
    """A policy that says ``said``, or raises it; false, as an empty collection is."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def __bool__(self) -> bool:
        return False

    def delay(self, *_: float) -> Any:
        if isinstance(self.said, BaseException):
            raise self.said
        return self.said


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("unspeakable")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (None, "ValueError: its delay is None, which is no duration"),
        (-1, "ValueError: its delay is -1, which is no duration"),
        (float("nan"), "ValueError: its delay is nan, which is no duration"),
        (float("inf"), "ValueError: its delay is inf, which is no duration"),
        (10**400, "ValueError: its delay is 1000"),
        (10**5000, "ValueError: Exceeds the limit"),
        (True, "ValueError: its delay is True, which is no duration"),
        ("soon", "ValueError: its delay is 'soon', which is no duration"),
        (["5m"], "ValueError: its delay is ['5m'], which is no duration"),
        (Unspeakable(), "RuntimeError: unspeakable"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (SystemExit(3), "SystemExit: 3"),
        (Fatal("no more"), "Fatal: no more"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, int | Unspeakable) else None,
)
def test_a_retry_policy_that_says_no_delay_costs_a_warning_and_no_message(
    app: PollConsumer, sandbox: Sandbox, notes: Notes, caplog: pytest.LogCaptureFixture, said: Any, reason: str
) -> None:
    @app.handler(max_attempts=3, retry=Says(said))
    def fail(n: int) -> None:
        notes.note(n)
        raise ValueError

    fail.enqueue(7)
    sandbox.run_for("1m")
    assert notes.made == [(7, 0), (7, 1), (7, 3)]  # as Backoff() has them
    warnings = [record.message for record in caplog.records if "retry policy" in record.message]
    assert len(warnings) == 2
    assert warnings[0].startswith(f"retry policy of fail failed, the default delays are used: {reason}")
    assert len(warnings[0]) < 600


@pytest.mark.parametrize(("said", "seconds"), [("1m30s", 90.0), (0, 0.0), (1e300, 3650 * 86400.0)])
def test_a_retry_policy_may_say_what_a_delay_can_be(
    app: PollConsumer, sandbox: Sandbox, said: Any, seconds: float
) -> None:
    @app.handler(max_attempts=2, retry=Says(said))
    def fail() -> None:
        raise ValueError

    handle = fail.enqueue()
    sandbox.run(max_messages=1)
    times = sandbox.message(handle).timestamps
    assert times.failed_at is not None
    assert times.next_attempt_at == times.failed_at + timedelta(seconds=seconds)


class Later:
    async def delay(self, attempt: int, chance: float) -> float:
        return attempt + chance


class Simple:
    def delay(self, attempt: int) -> float:
        return float(attempt)


@pytest.mark.parametrize("policy", [5, "5m", Backoff, Linear, Later(), Simple(), object()])
def test_what_is_no_retry_policy_is_refused_where_the_handler_is_defined(app: PollConsumer, policy: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        app.handler("fail", retry=policy)
    assert refused.value.exit_code == 78
    assert str(refused.value).startswith(
        f"retry: {policy!r}; a Backoff, as in Backoff(first='1s', most='10m'), delays such"
    )


def test_handlers_may_say_what_becomes_of_the_message(app: PollConsumer, sandbox: Sandbox, notes: Notes) -> None:
    @app.handler
    def choose(how: str) -> None:
        notes.note(how)
        if how == "later" and len(notes.made) < 3:
            raise RetryIn("5m")
        if how == "never":
            raise Fatal("no use")

    choose.enqueue("never")
    choose.enqueue("later")
    assert sandbox.run(raising=True)[:3] == (0, 2, 0)
    assert sandbox.run_for("10m")[:3] == (1, 0, 0)
    assert notes.made == [("never", 0), ("later", 0), ("later", 300)]
    assert [message.last_error for message in sandbox.messages("dead")] == ["Fatal: no use"]


def test_raising_surfaces_what_was_unforeseen_and_settles_it_as_ever(
    app: PollConsumer, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.handler(fatal=(KeyError,), retry=Backoff("1m"))
    def fail(how: str) -> None:
        raise {"bug": ZeroDivisionError, "foreseen": KeyError}[how](how)

    foreseen, bug, after = fail.enqueue("foreseen"), fail.enqueue("bug"), fail.enqueue("bug")
    with pytest.raises(ZeroDivisionError, match="bug") as raised:
        sandbox.run(raising=True)
    assert raised.traceback[-1].name == "fail"
    assert [sandbox.message(each).state for each in (foreseen, bug, after)] == ["dead", "scheduled", "ready"]
    with pytest.raises(ZeroDivisionError):
        sandbox.run_for("1h", raising=True)
    assert sandbox.run().failed == 0
    with pytest.raises(TypeError, match=r"arguments of .*fail\(\): missing how; unexpected hwo; "):
        app.enqueue("fail", {"hwo": "bug"})
    monkeypatch.delitem(calls_of(app).handlers, "fail")  # a producer without its code
    app.enqueue("fail", {"hwo": "bug"})
    monkeypatch.undo()
    with pytest.raises(Exception, match="bad_arguments"):
        sandbox.run(raising=True)


def test_what_is_meant_for_the_test_ends_the_run_in_any_case(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler
    def leave(kind: str) -> None:
        if kind == "fail":
            pytest.fail("wrong")
        raise {"ctrl-c": KeyboardInterrupt, "exit": SystemExit}[kind]

    leave.enqueue("fail")
    with pytest.raises(pytest.fail.Exception, match="wrong"):
        sandbox.run()
    leave.enqueue("ctrl-c")
    with pytest.raises(KeyboardInterrupt):
        sandbox.run()
    leave.enqueue("exit")
    assert sandbox.run().failed == 1


def test_recurrences_keep_to_their_own_instants_through_daylight_saving_time(app: PollConsumer) -> None:
    instants: list[tuple[datetime, datetime]] = []
    sandbox = Sandbox(app, start=datetime(2026, 3, 28, 0, 0, 30, tzinfo=PARIS))

    @app.every("30 2 * * *", timezone="Europe/Paris")
    def nightly(occurrence: datetime) -> None:
        instants.append((occurrence.astimezone(PARIS), sandbox.now))

    with sandbox:
        assert sandbox.run_for("3d").handled == 3
    assert [f"{nominal:%d %H:%M}" for nominal, _ in instants] == ["28 02:30", "29 03:00", "30 02:30"]
    assert all(nominal == handled for nominal, handled in instants)


def test_advancing_over_occurrences_enqueues_each_at_its_instant(
    app: PollConsumer, sandbox: Sandbox, notes: Notes
) -> None:
    @app.every("6h", missed="skip")
    def beat(occurrence: datetime) -> None:
        notes.note((occurrence - NOON) / timedelta(hours=1))

    sandbox.advance("1d")
    assert [message.id for message in sandbox.messages("ready", handler="beat")] == [
        "beat@2026-03-27T18:00:00Z",
        "beat@2026-03-28T00:00:00Z",
        "beat@2026-03-28T06:00:00Z",
        "beat@2026-03-28T12:00:00Z",
    ]
    assert sandbox.run().handled == 4
    assert notes.made == [(6, 86400), (12, 86400), (18, 86400), (24, 86400)]


def test_the_end_of_a_span_belongs_to_it(app: PollConsumer, sandbox: Sandbox, notes: Notes) -> None:
    app.handler("note")(notes.note)
    app.enqueue("note", {"what": "end"}, in_="1h")
    app.enqueue("note", {"what": "between"}, in_="30s")
    assert sandbox.run_for("29s").handled == 0
    assert sandbox.now == NOON + timedelta(seconds=29)
    assert sandbox.run_for("1s").handled == 1
    assert sandbox.run_for("59m30s").handled == 1
    assert notes.made == [("between", 30), ("end", 3600)]


def note_ends(app: PollConsumer, notes: Notes) -> Any:
    @app.handler("end", queue="ends")
    def end(context: Context) -> None:
        assert context.batch is not None
        notes.note(context.batch.state)

    return end.args()


@pytest.mark.parametrize("is_left_open", [False, True])
def test_a_batch_that_expires_or_is_abandoned_calls_back_in_a_span(
    app: PollConsumer, sandbox: Sandbox, notes: Notes, is_left_open: bool
) -> None:
    batch = app.batch("import", ended=note_ends(app, notes), expires="2h")
    batch.__enter__()
    batch.add(app.handler("late")(lambda: None).args().using(in_="1d"))
    if not is_left_open:
        batch.__exit__(None, None, None)
    assert sandbox.run_for("5h", every="7m").handled == 1
    instant, launch = (60, 63) if is_left_open else (120, 126)
    assert notes.made == [("abandoned" if is_left_open else "expired", launch * 60)]
    status = app.batches.get("import").status()
    assert status.ended_at is not None
    assert status.ended_at - status.created_at == timedelta(minutes=instant)


def test_callbacks_of_members_that_a_test_cancels_come_in_the_next_span(
    app: PollConsumer, sandbox: Sandbox, notes: Notes
) -> None:
    late = app.handler("late")(lambda: None)
    ended = note_ends(app, notes).using(in_="30m")
    with app.batch("import", ended=ended) as batch:
        batch.add(late.args().using(in_="1d"))
    sandbox.run_for("1h")
    assert app.batches.get("import").cancel() == (1, 0)
    assert sandbox.run_for("3h").handled == 1
    assert notes.made == [("ended", 90 * 60)]


def test_messages_wait_in_a_span_until_a_pause_of_their_queue_ends(
    app: PollConsumer, sandbox: Sandbox, notes: Notes
) -> None:
    work = app.handler("work")(lambda: notes.note("worked"))
    work.enqueue()
    calls_of(app).ask(lambda store: store.actions.pause("default", paused=True, lasts_ms=2 * 3_600_000))
    assert sandbox.run_for("5h").handled == 1
    assert notes.made == [("worked", 2 * 3600 + 5)]  # a launch looks again after its idle time


def test_a_message_in_a_queue_that_is_new_at_this_instant_is_due_at_its_own(
    app: PollConsumer, sandbox: Sandbox, notes: Notes
) -> None:
    sandbox.advance("1s")
    app.handler("work", queue="other")(lambda: notes.note("worked")).using(in_="1h").enqueue()
    assert sandbox.run_for("2h").handled == 1
    assert notes.made == [("worked", 3601.0)]


def test_a_unique_key_is_held_until_its_message_has_ended(app: PollConsumer, sandbox: Sandbox, notes: Notes) -> None:
    app.handler("note")(notes.note)
    first = app.enqueue("note", {"what": 1}, key="k")
    second = app.enqueue("note", {"what": 2}, key="k")
    assert (second.id, second.duplicate) == (first.id, True)
    sandbox.run()
    assert not app.enqueue("note", {"what": 3}, key="k", key_lifetime="1h").duplicate
    sandbox.advance("59m")
    assert app.enqueue("note", {"what": 4}, key="k").duplicate
    sandbox.advance("1m")
    assert not app.enqueue("note", {"what": 5}, key="k").duplicate
    sandbox.run()
    assert notes.names() == [1, 3, 5]


def test_messages_with_one_concurrency_key_are_handled_one_after_the_other(
    app: PollConsumer, sandbox: Sandbox, notes: Notes
) -> None:
    @app.handler
    def note(what: int, context: Context) -> None:
        notes.note(what)
        if what == 0 and context.state is None:
            context.checkpoint({})
            raise Yield

    for what in range(3):
        app.enqueue("note", {"what": what}, concurrency_key="k")
    assert sandbox.run()[:3] == (0, 0, 1)  # the first holds the place until its launch ends
    assert sandbox.run()[:3] == (3, 0, 0)
    assert notes.names() == [0, 0, 1, 2]


def test_long_work_goes_on_in_the_next_launch(app: PollConsumer, sandbox: Sandbox, notes: Notes) -> None:
    @app.handler
    def steps(context: Context) -> int:
        done = (context.state or {"done": 0})["done"] + 1
        context.checkpoint({"done": done})
        notes.note((done, context.attempt))
        if done < 3:
            raise Yield
        return int(done)

    handle = app.enqueue("steps")
    assert sandbox.run() == Launched(0, 0, 1, StopReason.EMPTY)
    assert sandbox.message(handle).state == "ready"
    assert sandbox.run_for("5m")[:3] == (1, 0, 1)
    assert (notes.made, handle.wait()) == ([((1, 1), 0), ((2, 1), 0), ((3, 1), 60)], 3)


def test_what_a_handler_enqueues_through_its_context_comes_with_its_completion_or_not_at_all(
    app: PollConsumer, sandbox: Sandbox, notes: Notes
) -> None:
    app.handler("note", queue="other")(notes.note)

    @app.handler(max_attempts=1)
    def parent(context: Context, *, fails: bool) -> None:
        context.enqueue("note", {"what": fails})
        assert sandbox.messages(handler="note") == []
        if fails:
            raise ValueError

    app.enqueue("parent", {"fails": True})
    sandbox.run()
    assert sandbox.messages(handler="note") == []
    app.enqueue("parent", {"fails": False})
    sandbox.run()
    assert [m.payload for m in sandbox.messages(handler="note", queue="other")] == [{"what": False}]
    sandbox.run()
    assert notes.names() == [False]


def test_hooks_are_called_as_ever(app: PollConsumer, sandbox: Sandbox) -> None:
    calls: list[Any] = []
    app.before(lambda context: calls.append(("before", context.attempt)))
    app.after(lambda _, result: calls.append(("after", result)))
    app.on_failure(lambda _, error, delay: calls.append(("failure", str(error), delay)))
    app.on_dead(lambda _, error: calls.append(("dead", str(error))))

    @app.handler(max_attempts=2, retry=Backoff("10s"))
    def fail(n: int) -> int:
        if n == 0:
            raise ValueError("zero")
        return 10 // n

    fail.enqueue(5)
    fail.enqueue(0)
    sandbox.run_for("1m")
    assert calls[:2] == [("before", 1), ("after", 2)]
    assert calls[2:] == [("before", 1), ("failure", "zero", 10.0), ("before", 2), ("dead", "zero")]


def test_hooks_told_of_a_failure_enqueue_at_once_and_can_keep_no_checkpoint(
    app: PollConsumer, sandbox: Sandbox, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(calls_of(app).hooks, "_warn", lambda text, _: warnings.append(text))

    def alert(context: Context, error: BaseException, *_: float) -> None:
        notes.note(context.enqueue("note", {"what": str(error)}, queue="alerts"))
        context.checkpoint({"alerted": True})

    app.on_failure(alert)
    app.on_dead(alert)

    @app.handler(max_attempts=2, retry=Backoff("10s"))
    def fail(context: Context) -> None:
        context.enqueue("note", {"what": "of the attempt"})
        raise ValueError(context.attempt)

    app.enqueue("fail")
    sandbox.run_for("1m")
    alerts = sandbox.messages(handler="note")
    assert [alert.payload for alert in alerts] == [{"what": "1"}, {"what": "2"}]
    assert notes.names() == [alert.id for alert in alerts]
    assert [warning.split()[:2] for warning in warnings] == [["hook", "on_failure"], ["hook", "on_dead"]]
    assert all("context.checkpoint: after the attempt; " in warning for warning in warnings)


def test_hooks_told_that_a_message_is_malformed_can_enqueue(app: PollConsumer, sandbox: Sandbox) -> None:
    app.on_dead(lambda context, _: context.enqueue("note", {"dead": context.id}, queue="alerts"))
    handle = app.handler("ping")(lambda: None).enqueue()
    store = sandbox.store_of(app)
    store.wire.command("HSET", store.keys.queue("default", "records"), handle.id, "no record")
    sandbox.run()
    assert sandbox.message(handle).state == "dead"
    assert [alert.payload for alert in sandbox.messages(handler="note")] == [{"dead": handle.id}]


@pytest.mark.parametrize("continuation", ['{"batch":1}', '{"previous":{"id":"a"}}'])
def test_hooks_are_told_of_a_message_whose_sequel_is_corrupt(
    app: PollConsumer, sandbox: Sandbox, continuation: str
) -> None:
    told: list[object] = []
    app.on_dead(lambda context, _: told.append((context.id, context.batch, context.previous)))

    @app.handler(max_attempts=1)
    def fail() -> None:
        raise ValueError

    message = new_message("fail", {})._replace(continuation=continuation)
    sandbox.store_of(app).enqueue([message])
    sandbox.run()
    assert told == [(message.id, None, None)]


def test_at_most_once_is_settled_before_it_is_handled(app: PollConsumer, sandbox: Sandbox, notes: Notes) -> None:
    @app.handler(delivery="at_most_once")
    def once() -> None:
        notes.note("once")
        raise ValueError

    handle = once.enqueue()
    sandbox.run_for("1d")
    assert notes.names() == ["once"]
    assert sandbox.message(handle).state == "dead"


def test_quotas_go_by_virtual_time(app: PollConsumer, tmp_path: Path, notes: Notes) -> None:
    app.handler("note")(notes.note)
    with configured(app, tmp_path, '[queues.default]\nquota = "2/2m"\n') as sandbox:
        notes.sandbox = sandbox
        for what in range(5):
            app.enqueue("note", {"what": what})
        assert sandbox.run().handled == 2
        assert sandbox.run().handled == 0
        assert sandbox.run_for("6m").handled == 3
    assert notes.names() == [0, 1, 2, 3, 4]
    seconds = [at for _, at in notes.made]
    assert seconds[:2] == [0, 0]
    assert 120 <= seconds[2] == seconds[3] <= 140
    assert 240 <= seconds[4] <= 280


def test_a_span_ends_when_it_should_whatever_a_launch_waits_for(app: PollConsumer, tmp_path: Path) -> None:
    app.handler("ping")(lambda: None)
    with configured(app, tmp_path, '[queues.default]\nquota = "1/1h"\n') as sandbox:
        app.enqueue("ping")
        app.enqueue("ping")
        app.enqueue("ping", in_="20s")
        for seconds in (12, 0, 0.5, 47.5):
            before = sandbox.now
            sandbox.run_for(seconds)
            assert sandbox.now - before == timedelta(seconds=seconds)
        assert len(sandbox.messages("completed")) == 1


def test_handlers_of_every_kind_run_in_the_test_itself(app: PollConsumer, sandbox: Sandbox) -> None:
    here: list[tuple[str, bool]] = []

    def note(kind: str) -> None:
        here.append((kind, threading.current_thread() is threading.main_thread()))

    @app.handler
    async def asynchronous(n: int) -> int:
        await asyncio.sleep(0)
        note("async")
        return n

    app.handler("isolated", isolation="process")(lambda: note("isolated"))
    app.handler("limited", timeout="1h")(lambda: note("limited"))
    app.handler("stopped", timeout="20ms", max_attempts=1)(lambda: time.sleep(30))
    handles = [app.enqueue("asynchronous", {"n": 1}), *(app.enqueue(name) for name in ("isolated", "limited"))]
    assert sandbox.run(raising=True).handled == 3
    assert here == [("async", True), ("isolated", True), ("limited", True)]
    assert [handle.wait() for handle in handles] == [1, None, None]
    stopped = app.enqueue("stopped")
    assert sandbox.run().failed == 1
    assert "HandlerTimeout" in (sandbox.message(stopped).last_error or "")


def test_a_configuration_says_what_is_served_and_imported(app: PollConsumer, tmp_path: Path, notes: Notes) -> None:
    app.handler("note", queue="elsewhere")(notes.note)
    (tmp_path / "sandboxed_handlers.py").write_text(
        "from pollconsumer import PollConsumer\napp = PollConsumer()\n@app.handler\ndef add(a, b):\n    return a + b\n"
    )
    text = (
        'store = "redis://nowhere.example"\nhandlers = ["sandboxed_handlers"]\nnamespace = "shop"\n'
        '[recurrences.sum]\nhandler = "add"\nevery = "1h"\npayload = { a = 1, b = 2 }\n'
    )
    path, apps = list(sys.path), list(registry.apps)
    with configured(app, tmp_path, text) as sandbox:
        app.enqueue("note", {"what": "unserved"})
        assert sandbox.run_for("1h").handled == 1
        assert [m.result for m in sandbox.messages("completed")] == [3]
    assert notes.made == []
    assert sys.path == path
    assert registry.settings is None
    assert len(registry.apps) == len(apps) + 1
    with pytest.raises(ConfigurationError, match=r"consumer.timeout"):
        configured(app, tmp_path, "[consumer]\ntimeout = 'soon'")


def test_a_configuration_for_a_store_that_the_environment_names_is_taken(
    app: PollConsumer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLLCONSUMER_STORE", "redis://nowhere.example")
    handled = list[int]()

    @app.handler
    def number(n: int) -> None:
        handled.append(n)

    with configured(app, tmp_path, 'durability = "strict"\n[strict]\nreplicas = 1\n') as sandbox:
        number.enqueue(n=1)
        sandbox.run()
    assert handled == [1]


def test_a_configuration_that_others_may_write_is_taken_where_the_environment_trusts_it(
    app: PollConsumer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(app, tmp_path, "")
    (tmp_path / "config.toml").chmod(0o666)
    with pytest.raises(ConfigurationError, match="writable by others"):
        configured(app, tmp_path, "")
    monkeypatch.setenv("POLLCONSUMER_TRUST_WRITABLE", "true")
    configured(app, tmp_path, "")


def test_commands_run_where_a_configuration_names_them(app: PollConsumer, tmp_path: Path) -> None:
    text = """[commands.remember]
command = ["/bin/sh", "-c", "cat > remembered"]
[commands.refuse]
command = ["/bin/sh", "-c", "exit 3"]
max_attempts = 1
"""
    with configured(app, tmp_path, text) as sandbox:
        remembered, refused = app.enqueue("remember", {"n": 1}), app.enqueue("refuse")
        assert sandbox.run()[:2] == (1, 1)
        assert sandbox.message(remembered).state == "completed"
        assert sandbox.message(refused).last_error is not None
    assert (tmp_path / "remembered").read_text() == '{"n":1}\n'
    assert {path.name for path in tmp_path.iterdir()} <= {"config.toml", "remembered"}
    assert not list(tmp_path.glob("home/*"))


def test_the_environment_plays_no_part(
    app: PollConsumer, notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLLCONSUMER_STORE", "redis://nowhere.example")
    monkeypatch.setenv("POLLCONSUMER_CONSUMER__QUEUES", "elsewhere")
    monkeypatch.setenv("POLLCONSUMER_CONFIG", str(tmp_path / "missing.toml"))
    app.handler("note", queue="mail")(notes.note)
    other = PollConsumer(store="unix:///nowhere/at/all")
    signals = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)]
    threads = threading.active_count()
    before = set(tmp_path.rglob("*"))
    for config in ("", "[consumer]\nqueues = ['mail']\n"):
        sandbox = configured(app, tmp_path, config) if config else Sandbox(app, start=NOON)
        with sandbox:
            notes.sandbox = sandbox
            app.enqueue("note", {"what": 1})
            assert sandbox.run().handled == 1
            for each in (app, other):
                assert each.enqueue("unknown").queue == "default"
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "config.toml"}
    assert threading.active_count() == threads
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)] == signals


def test_every_application_is_kept_from_its_store_and_has_it_back_afterwards(app: PollConsumer) -> None:
    other = PollConsumer(store="unix:///nowhere/at/all")
    with Sandbox(app) as sandbox:
        inside = PollConsumer(store="unix:///nowhere/either")
        inside.handler("here")(lambda: None)
        handles = [each.enqueue("here") for each in (app, other, inside)]
        assert sandbox.run().handled == 3
        assert {handle.state for handle in handles} == {"completed"}
    assert registry.stand_in is None
    assert {*map(calls_of, (app, other, inside))} <= {*registry.apps}
    with Sandbox(app) as sandbox, pytest.raises(NotFound):
        sandbox.message(handles[0])
    with Sandbox() as sandbox:
        sandbox.run()  # the handlers of all applications
        app.handler("here")(lambda: None)
        with pytest.raises(ConfigurationError, match="handler registered twice"):
            sandbox.run()


def test_a_sandbox_is_used_once_and_alone(app: PollConsumer) -> None:
    sandbox = Sandbox(app)
    with pytest.raises(RuntimeError, match="with statement"):
        sandbox.run()
    with sandbox, pytest.raises(RuntimeError, match="not within another one"), Sandbox(app):
        pass
    with pytest.raises(RuntimeError, match="once"), sandbox:
        pass
    assert registry.stand_in is None
    with pytest.raises(RuntimeError, match="with statement"):
        sandbox.run()


def test_waiting_for_a_message_does_not_hang(app: PollConsumer, sandbox: Sandbox) -> None:
    handle = app.enqueue("nobody")
    with pytest.raises(TimeoutError, match="no launch runs while a test waits"):
        handle.wait()
    with pytest.raises(TimeoutError, match="it is ready"):
        handle.wait(0)
    sandbox.run()
    assert sandbox.message(handle).last_error == "unknown_handler: no handler named nobody here"
    app.handler("nobody")(lambda: "there")
    assert sandbox.run_for("1m").handled == 1
    assert handle.wait() == "there"


def test_a_handler_that_advances_time_takes_so_long(app: PollConsumer, sandbox: Sandbox, notes: Notes) -> None:
    left: list[float] = []

    @app.handler
    def slow(n: int, context: Context) -> None:
        left.append(context.time_left())
        sandbox.advance("20s")
        notes.note(n)

    later = app.enqueue("slow", {"n": 9}, in_="10s")
    for n in range(4):
        app.enqueue("slow", {"n": n})
    first = sandbox.run()
    assert first == Launched(2, 0, 0, StopReason.NO_TIME_TO_HANDLE)  # half of a window does not fit into what is left
    assert left == [300.0, 300.0]  # the limit of a handling that has no timeout
    assert sandbox.message(later).state == "ready"
    assert sandbox.run_for("10m")[:2] == (3, 0)
    assert notes.names() == [0, 1, 2, 3, 9]
    (message, *_) = sandbox.messages("completed")
    assert message.durations["handled_seconds"] == pytest.approx(20, abs=0.001)


def test_a_handler_that_takes_longer_than_a_lease_lasts_is_called_once(app: PollConsumer, sandbox: Sandbox) -> None:
    called: list[int] = []

    @app.handler(timeout="2h")
    def slow(context: Context) -> None:
        called.append(context.attempt)
        sandbox.advance("1h")

    message = app.enqueue("slow")
    sandbox.run_for("3h")
    assert (called, message.state) == ([1], "completed")


def test_a_launch_may_use_its_window_and_handle_what_comes_due_in_it(
    app: PollConsumer, sandbox: Sandbox, notes: Notes
) -> None:
    app.handler("note")(notes.note)
    for seconds in (1, 30):
        app.enqueue("note", {"what": seconds}, in_=seconds)
    launched = sandbox.run(until_empty=False)
    assert launched == Launched(2, 0, 0, StopReason.NO_TIME_TO_HANDLE)
    assert notes.made == [(1, 1), (30, 30)]
    assert timedelta(seconds=50) < sandbox.now - NOON < timedelta(seconds=60)
    for what in range(3):
        app.enqueue("note", {"what": what})
    assert sandbox.run(max_messages=2) == Launched(2, 0, 0, StopReason.MAX_MESSAGES)


def test_a_handler_can_run_no_launch(app: PollConsumer, sandbox: Sandbox) -> None:
    app.handler("nest", max_attempts=1)(lambda: sandbox.run())
    app.enqueue("nest")
    with pytest.raises(RuntimeError, match="called in a handler"):
        sandbox.run(raising=True)
    assert sandbox.run() == Launched(0, 0, 0, StopReason.EMPTY)


def test_time_goes_forward_and_has_a_zone(app: PollConsumer, sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="is past"):
        sandbox.advance_to(NOON - timedelta(seconds=1))
    with pytest.raises(TypeError, match="zone"):
        sandbox.advance_to(datetime(2030, 1, 1))
    with pytest.raises(TypeError, match="zone"):
        Sandbox(app, start=datetime(2030, 1, 1))
    for span in (timedelta(seconds=-1), "-1s", "soon"):
        with pytest.raises(ValueError, match=r"units|0 or more"):
            sandbox.advance(span)
    assert sandbox.now == NOON


def test_finished_messages_are_forgotten_as_ever(app: PollConsumer, sandbox: Sandbox) -> None:
    app.handler("ping", result_ttl="1h")(lambda: "pong")
    handle = app.enqueue("ping")
    sandbox.run()
    sandbox.advance("59m")
    assert sandbox.message(handle).result == "pong"
    sandbox.advance("2m")
    assert sandbox.message(handle).result is None
    sandbox.advance("1d")
    with pytest.raises(NotFound):
        sandbox.message(handle)


def test_the_looks_of_an_empty_sandbox(sandbox: Sandbox) -> None:
    assert sandbox.messages() == sandbox.messages("dead", queue="unknown") == []
    with pytest.raises(NotFound):
        sandbox.message("nothing")
    with pytest.raises(ValueError, match="typo"):
        sandbox.messages("typo")


def run_python(code: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=directory, text=True, capture_output=True, check=False)


@pytest.mark.parametrize("missing", ["fakeredis", "lupa"])
def test_what_is_missing_is_told(missing: str, tmp_path: Path) -> None:
    done = run_python(f"import sys; sys.modules[{missing!r}] = None; import pollconsumer.testing", tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: pollconsumer.testing needs ")
    assert last.endswith("; pip install 'pollconsumer[testing]'")


def test_nothing_of_it_is_imported_by_a_command(tmp_path: Path) -> None:
    code = (
        "import sys, pollconsumer, pollconsumer.interface.cli.launch_commands\n"
        "print([name for name in sys.modules if 'testing' in name and 'pollconsumer' in name or 'fakeredis' in name])"
    )
    assert run_python(code, tmp_path).stdout == "[]\n"


def test_the_example_of_the_documentation_passes_as_it_stands(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "test_example.py").write_text(example)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:valkey", "-W", "error"]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
