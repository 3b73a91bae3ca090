"""``RetryIn`` uncharged: a message that its handler puts off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Context, Partial, PollConsumer, RetryIn

if TYPE_CHECKING:
    from pollconsumer.testing import Sandbox


def test_a_message_is_deferred_as_often_as_its_handler_says(app: PollConsumer, sandbox: Sandbox) -> None:
    attempts: list[int] = []

    @app.handler("poll", max_attempts=2)
    def poll(context: Context) -> str:
        attempts.append(context.attempt)
        if len(attempts) < 9:
            raise RetryIn("1m", charged=False)
        return "there"

    handle = poll.enqueue()
    launched = sandbox.run_for("20m")
    assert attempts == [1] * 9
    status = handle.status()
    assert (status.state, status.attempts, status.result) == ("completed", 1, "there")
    assert (launched.handled, launched.failed) == (1, 0)


def test_what_was_charged_before_stays_charged(app: PollConsumer, sandbox: Sandbox) -> None:
    attempts: list[int] = []

    @app.handler("poll", max_attempts=2)
    def poll(context: Context) -> None:
        attempts.append(context.attempt)
        if len(attempts) % 2:
            raise RetryIn("1m", charged=False)
        raise ValueError

    handle = poll.enqueue()
    sandbox.run_for("1h")
    assert attempts == [1, 1, 2, 2]
    assert handle.state == "dead"


def test_hooks_are_told_of_failures_alone(app: PollConsumer, sandbox: Sandbox) -> None:
    told: list[str] = []
    app.on_failure(lambda _context, error, _delay: told.append(str(error)))

    @app.handler("poll")
    def poll() -> None:
        raise RetryIn("1m", charged=False)

    poll.enqueue()
    sandbox.run()
    assert told == []


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_one_that_is_deferred_for_a_week_is_a_dead_letter_that_says_so(
    app: PollConsumer, sandbox: Sandbox, isolation: Any
) -> None:
    calls: list[int] = []

    @app.handler("poll", isolation=isolation)
    def poll() -> None:
        calls.append(1)
        raise RetryIn("1d", charged=False)

    handle = poll.using(in_="1d").enqueue()
    sandbox.run_for("10d", every="12h")
    status = handle.status()
    assert status.state == "dead"
    assert status.last_error == "deferred until 7d after it was due: RetryIn: deferred by 1d"
    assert status.attempts == 1
    before = len(calls)
    assert before in (7, 8)
    handle.redrive()
    sandbox.run()
    assert handle.state == "scheduled"


def test_one_that_is_handled_at_most_once_is_not_put_off(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("poll", delivery="at_most_once")
    def poll() -> None:
        raise RetryIn("1m", charged=False)

    handle = poll.enqueue()
    sandbox.run()
    assert (handle.state, handle.status().last_error) == ("dead", "RetryIn: deferred by 1m")


def test_some_of_a_bulk_call_are_put_off(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("index", bulk=9)
    def index(messages: list[Any]) -> None:
        raise Partial({len(messages) - 1: RetryIn("1m", charged=False)})

    handles = index.enqueue_many([{}, {}])
    sandbox.run()
    assert [each.state for each in handles] == ["completed", "scheduled"]
    assert handles[1].status().attempts == 0


def test_a_message_that_expires_while_it_is_deferred_is_not_handled_again(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("poll")
    def poll() -> None:
        raise RetryIn("1m", charged=False)

    handle = poll.using(expires="10m").enqueue()
    sandbox.run_for("15m")
    assert handle.state == "expired"
