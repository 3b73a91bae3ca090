"""Steps, sleeps and signals, as handlers and producers use them."""

from __future__ import annotations

import logging
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Context, Fatal, PollConsumer, RetryIn
from pollconsumer.core.durations import Durations
from pollconsumer.core.errors import BadData, StoreUnreachable, UsageError
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message_steps import MOST_STEPS
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.testing import Sandbox
from tests.conftest import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pollconsumer.interface.api.handle import Handle
    from tests.store.servers import Server

PAGE = (Path(__file__).parents[2] / "docs/long-work.md").read_text("utf-8")


@pytest.fixture
def app() -> PollConsumer:
    return PollConsumer()


@pytest.fixture
def sandbox(app: PollConsumer) -> Iterator[Sandbox]:
    with Sandbox(app) as sandbox:
        yield sandbox


class Calls(list[str]):
    """Which bodies of steps were called, in their order; each returns its name and its number."""

    def do(self, what: str) -> tuple[str, int]:
        self.append(what)
        return what, len(self)

    async def do_soon(self, what: str) -> tuple[str, int]:
        return self.do(what)


@pytest.fixture
def calls() -> Calls:
    return Calls()


def sent(app: PollConsumer, function: Callable[..., Any], **options: Any) -> Handle[Any]:
    """A message for a handler that calls ``function`` with its context."""

    @app.handler("flow", **options)  # type: ignore[untyped-decorator]
    def flow(context: Context) -> Any:
        return function(context)

    return app.enqueue("flow", {})


def test_a_later_attempt_gets_the_recorded_results(app: PollConsumer, sandbox: Sandbox, calls: Calls) -> None:
    def flow(context: Context) -> Any:
        found = [context.step("charge", calls.do, "charge"), context.step("mail", calls.do, "mail")]
        if context.attempt == 1:
            raise ValueError
        return found

    message = sent(app, flow)
    sandbox.run_for("10m")
    assert (message.state, calls) == (State.COMPLETED, ["charge", "mail"])
    assert message.status().result == [["charge", 1], ["mail", 2]]


def test_the_first_attempt_gets_what_later_ones_get(app: PollConsumer, sandbox: Sandbox) -> None:
    found: list[Any] = []
    sent(app, lambda context: found.append(context.step("pair", lambda: (1, {"a": (2,)}))))
    sandbox.run()
    assert found == [[1, {"a": [2]}]]


def test_steps_of_one_name_are_counted(app: PollConsumer, sandbox: Sandbox, calls: Calls) -> None:
    def flow(context: Context) -> Any:
        found = [context.step("page", calls.do, f"{number}") for number in range(3)]
        if context.attempt == 1:
            raise ValueError
        return found

    message = sent(app, flow)
    sandbox.run_for("10m")
    assert message.status().result == [["0", 1], ["1", 2], ["2", 3]]
    assert calls == ["0", "1", "2"]


def test_a_step_that_raises_is_taken_again(app: PollConsumer, sandbox: Sandbox, calls: Calls) -> None:
    def charge() -> None:
        calls.do("charge")
        if len(calls) == 1:
            raise ValueError

    message = sent(app, lambda context: context.step("charge", charge))
    sandbox.run_for("10m")
    assert (message.state, len(calls)) == (State.COMPLETED, 2)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_goes_with_the_completion_is_refused_in_a_step_which_is_not_taken_again(
    app: PollConsumer, sandbox: Sandbox, *, asynchronous: bool
) -> None:
    other = app.handler("other")(lambda: None)

    async def enqueue(context: Context) -> None:
        context.enqueue("other")

    @app.handler("soon", max_attempts=1)
    async def soon(context: Context) -> None:
        await context.step_async("send", enqueue, context)

    @app.handler("plain", max_attempts=1)
    def plain(context: Context) -> None:
        context.step("send", lambda: context.start_batch("b").add(other.args()))

    refused = app.enqueue("soon" if asynchronous else "plain")
    sandbox.run()
    assert "context.enqueue: in the step send; " in (refused.status().last_error or "")


def test_beside_a_step_or_at_once_messages_are_enqueued(app: PollConsumer, sandbox: Sandbox) -> None:
    other = app.handler("other")(lambda: None)

    def flow(context: Context) -> None:
        context.step("send", lambda: other.enqueue().id)
        context.enqueue("other")

    sent(app, flow)
    sandbox.run()
    assert len([each for each in app.messages(state="completed") if each.status().handler == "other"]) == 2


