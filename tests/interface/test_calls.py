"""Steps that wait for other messages: ``context.call`` and ``context.call_many``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import BadData, ChildFailed, Context, Fatal, UsageError

if TYPE_CHECKING:
    from pollconsumer import PollConsumer
    from pollconsumer.testing import Sandbox


def test_a_call_returns_the_result_of_a_message(app: PollConsumer, sandbox: Sandbox) -> None:
    charged: list[int] = []

    @app.handler(queue="payments")
    def charge(amount: int) -> dict[str, int]:
        charged.append(amount)
        return {"paid": amount}

    @app.handler
    def order(amount: int, context: Context) -> Any:
        return context.call("charge", {"amount": amount}, timeout="1h")

    message = order.enqueue(amount=7)
    sandbox.run()
    assert (message.state, message.wait()) == ("completed", {"paid": 7})
    assert charged == [7]
    (called,) = sandbox.messages(handler="charge")
    assert called.id.startswith(f"{message.id}:call-1@")
    assert called.state == "completed"


def test_several_calls_return_their_results_in_their_order(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler
    def double(n: int) -> int:
        return 2 * n

    @app.handler
    def add(context: Context) -> int:
        doubled = context.call_many([double.args(n) for n in range(5)])
        return sum([*doubled, context.call(double.args(10))])

    message = add.enqueue()
    sandbox.run()
    assert message.wait() == 2 * (0 + 1 + 2 + 3 + 4) + 20


def test_the_failure_of_a_called_message_is_raised_and_may_be_caught(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler
    def fail() -> None:
        raise Fatal("no money")

    @app.handler(max_attempts=1)
    def order(catches: bool, context: Context) -> str:
        try:
            return str(context.call("fail"))
        except ChildFailed as error:
            if not catches:
                raise
            return f"{error.state}: {error.last_error}"

    caught, raised = (app.enqueue("order", {"catches": catches}) for catches in (True, False))
    sandbox.run(raising=False)
    assert caught.wait() == "dead: Fatal: no money"
    assert raised.state == "dead"
    called = {each.id.partition(":")[0]: each.id for each in sandbox.messages("dead", handler="fail")}
    assert raised.status().last_error == f"ChildFailed: message {called[raised.id]} is dead: Fatal: no money"


def test_a_call_ends_after_its_timeout_while_its_message_goes_on(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler
    def slow() -> None: ...

    @app.handler(max_attempts=1)
    def order(context: Context) -> str:
        try:
            return str(context.call(slow.args().using(in_="2h"), timeout="1h"))
        except ChildFailed as error:
            return f"{error.id} is {error.state!r}"

    message = order.enqueue()
    sandbox.run()
    sandbox.advance("1h")
    sandbox.run()
    (called,) = sandbox.messages(handler="slow")
    assert message.wait() == f"{called.id} is ''"
    sandbox.advance("1h")
    sandbox.run()
    assert app.message(called.id).state == "completed"


@pytest.mark.parametrize("options", [{"id": "own"}, {"key": "own"}])
def test_a_called_message_has_no_identity_of_its_own(
    app: PollConsumer, sandbox: Sandbox, options: dict[str, Any]
) -> None:
    @app.handler
    def child() -> None: ...

    @app.handler(max_attempts=1)
    def order(context: Context) -> None:
        context.call(child.args().using(**options))

    message = order.enqueue()
    sandbox.run(raising=False)
    assert message.state == "dead"
    assert "context.call" in (message.status().last_error or "")


def test_a_call_with_ones_own_order_key_is_refused(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler
    def child() -> None: ...

    @app.handler(max_attempts=1)
    def order(context: Context) -> None:
        with pytest.raises(UsageError, match="order_key customer"):
            context.call(child.args().using(order_key="customer"))
        context.call(child.args().using(order_key="another"))

    message = order.using(order_key="customer").enqueue()
    sandbox.run()
    assert message.state == "completed"


def test_a_replaced_message_gets_the_answers_of_its_own_calls(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler
    def double(n: int) -> int:
        return 2 * n

    @app.handler
    def order(n: int, context: Context) -> Any:
        return context.call(double.args(n).using(in_="1h"))

    message = order.using(key="k").enqueue(1)
    sandbox.run()
    sandbox.advance("30m")
    assert order.using(key="k", replace=True).enqueue(5).id == message.id
    sandbox.run_for("2h")
    assert message.wait() == 10


def test_messages_that_a_later_attempt_adds_to_a_call_are_enqueued(app: PollConsumer, sandbox: Sandbox) -> None:
    numbers = [1]

    @app.handler
    def double(n: int) -> int:
        return 2 * n

    @app.handler
    def order(context: Context) -> Any:
        return context.call_many([double.args(n).using(in_="1h") for n in numbers])

    message = order.enqueue()
    sandbox.run()
    numbers.append(2)
    sandbox.run_for("3h")
    assert message.wait() == [2, 4]


def test_a_call_of_a_handler_that_was_renamed_since_is_not_made_again(app: PollConsumer, sandbox: Sandbox) -> None:
    charged, name = list[int](), ["charge_card"]

    @app.handler("charge", aliases=["charge_card"])
    def charge(n: int) -> int:
        charged.append(n)
        return n

    @app.handler
    def order(context: Context) -> Any:
        paid = [context.call(name[-1], {"n": n}) for n in (1, 2)]
        context.sleep("1h")
        return [*paid, context.call("charge_card", {"n": 3}), context.call("charge", {"n": 4})]

    message = order.enqueue()
    sandbox.run()
    name.append("charge")
    sandbox.run_for("2h")
    assert (message.wait(), charged) == ([1, 2, 3, 4], [1, 2, 3, 4])


def test_a_call_whose_results_are_too_large_together_fails_once_all_have_ended(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    @app.handler
    def write() -> str:
        return "x" * 60_000

    @app.handler(max_attempts=1)
    def gather(context: Context) -> str:
        try:
            return str(len(context.call_many([write.args() for _ in range(20)])))
        except ChildFailed as error:
            return f"{error.id.partition(':')[2].partition('@')[0]}: {error.last_error}"

    message = gather.enqueue()
    sandbox.run()
    assert len(sandbox.messages("completed", handler="write")) == 20
    assert message.wait() == "call-18: its result does not fit into its caller's 1048576 bytes: store it elsewhere"


@pytest.mark.parametrize(
    ("child", "known"), [("write", ": its result does not fit"), ("fail", "dead: Fatal: no money")]
)
def test_a_caller_whose_signals_leave_no_room_learns_that_a_called_message_has_ended(
    app: PollConsumer, sandbox: Sandbox, child: str, known: str
) -> None:
    @app.handler
    def write() -> str:
        return "x" * 60_000

    @app.handler
    def fail() -> None:
        raise Fatal("no money")

    @app.handler(max_attempts=1)
    def order(context: Context) -> str:
        try:
            return str(context.call(child))
        except ChildFailed as error:
            return f"{error.state}: {error.last_error}"

    message = order.enqueue()
    for number, size in enumerate([*[65_000] * 16, 8_100]):
        message.signal(f"note {number}", "x" * size)
    with pytest.raises(BadData, match="its signals have 1048576 bytes"):
        message.signal("one more", "x" * 2_000)
    sandbox.run(raising=False)
    assert str(message.wait()).startswith(known)


def test_results_that_are_not_ascii_take_no_more_room_than_their_utf_8(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler
    def write() -> str:
        return "ü" * 30_000

    @app.handler(max_attempts=1)
    def gather(context: Context) -> int:
        return sum(map(len, context.call_many([write.args() for _ in range(16)])))

    message = gather.enqueue()
    sandbox.run()
    assert message.wait() == 16 * 30_000


def test_a_caller_that_is_redriven_has_the_answer_that_came_while_it_was_dead(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    away = True

    @app.handler
    def double(n: int) -> int:
        return 2 * n

    @app.handler(max_attempts=1)
    def order(context: Context) -> int:
        wake, slow = double.args(1), double.args(2).using(in_="1h")
        if away and sandbox.messages("completed", handler="double"):
            raise Fatal("the database is away")
        return sum(context.call_many([wake, slow]))

    message = order.enqueue()
    sandbox.run(raising=False)
    assert message.state == "dead"
    sandbox.advance("1h")
    sandbox.run()
    away = False
    message.redrive()
    sandbox.run()
    assert message.wait() == 6
