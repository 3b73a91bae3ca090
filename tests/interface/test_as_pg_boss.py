"""What pg-boss has of strict order by key, of slots in time and of dependencies, by our own means."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import ChildFailed, Context, Fatal, PollConsumer, RetryIn
from pollconsumer.testing import Sandbox

if TYPE_CHECKING:
    from pollconsumer import Handle
    from tests.site import Site

BLOCKING = """
from pollconsumer import Fatal, PollConsumer
app = PollConsumer()
@app.handler("sync", order_on_dead="hold")
def sync(fails: bool) -> None:
    if fails:
        raise Fatal("no")
"""
NOON = datetime(2026, 3, 27, 12, 0, tzinfo=UTC)
SLOT = timedelta(minutes=5)


def slot_of(instant: datetime) -> datetime:
    """The beginning of the slot of five minutes in which ``instant`` is."""
    return instant - (instant - NOON) % SLOT


def test_of_two_keys_that_dead_letters_hold_the_one_whose_is_redriven_goes_on(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    seen: list[str] = []
    mended: list[bool] = []

    @app.handler("sync", order_on_dead="hold")
    def sync(name: str) -> None:
        if name.endswith("1") and not mended:
            raise Fatal("the other system refuses it")
        seen.append(name)

    handles = {name: sync.using(order_key=name[0]).enqueue(name) for name in ("a1", "b1", "a2", "b2", "c2")}
    sandbox.run()
    assert seen == ["c2"]
    assert {name: handles[name].status().waits_for for name in ("a2", "b2")} == {
        "a2": handles["a1"].id,
        "b2": handles["b1"].id,
    }
    mended.append(True)
    handles["b1"].redrive()
    sandbox.run_for("20m")
    assert seen == ["c2", "b1", "b2"]
    assert handles["a2"].state == "ready"


@pytest.mark.ends_with(1)
def test_blocked_keys_are_named_until_each_is_purged_or_redriven(site: Site) -> None:
    (site.directory / "handlers.py").write_text(BLOCKING)

    def blocked() -> list[str]:
        found = json.loads(site.command("doctor", "--json").stdout)["findings"]
        return [f"{each['what']}: {each['value']}" for each in found if each["name"] == "order_held"]

    assert blocked() == []
    heads = [site.enqueue("sync", "--order-key", key, fails=True) for key in ("a", "b")]
    for key in ("a", "b", "b"):
        site.enqueue("sync", "--order-key", key, fails=False)
    site.drain()
    (value,) = blocked()
    assert value.startswith(f"order key a of queue default is held by dead letter {heads[0]}: 1 message behind it, ")
    assert value.endswith("; 1 more key")
    site.command("dead", "purge", heads[0], "--yes")
    site.drain()
    (value,) = blocked()
    assert value.startswith(f"order key b of queue default is held by dead letter {heads[1]}: 2 messages behind it, ")
    site.command("dead", "purge", heads[1], "--yes")
    site.drain()
    assert blocked() == []


def test_messages_enqueued_together_keep_the_order_of_their_own_keys(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: dict[str, list[int]] = {"a": [], "b": [], "c": []}

    @app.handler("sync", retry=["7s"])
    def sync(context: Context, key: str, n: int) -> None:
        if context.attempt == 1 and n % 2 == 0:
            raise OSError("later")
        seen[key].append(n)

    sync.enqueue_many([sync.args(key, n).using(order_key=key) for n in range(4) for key in seen])
    sandbox.run_for("5m")
    assert seen == {key: [*range(4)] for key in seen}


def test_one_that_expires_in_line_is_passed_over_when_its_turn_comes(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[int] = []

    @app.handler("sync")
    def sync(context: Context, n: int) -> None:
        if n == 1 and context.attempt == 1:
            raise RetryIn("6m")
        seen.append(n)

    options: list[dict[str, Any]] = [{}, {"expires": "1m"}, {}]
    handles = [sync.using(order_key="k", **given).enqueue(n) for n, given in enumerate(options, 1)]
    sandbox.run_for("10m")
    assert seen == [1, 3]
    assert [each.state for each in handles] == ["completed", "expired", "completed"]


@pytest.fixture
def slots(app: PollConsumer) -> Any:
    """A sandbox that begins at noon, and what enqueues a report of the slot which is ``ahead`` slots from now."""
    seen: list[datetime] = []
    with Sandbox(app, start=NOON) as sandbox:
        report = app.handler("report")(lambda: seen.append(sandbox.now))

        def send(ahead: int = 0) -> Handle[None]:
            due = slot_of(sandbox.now) + ahead * SLOT
            return report.using(id=f"report-{due:%H%M}", at=due).enqueue()

        yield sandbox, send, seen


def test_a_slot_of_time_has_one_message_even_after_that_has_ended(slots: Any) -> None:
    sandbox, send, seen = slots
    sandbox.advance("1m")
    assert not send().duplicate
    sandbox.run()
    for _ in range(3):
        sandbox.advance("1m")
        assert send().duplicate
        sandbox.run()
    sandbox.advance("1m")
    assert not send().duplicate
    sandbox.run()
    assert seen == [NOON + timedelta(minutes=n) for n in (1, 5)]


def test_a_second_message_of_a_slot_is_due_in_the_next_one_and_a_third_is_a_duplicate(slots: Any) -> None:
    sandbox, send, seen = slots
    sent = list[bool]()
    for _ in range(3):
        sandbox.advance("1m")
        first = send()
        sent.append(bool(first.duplicate and send(1).duplicate))
        sandbox.run()
    assert sent == [False, False, True]
    sandbox.run_for("1h")
    assert seen == [NOON + timedelta(minutes=1), NOON + SLOT]


def test_a_caller_goes_on_when_the_last_of_its_calls_has_ended_after_its_retries(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    ended: list[str] = []

    @app.handler("part", queue="parts", retry=["10m"])
    def part(context: Context, name: str) -> str:
        if name == "wheel" and context.attempt < 3:
            raise OSError("not made yet")
        ended.append(name)
        return f"{name}!"

    @app.handler("paint", queue="colours")
    def paint(colour: str) -> str:
        ended.append(colour)
        return colour

    @app.handler("build")
    def build(context: Context) -> list[str]:
        found = context.call_many([part.args("wheel"), paint.args("red").using(in_="5m"), part.args("door")])
        ended.append("built")
        return found

    message = build.enqueue()
    sandbox.run_for("15m")
    assert (ended, message.state) == (["door", "red"], "scheduled")
    sandbox.run_for("15m")
    assert (ended, message.wait()) == (["door", "red", "wheel", "built"], ["wheel!", "red", "door!"])


def test_a_caller_that_is_redriven_from_its_start_calls_anew_and_otherwise_knows_the_failure(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    mended: list[bool] = []
    said: list[str] = []

    @app.handler("part")
    def part() -> str:
        if not mended:
            raise Fatal("no material")
        return "made"

    @app.handler("build", max_attempts=1)
    def build(context: Context) -> str:
        try:
            return str(context.call("part"))
        except ChildFailed as error:
            said.append(error.state)
            raise

    message = build.enqueue()
    sandbox.run()
    assert (said, message.state) == (["dead"], "dead")
    mended.append(True)
    message.redrive()
    sandbox.run()
    assert (said, message.state) == (["dead", "dead"], "dead")
    sandbox.advance("1m")
    message.redrive(from_start=True)
    sandbox.run()
    assert (said, message.wait()) == (["dead", "dead"], "made")