def test_what_the_store_may_have_is_not_written_over(app: PollConsumer, sandbox: Sandbox, calls: Calls) -> None:
    original = RedisStore.record

    def losing(store: RedisStore, *arguments: Any) -> None:
        original(store, *arguments)
        if len(calls) == 1:
            raise StoreUnreachable("store unreachable")

    def flow(context: Context) -> Any:
        try:
            found = [context.step("charge", calls.do, "charge")]
        except StoreUnreachable:
            found = []
        found.append(context.step("mail", calls.do, "mail"))
        if context.attempt == 1:
            raise ValueError
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RedisStore, "record", losing)
        message = sent(app, flow)
        sandbox.run_for("10m")
    assert message.status().result == [["charge", 1], ["mail", 2]]


def test_it_sleeps_for_days_without_an_attempt(app: PollConsumer, sandbox: Sandbox, calls: Calls) -> None:
    def flow(context: Context) -> int:
        context.step("charge", calls.do, "charge")
        context.sleep("3d")
        context.step("remind", calls.do, "remind")
        return context.attempt

    message = sent(app, flow, max_attempts=1)
    launched = sandbox.run()
    assert (launched.handled, launched.failed) == (0, 0)
    assert (message.state, message.status().attempts, calls) == (State.SCHEDULED, 0, ["charge"])
    sandbox.advance("2d 23h".replace(" ", ""))
    assert sandbox.run().handled == 0
    sandbox.advance("1h")
    assert sandbox.run().handled == 1
    assert (message.status().result, calls) == (1, ["charge", "remind"])


@pytest.mark.parametrize("isolation", ["none", "process"])
@pytest.mark.parametrize("waits", ["sleeps", "waits", "waits in vain"])
def test_the_week_in_which_it_may_be_deferred_begins_when_it_wakes(
    app: PollConsumer, sandbox: Sandbox, waits: str, isolation: str
) -> None:
    def flow(context: Context) -> None:
        if waits == "sleeps":
            context.sleep("8d")
        else:
            context.wait_for("paid", timeout="8d" if waits == "waits in vain" else None)
        raise RetryIn("1d", charged=False)

    message = sent(app, flow, isolation=isolation)
    sandbox.run()
    sandbox.advance("8d")
    if waits == "waits":
        message.signal("paid")
    sandbox.run_for("6d", every="12h")
    assert message.state == "scheduled"
    sandbox.run_for("2d", every="12h")
    assert message.state == "dead"


def test_a_broad_except_does_not_swallow_a_sleep(app: PollConsumer, sandbox: Sandbox) -> None:
    def flow(context: Context) -> None:
        try:
            context.sleep("1h")
        except Exception:
            raise Fatal from None

    message = sent(app, flow)
    sandbox.run_for("2h")
    assert message.state is State.COMPLETED


def test_one_that_is_woken_too_early_sleeps_on(app: PollConsumer, sandbox: Sandbox) -> None:
    message = sent(app, lambda context: context.sleep("1h"))
    sandbox.run()
    message.reschedule(in_=0)
    assert sandbox.run().handled == 0
    sandbox.advance("1h")
    assert sandbox.run().handled == 1


def test_a_value_without_a_json_form_is_no_signal_and_no_fault_of_the_stores(valkey: Server) -> None:
    message = PollConsumer(store=valkey.url, namespace=NAMESPACE).enqueue("order", {})
    with pytest.raises(TypeError, match="signal approved: a object has no JSON form; give what JSON has"):
        message.signal("approved", object())


def test_it_waits_for_a_signal(app: PollConsumer, sandbox: Sandbox) -> None:
    message = sent(app, lambda context: context.wait_for("approved", timeout="7d"))
    sandbox.run()
    sandbox.advance("1d")
    assert sandbox.run().handled == 0
    assert message.signal("approved", {"by": "admin"})
    assert not message.signal("approved", {"by": "somebody"})
    assert sandbox.run().handled == 1
    assert message.status().result == {"by": "admin"}


def test_a_signal_that_came_before_is_there_at_once(app: PollConsumer, sandbox: Sandbox) -> None:
    message = sent(app, lambda context: context.wait_for("approved"))
    message.signal("approved", 7)
    sandbox.run_for("1m")
    assert message.status().result == 7


def test_no_signal_in_time_is_none(app: PollConsumer, sandbox: Sandbox) -> None:
    found: list[Any] = []

    def flow(context: Context) -> None:
        found.append(context.wait_for("approved", timeout="7d"))
        if context.attempt == 1:
            raise ValueError

    message = sent(app, flow)
    sandbox.run_for("6d", every="1h")
    assert found == []
    sandbox.advance("1d")
    sandbox.run()
    message.signal("approved", "too late")
    sandbox.run_for("10m")
    assert (found, message.state) == ([None, None], State.COMPLETED)


