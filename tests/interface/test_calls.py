"""Steps that wait for other messages: ``context.call`` and ``context.call_many``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import ChildFailed, Context, Fatal, UsageError

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
