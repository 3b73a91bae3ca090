"""A call sends lists and headers as they were at the call, though its caller changes them afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Context, PollConsumer
from tests.inner import handler_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.testing import Sandbox

Given = tuple[Any, list[str], dict[str, str]]
"""A handler, and what its caller changes later."""


def adding(app: PollConsumer, given: Given) -> Callable[[], object]:
    handler, to, headers = given
    batch = app.batch("b")
    batch.__enter__()
    batch.add(handler.args(to=to).using(headers=headers))
    return lambda: batch.__exit__(None, None, None)


def calling_back(app: PollConsumer, given: Given) -> Callable[[], object]:
    handler, to, headers = given
    sent = handler_named(app, "first").using(then=handler.args(to=to).using(headers=headers))
    return sent.enqueue


def putting(app: PollConsumer, given: Given) -> Callable[[], object]:
    _, to, headers = given
    app.recurrences.put("r", every="1h", handler="look", payload={"to": to}, headers=headers, times=1)
    return lambda: None


CALLS: dict[str, Callable[[PollConsumer, Given], Callable[[], object]]] = {
    "args": lambda _, given: _sending(given[0].args(to=given[1]).using(headers=given[2]), given[0]),
    "args, then using": lambda _, given: _sending(given[0].args(to=given[1]).using(headers=given[2], id="i"), given[0]),
    "using": lambda _, given: _sending(given[0].args(to=given[1]), given[0].using(headers=given[2])),
    "using, with ids": lambda _, given: _sending(
        given[0].args(to=given[1]).using(id="i"), given[0].using(headers=given[2])
    ),
    "chain": lambda app, given: app.chain(given[0].args(to=given[1]).using(headers=given[2])).enqueue,
    "link": lambda app, given: (
        app.chain(handler_named(app, "first").args(), given[0].args(to=given[1]).using(headers=given[2])).enqueue
    ),
    "failed of a chain": lambda app, given: (
        app.chain(handler_named(app, "fail").args(), failed=given[0].args(to=given[1]).using(headers=given[2])).enqueue
    ),
    "then": calling_back,
    "then of args": lambda app, given: _sending(
        handler_named(app, "first").args().using(then=given[0].args(to=given[1]).using(headers=given[2])),
        handler_named(app, "first"),
    ),
    "member": adding,
    "recurrence": putting,
    "by name": lambda app, given: _nothing(app.enqueue("look", {"to": given[1]}, headers=given[2])),
}


def _sending(args: Any, handler: Any) -> Callable[[], object]:
    return lambda: handler.enqueue_many([args])


def _nothing(_: object) -> Callable[[], object]:
    return lambda: None


@pytest.mark.parametrize("call", CALLS)
def test_a_message_has_what_its_call_was_given(app: PollConsumer, sandbox: Sandbox, call: str) -> None:
    seen: list[tuple[list[str], str]] = []

    @app.handler
    def look(to: list[str], context: Context) -> None:
        seen.append((to, context.headers["n"]))

    app.handler("first")(lambda: None)

    @app.handler(max_attempts=1)
    def fail() -> None:
        raise ValueError

    to, headers = ["ada"], {"n": "1"}
    go_on = CALLS[call](app, (look, to, headers))
    to.append("eve")
    headers["n"] = "2"
    go_on()
    sandbox.run()
    assert seen == [(["ada"], "1")]


def test_a_follow_up_has_what_its_call_was_given(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[list[str]] = []
    app.handler("look")(lambda to: seen.append(to))

    @app.handler
    def first(context: Context) -> None:
        to = ["ada"]
        context.enqueue("look", {"to": to})
        batch = context.start_batch("b", then=handler_named(app, "look").args(to=to))
        batch.add(handler_named(app, "look").args(to=to))
        to.append("eve")

    first.enqueue()
    sandbox.run()
    assert seen == [["ada"]] * 3