def test_the_value_stays_what_it_was(app: PollConsumer, sandbox: Sandbox) -> None:
    found: list[Any] = []

    def flow(context: Context) -> None:
        found.append(context.wait_for("approved"))
        if context.attempt == 1:
            raise ValueError

    message = sent(app, flow)
    message.signal("approved", {"n": 1})
    sandbox.run_for("1h")
    assert (found, message.state) == ([{"n": 1}] * 2, State.COMPLETED)


@pytest.mark.parametrize("from_start", [False, True])
def test_a_redrive_goes_on_where_it_was_or_from_the_start(
    app: PollConsumer, sandbox: Sandbox, calls: Calls, *, from_start: bool
) -> None:
    def flow(context: Context) -> None:
        context.step("charge", calls.do, "charge")
        if context.generation == 0:
            raise Fatal

    message = sent(app, flow)
    sandbox.run()
    message.redrive(from_start=from_start)
    sandbox.run()
    assert (message.state, len(calls)) == (State.COMPLETED, 1 + from_start)


async def _async_flow(context: Context, calls: Calls) -> Any:
    found = [
        await context.step_async("charge", calls.do_soon, "charge"),
        await context.step_async("plain", calls.do, "plain"),
    ]
    context.sleep("1h")
    return found


def test_coroutines_take_steps(app: PollConsumer, sandbox: Sandbox, calls: Calls) -> None:
    @app.handler("flow")
    async def flow(context: Context) -> Any:
        return await _async_flow(context, calls)

    message = app.enqueue("flow", {})
    sandbox.run_for("2h")
    assert (message.status().result, calls) == ([["charge", 1], ["plain", 2]], ["charge", "plain"])


def test_a_coroutine_function_is_no_step_of_a_plain_handler(app: PollConsumer, sandbox: Sandbox, calls: Calls) -> None:
    message = sent(app, lambda context: context.step("charge", calls.do_soon, "charge"), max_attempts=1)
    sandbox.run()
    assert "use await context.step_async" in (message.status().last_error or "")


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda context: context.step("x", lambda: "x" * 65_536), "result of step x: 65538 bytes of JSON"),
        (lambda context: context.step("x", object), "result of step x: a object has no JSON form"),
        (lambda context: context.step("a#2", int), "step name: 'a#2'"),
        (lambda context: context.wait_for("a#2"), "signal name: 'a#2'"),
        (lambda context: context.sleep("soon"), "context.sleep: 'soon'; units are"),
        (
            lambda context: [context.step("x", int) for _ in range(MOST_STEPS + 1)],
            "step: x#1001; a message has at most 1000",
        ),
        (
            lambda context: [context.step("x", lambda: "x" * 60_000) for _ in range(18)],
            "step: x#18, 1080439 bytes in all",
        ),
    ],
)
def test_limits(app: PollConsumer, sandbox: Sandbox, act: Callable[[Context], Any], said: str) -> None:
    message = sent(app, act, max_attempts=1)
    sandbox.run()
    assert said in (message.status().last_error or "")


def test_the_function_of_a_step_too_many_is_not_called(app: PollConsumer, sandbox: Sandbox, calls: Calls) -> None:
    sent(app, lambda context: [context.step("x", calls.do, "x") for _ in range(MOST_STEPS + 1)], max_attempts=1)
    sandbox.run()
    assert len(calls) == MOST_STEPS


def test_at_most_once_is_refused_at_registration(app: PollConsumer) -> None:
    with pytest.raises(UsageError, match=r"context\.sleep needs a second attempt"):

        @app.handler("once", delivery="at_most_once")
        def once(context: Context) -> None:
            context.sleep("1h")


def test_at_most_once_is_refused_at_the_call(app: PollConsumer, sandbox: Sandbox, calls: Calls) -> None:
    message = sent(app, lambda context: context.step("a", calls.do, "a"), delivery="at_most_once")
    sandbox.run()
    assert "UsageError: context.step: delivered at most once" in (message.status().last_error or "")
    assert calls == []


def test_another_sleep_than_the_contexts_is_not(app: PollConsumer) -> None:
    import time

    @app.handler("once", delivery="at_most_once")
    def once(context: Context, time: Any = time) -> None:
        time.sleep(context.time_left() * 0)


