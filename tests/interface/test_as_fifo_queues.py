"""What SQS promises of a message group in a FIFO queue, kept by order keys and ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer import Context, PollConsumer, RetryIn
from pollconsumer.core.errors import QueueFull
from pollconsumer.testing import Sandbox

if TYPE_CHECKING:
    from pathlib import Path

    from pollconsumer import Handle


def test_producers_share_the_order_of_a_key_though_its_first_message_is_tried_again() -> None:
    consuming, producing = PollConsumer(), PollConsumer()
    seen: list[int] = []

    @consuming.handler("book")
    def book(context: Context, n: int) -> None:
        if (n, context.attempt) == (0, 1):
            raise RetryIn("1m")
        seen.append(n)

    with Sandbox(consuming, producing) as sandbox:
        for n in range(0, 12, 3):
            book.using(order_key="k").enqueue(n)
            producing.enqueue("book", {"n": n + 1}, order_key="k")
            book.enqueue_many([book.args(n + 2).using(order_key="k")])
        sandbox.run()
        assert seen == []
        sandbox.run_for("2m")
    assert seen == [*range(12)]


def test_a_group_whose_first_message_is_not_visible_yet_holds_back_no_other_group(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    seen: list[str] = []

    @app.handler("book")
    def book(context: Context, name: str) -> None:
        if name == "a1" and context.attempt == 1:
            raise RetryIn("6m")
        seen.append(name)

    for name in ("a1", "b1", "a2", "c1", "b2", "a3"):
        book.using(order_key=name[0]).enqueue(name)
    sandbox.run()
    assert seen == ["b1", "c1", "b2"]
    sandbox.run_for("6m")
    assert seen == ["b1", "c1", "b2", "a1", "a2", "a3"]


def test_a_repeated_id_takes_no_second_place_in_the_order(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[int] = []
    book = app.handler("book")(lambda n: seen.append(n))

    def send(n: int) -> Handle[None]:
        return book.using(id=f"transfer-{n}", order_key="account").enqueue(n)

    assert [send(n).duplicate for n in (1, 2, 1)] == [False, False, True]
    sandbox.run()
    sandbox.advance("5m")
    assert [send(n).duplicate for n in (1, 3, 2)] == [True, False, True]
    sandbox.run()
    assert seen == [1, 2, 3]


def test_the_group_goes_on_after_the_last_attempt_and_a_redriven_message_is_its_next(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    seen: list[tuple[int, int]] = []
    mended: list[bool] = []

    @app.handler("book", max_attempts=2, retry=["1m"])
    def book(context: Context, n: int) -> None:
        seen.append((n, context.attempt))
        if n == 1 and not mended:
            raise OSError("the bank is closed")
        if n == 2 and context.attempt == 1:
            raise RetryIn("15m")

    first, *_ = book.enqueue_many([book.args(n).using(order_key="account") for n in (1, 2, 3)])
    sandbox.run_for("10m")
    assert (seen, first.state) == ([(1, 1), (1, 2), (2, 1)], "dead")
    mended.append(True)
    first.redrive()
    sandbox.run_for("10m")
    assert seen[3:] == [(2, 2), (1, 1), (3, 1)]


def test_a_message_that_waits_for_its_group_spends_no_attempt(app: PollConsumer, sandbox: Sandbox) -> None:
    attempts: dict[str, list[int]] = {"first": [], "second": []}

    @app.handler("book", max_attempts=4, retry=["1m"])
    def book(context: Context, name: str) -> None:
        attempts[name].append(context.attempt)
        if name == "first" and context.attempt < 4:
            raise OSError("not yet")

    for name in attempts:
        book.using(order_key="account").enqueue(name)
    sandbox.run_for("10m")
    assert attempts == {"first": [1, 2, 3, 4], "second": [1]}


def test_the_groups_of_a_queue_that_was_emptied_begin_anew(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[int] = []

    @app.handler("book")
    def book(n: int) -> None:
        if n == 1:
            raise RetryIn("1h")
        seen.append(n)

    book.enqueue_many([book.args(n).using(order_key=key) for n in (1, 2, 3) for key in ("a", "b")])
    sandbox.run()
    assert app.messages(handler="book").cancel_all() == 6
    for key in ("b", "a"):
        book.using(order_key=key).enqueue(4)
    sandbox.run()
    assert seen == [4, 4]
    sandbox.run_for("2h")
    assert seen == [4, 4]


def test_messages_in_line_for_their_group_count_for_the_longest_queue(app: PollConsumer, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[queues.default]\nmax_ready = 3\n")
    waits = [True]

    @app.handler("book")
    def book() -> None:
        if waits:
            raise RetryIn("6m")

    with Sandbox(app, config=tmp_path / "config.toml") as sandbox:
        book.enqueue_many([book.args().using(order_key="account")] * 3)
        sandbox.run()  # the first one waits for its next attempt, the others for it
        book.using(order_key="account").enqueue()
        with pytest.raises(QueueFull, match="3 ready, 1 more; max_ready is 3"):
            book.using(order_key="another account").enqueue()
        waits.clear()
        sandbox.run_for("10m")
        assert not book.using(order_key="account").enqueue().duplicate
