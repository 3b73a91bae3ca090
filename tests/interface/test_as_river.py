"""What River has of sequences, snoozes, stops, pauses and periodic jobs, by our own means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pollconsumer import Context, Fatal, PollConsumer, RetryIn
from pollconsumer.store.actions import MessageActions
from pollconsumer.testing import Sandbox

NOON = datetime(2026, 3, 27, 12, 0, tzinfo=UTC)


def pause(app: PollConsumer, sandbox: Sandbox, *, paused: bool) -> None:
    """Pause the queue ``default``, or resume it."""
    store = sandbox.store_of(app)
    MessageActions(store.wire, store.keys.namespace).pause("default", paused=paused)


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_message_that_snoozes_keeps_its_place_in_the_sequence_and_its_attempts(
    app: PollConsumer, sandbox: Sandbox, seconds: float
) -> None:
    seen: list[tuple[str, int]] = []

    @app.handler("sync", max_attempts=1)
    def sync(context: Context, name: str) -> None:
        seen.append((name, context.attempt))
        if name == "a" and len(seen) < 4:
            raise RetryIn(seconds, charged=False)

    for name in ("a", "b"):
        sync.using(order_key="k").enqueue(name)
    sandbox.run_for("10m")
    assert seen == [("a", 1)] * 4 + [("b", 1)]


def test_the_next_of_a_sequence_begins_when_the_running_one_is_stopped(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[str] = []

    @app.handler("sync")
    def sync(context: Context, name: str) -> None:
        seen.append(name)
        if name == "a":
            app.message(context.id).stop()
            if context.cancelled:
                raise InterruptedError("stopped")

    first, second = (sync.using(order_key="k").enqueue(name) for name in ("a", "b"))
    sandbox.run()
    assert (seen, first.state, second.state) == (["a", "b"], "cancelled", "completed")


def test_a_cancelled_message_lets_its_sequence_go_on_where_a_dead_letter_holds_it(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    seen: list[str] = []

    @app.handler("sync", order_on_dead="hold")
    def sync(name: str) -> None:
        if name in ("a1", "b1"):
            raise RetryIn("1h")
        if name == "b2":
            raise Fatal("never")
        seen.append(name)

    handles = {name: sync.using(order_key=name[0]).enqueue(name) for name in ("a1", "b1", "a2", "b2", "a3", "b3")}
    sandbox.run()
    for name in ("a1", "b1"):
        handles[name].cancel()
    sandbox.run()
    assert seen == ["a2", "a3"]
    assert handles["b3"].status().waits_for == handles["b2"].id


def test_a_pause_keeps_the_sequence_whose_first_message_became_due_meanwhile(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    seen: list[str] = []

    @app.handler("sync")
    def sync(context: Context, name: str) -> None:
        if name == "a" and context.attempt == 1:
            raise RetryIn("1m")
        seen.append(name)

    for name in ("a", "b"):
        sync.using(order_key="k").enqueue(name)
    sandbox.run()
    pause(app, sandbox, paused=True)
    sync.using(order_key="k").enqueue("c")
    sandbox.run_for("10m")
    assert seen == []
    pause(app, sandbox, paused=False)
    sandbox.run()
    assert seen == ["a", "b", "c"]


def test_a_message_of_an_unknown_kind_holds_its_sequence_until_a_launch_knows_it(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    seen: list[str] = []
    sync = app.handler("sync")(lambda: seen.append("known"))
    app.enqueue("later", order_key="k", queue="default")
    sync.using(order_key="k").enqueue()
    sync.using(order_key="another").enqueue()
    sandbox.run()
    assert seen == ["known"]
    app.handler("later")(lambda: seen.append("later"))
    sandbox.run_for("2m")
    assert seen == ["known", "later", "known"]


@pytest.mark.parametrize(("overlap", "gathered"), [("allow", 13), ("skip", 1), ("queue", 1), ("replace", 1)])
def test_a_paused_queue_gathers_as_many_occurrences_as_may_overlap(overlap: Any, gathered: int) -> None:
    app, seen = PollConsumer(), list[datetime]()
    with Sandbox(app, start=NOON) as sandbox:

        @app.handler("poll")
        def poll() -> None:
            seen.append(sandbox.now)

        app.recurrences.put("poll", every="5m", handler="poll", overlap=overlap)
        pause(app, sandbox, paused=True)
        sandbox.run_for("1h")
        assert len(sandbox.messages("ready")) == gathered
        pause(app, sandbox, paused=False)
        sandbox.run()
        assert seen == [NOON + timedelta(hours=1)] * gathered
        sandbox.run_for("5m")
        assert seen[gathered:] == [NOON + timedelta(hours=1, minutes=5)]


def test_what_recurrences_have_enqueued_stays_when_they_are_removed(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[str] = []
    app.handler("poll")(lambda name: seen.append(name))
    for name in ("feed:a", "feed:b", "other"):
        app.recurrences.put(name, every="1m", handler="poll", payload={"name": name}, overlap="queue")
    sandbox.advance("30s")
    for each in [*app.recurrences.select(prefix="feed:")]:
        app.recurrences.remove(each.name)
    assert [each.name for each in app.recurrences] == ["other"]
    sandbox.run_for("3m")
    assert sorted(seen) == ["feed:a", "feed:b", *["other"] * 4]


@pytest.mark.parametrize("copies", [True, False])
def test_the_creator_goes_on_with_the_headers_where_these_are_copied(
    app: PollConsumer, sandbox: Sandbox, copies: bool
) -> None:
    creators: list[str | None] = []

    @app.handler("order")
    def order(context: Context) -> None:
        context.enqueue("bill", copy_headers=copies)

    @app.handler("bill")
    def bill(context: Context) -> None:
        creators.append(context.headers.get("created-by"))

    order.using(created_by="ada").enqueue()
    sandbox.run()
    assert creators == ["ada" if copies else None]
    assert app.messages(created_by="ada").count() == 1 + copies


def test_a_sequence_of_one_queue_is_handled_beside_that_of_another(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[str] = []

    def waits_once(context: Context, name: str) -> None:
        if name.endswith("1") and context.attempt == 1:
            raise RetryIn("6m" if name == "a1" else "1m")
        seen.append(name)

    send: dict[str, Any] = {}
    for queue in "ab":
        handler = app.handler(queue, queue=queue)(waits_once)
        send[queue] = handler.using(order_key="the same").enqueue
    for name in ("a1", "b1", "a2", "b2"):
        send[name[0]](name)
    sandbox.run_for("10m")
    assert seen == ["b1", "b2", "a1", "a2"]