def test_names_that_are_no_longer_asked_for_are_warned_of_once(
    app: PollConsumer, sandbox: Sandbox, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    def flow(context: Context) -> None:
        context.step(f"charge{context.generation}", calls.do, "charge")
        context.step("mail", calls.do, "mail")
        if context.generation == 0:
            raise Fatal

    messages = [sent(app, flow), app.enqueue("flow", {})]
    sandbox.run()
    for message in messages:
        message.redrive()
    with caplog.at_level(logging.WARNING):
        sandbox.run()
    said = [record.getMessage() for record in caplog.records if "no longer has" in record.getMessage()]
    assert said == [
        f"{messages[0].id} (flow) has recorded steps that its handler no longer has: charge0; were they renamed "
        "meanwhile?"
    ]


def test_a_sleeper_is_warned_of_nothing(
    app: PollConsumer, sandbox: Sandbox, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    def flow(context: Context) -> None:
        context.sleep("1h")
        context.step("mail", calls.do, "mail")
        context.sleep("1h")

    message = sent(app, flow)
    with caplog.at_level(logging.WARNING):
        sandbox.run_for("3h")
    assert message.state is State.COMPLETED
    assert "no longer has" not in caplog.text


def test_no_step_is_taken_after_the_attempt(app: PollConsumer, sandbox: Sandbox) -> None:
    kept: list[Context] = []
    sent(app, kept.append)
    sandbox.run()
    with pytest.raises(UsageError, match="after the attempt"):
        kept[0].step("late", int)


def test_the_end_takes_no_signal(app: PollConsumer, sandbox: Sandbox) -> None:
    message = sent(app, lambda _: None)
    sandbox.run()
    with pytest.raises(BadData, match="it is completed already"):
        message.signal("approved")


def test_what_has_taken_a_step_does_not_expire(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("flow")
    def flow(context: Context) -> None:
        context.sleep("2h")

    message = app.enqueue("flow", {}, expires="1h")
    sandbox.run_for("3h")
    assert message.state is State.COMPLETED


def test_a_step_costs_one_round_trip_and_a_recorded_one_none(
    app: PollConsumer, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, original = [0], Wire.all
    costs: list[list[int]] = []

    def counting(wire: Wire, *arguments: Any, **options: Any) -> Any:
        made[0] += 1
        return original(wire, *arguments, **options)

    def flow(context: Context) -> None:
        costs.append([])
        for number in range(3):
            before = made[0]
            context.step(f"step {number}", int)
            costs[-1].append(made[0] - before)
        before = made[0]
        try:
            context.sleep("1h")
        finally:
            costs[-1].append(made[0] - before)

    monkeypatch.setattr(Wire, "all", counting)
    sent(app, flow)
    sandbox.run_for("2h")
    assert costs == [[1, 1, 1, 1], [0, 0, 0, 0]]


def test_one_that_is_to_stop_is_cancelled_where_it_would_sleep(app: PollConsumer, sandbox: Sandbox) -> None:
    def flow(context: Context) -> None:
        app.message(context.id).stop()
        context.sleep("1h")

    message = sent(app, flow)
    sandbox.run()
    assert (message.state, message.status().last_error) == (State.CANCELLED, "stopped on request")


def test_each_slice_feeds_the_margin(app: PollConsumer, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def flow(context: Context) -> None:
        sandbox.advance(1)
        context.sleep("1d")
        sandbox.advance(2)

    measured: list[float] = []
    monkeypatch.setattr(Durations, "add", lambda _self, _name, seconds: measured.append(seconds))
    sent(app, flow)
    sandbox.run_for("2d", every="1h")
    assert measured == [1, 3]  # what stands before the sleep is run again


def test_the_guide_says_what_works() -> None:
    _, handler, enqueueing, testing, _, calling = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    calls: list[str] = []
    names: dict[str, Any] = {
        name: partial(lambda name, _: calls.append(name), name)
        for name in ("charge", "pack", "refund", "ship", "remind")
    }
    exec(handler, names)
    with Sandbox(names["app"]) as own:
        exec(enqueueing, names)
        own.run_for("4d", every="1h")
        assert names["message"].state is State.COMPLETED
    exec(testing, names)
    assert calls == ["charge", "pack", "ship", "remind"] * 2
    called: dict[str, Any] = {}
    exec(calling, called)
    with Sandbox(called["app"]) as own:
        message = called["ship"].enqueue(parcels=["a", "b"])
        own.run()
        assert message.wait() == ["label of a", "label of b"]


def test_the_pages_loop_reminds_once_a_day_until_the_signal_comes() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    reminded: list[int] = []
    names: dict[str, Any] = {"remind": lambda _, day: reminded.append(day)}
    exec(blocks[1].partition("@app")[0] + blocks[4], names)
    with Sandbox(names["app"]) as own:
        paid, unpaid = (names["invoice"].enqueue(number=number) for number in (1, 2))
        own.run_for("30h", every="1h")
        assert reminded == [1, 1]
        paid.signal("paid", {"by": "ann"})
        own.run()
        assert paid.status().result == "paid by ann"
        own.run_for("45h", every="1h")
        assert (unpaid.status().state, reminded) == ("scheduled", [1, 1, 2, 3])
        own.run_for("24h", every="1h")
        assert (unpaid.status().result, reminded) == ("given up", [1, 1, 2, 3])
