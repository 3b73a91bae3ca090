"""``Skip``: a hook ``before`` has a handler not called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Context, PollConsumer, Skip
from tests.inner import registered

if TYPE_CHECKING:
    from pollconsumer.testing import Sandbox


@pytest.mark.parametrize("way", ["plain", "async", "process"])
def test_a_skipped_message_is_completed_without_its_handler(app: PollConsumer, sandbox: Sandbox, way: str) -> None:
    said: list[object] = []

    @app.before
    def skip_some(context: Context) -> None:
        if context.headers.get("tenant") == "closed":
            raise Skip

    app.before(lambda context: said.append(context.id))
    app.after(lambda _context, result: said.append(result))
    options: dict[str, Any] = {"isolation": "process"} if way == "process" else {}

    def plain() -> str:
        return "handled"

    async def asynchronous() -> str:
        return "handled"

    handler: Any = app.handler("work", **options)(asynchronous if way == "async" else plain)
    skipped = handler.using(headers={"tenant": "closed"}).enqueue()
    handled = handler.enqueue()
    launched = sandbox.run()
    assert (skipped.state, skipped.status().result) == ("completed", None)
    assert (handled.state, handled.status().result) == ("completed", "handled")
    assert (launched.handled, launched.failed) == (2, 0)
    if way != "process":
        assert said == [skipped.id, None, handled.id, "handled"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_of_a_bulk_call_the_skipped_messages_are_left_out(
    app: PollConsumer, sandbox: Sandbox, asynchronous: bool
) -> None:
    seen: list[list[Any]] = []

    @app.before
    def skip_some(context: Context) -> None:
        if context.headers.get("skip"):
            raise Skip

    def plain(messages: list[Any]) -> list[int]:
        seen.append(messages)
        return [each["n"] for each in messages]

    async def coroutine(messages: list[Any]) -> list[int]:
        return plain(messages)

    index: Any = app.handler("index", bulk=9)(coroutine if asynchronous else plain)
    options: list[dict[str, str]] = [{}, {"skip": "1"}, {}]
    handles = [app.enqueue("index", {"n": n}, headers=headers) for n, headers in enumerate(options)]
    sandbox.run()
    assert seen == [[{"n": 0}, {"n": 2}]]
    assert [each.status().result for each in handles] == [0, None, 2]
    assert [each.state for each in handles] == ["completed"] * 3
    app.enqueue("index", {"n": 3}, headers={"skip": "1"})
    sandbox.run()
    assert len(seen) == 1
    assert registered(index).definition.bulk


def test_a_handler_that_raises_it_fails_as_with_any_exception(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("work", max_attempts=1)
    def work() -> None:
        raise Skip

    handle = work.enqueue()
    sandbox.run()
    assert handle.state == "dead"
