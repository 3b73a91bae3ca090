"""Ids of the user's choice: through the Python API, in virtual time, and from the command line."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from pollconsumer import BadData, Conflict, Context, PollConsumer
from pollconsumer.testing import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from pollconsumer.interface.api.handler_function import HandlerFunction
    from tests.site import Site


@pytest.fixture
def ship(app: PollConsumer) -> HandlerFunction[..., ..., Any, Any]:
    @app.handler
    def ship(order: int = 0, *, to: str = "") -> None: ...

    return ship


@pytest.fixture
def sandbox(app: PollConsumer, ship: object) -> Iterator[Sandbox]:  # noqa: ARG001  registers the handler
    with Sandbox(app) as sandbox:
        yield sandbox


def test_the_same_call_again_is_a_duplicate_and_another_a_conflict(
    app: PollConsumer, sandbox: Sandbox, ship: HandlerFunction[..., ..., Any, Any]
) -> None:
    assert not app.enqueue("ship", {"order": 1, "to": "Ada"}, id="a").duplicate
    assert app.enqueue("ship", {"to": "Ada", "order": 1}, id="a").duplicate
    assert ship.using(id="a").enqueue(1, to="Ada").duplicate
    calls: list[Callable[[], object]] = [
        lambda: app.enqueue("ship", {"order": 2, "to": "Ada"}, id="a"),
        lambda: app.enqueue("pack", {"order": 1, "to": "Ada"}, id="a"),
        lambda: ship.using(id="a").enqueue(2, to="Ada"),
    ]
    for call in calls:
        with pytest.raises(
            Conflict, match="message id is taken: a; by a message with another handler or payload"
        ) as caught:
            call()
        assert isinstance(caught.value, BadData)
        assert isinstance(caught.value, ValueError)
        assert (caught.value.id, caught.value.exit_code) == ("a", 65)
    (message,) = sandbox.messages()
    assert message.payload == {"order": 1, "to": "Ada"}


def test_many_under_one_id_are_a_conflict_and_none_of_them_is_enqueued(
    sandbox: Sandbox, ship: HandlerFunction[..., ..., Any, Any]
) -> None:
    with pytest.raises(Conflict):
        ship.using(id="a").enqueue_many([{"order": 1}, {"order": 2}])
    assert sandbox.messages() == []
    assert [each.duplicate for each in ship.using(id="a").enqueue_many([{"order": 1}] * 2)] == [False, True]


def test_options_other_than_handler_and_payload_make_no_conflict(app: PollConsumer, sandbox: Sandbox) -> None:
    app.enqueue("ship", {"order": 1}, id="a")
    assert app.enqueue("ship", {"order": 1}, id="a", priority=7, in_="1h", key="k").duplicate
    assert [message.state for message in sandbox.messages()] == ["ready"]


def test_an_id_is_a_duplicate_until_its_documented_time_is_over_and_then_a_new_message(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    def enqueue() -> bool | None:
        return app.enqueue("ship", {"order": 1}, id="a").duplicate

    assert not enqueue()
    sandbox.run()
    sandbox.advance("24h")
    assert enqueue()
    sandbox.advance("1s")
    assert sandbox.messages() == []  # it is forgotten, its id is not
    assert enqueue()
    sandbox.advance("9m59s")
    assert enqueue()
    with pytest.raises(Conflict):
        app.enqueue("ship", {"order": 2}, id="a")
    for _ in range(2):
        sandbox.advance("10m")
    assert not enqueue()


def test_what_conflicts_with_a_completion_is_dropped_with_a_line_and_holds_up_nothing(
    app: PollConsumer, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    @app.handler
    def parent(context: Context) -> None:
        context.enqueue("ship", {"order": 2}, id="a")
        context.enqueue("ship", {"order": 3}, id="b")

    app.enqueue("ship", {"order": 1}, id="a")
    handle = app.enqueue("parent")
    with caplog.at_level(logging.WARNING):
        sandbox.run()
    assert handle.state == "completed"
    assert {message.id: message.payload for message in sandbox.messages(handler="ship")} == {
        "a": {"order": 1},
        "b": {"order": 3},
    }
    assert [record.getMessage() for record in caplog.records] == [
        "a handler's message was not enqueued: queue default has another message with its id a; choose another id"
    ]


def test_a_conflict_on_the_command_line_changes_nothing(site: Site) -> None:
    assert site.enqueue("record", "--id", "a", "--queue", "default", name="one", n=1) == "a"
    again = site.command("enqueue", "record", '{"n": 1, "name": "one"}', "--id", "a", "--queue", "default", "--json")
    assert json.loads(again.stdout) == {"id": "a", "duplicate": True}
    refused = site.command("enqueue", "record", '{"name": "two"}', "--id", "a")
    assert (refused.returncode, refused.stdout) == (65, "")
    said = "message id is taken: a; by a message with another handler or payload: choose another id"
    assert refused.stderr == f"pollconsumer: error: {said}\n"
    assert site.json("status", "a")["payload"] == {"name": "one", "n": 1}
    lines = [{"handler": "record", "payload": {"name": str(n)}, "id": f"m{n}"} for n in range(150)]
    lines[120]["id"] = "a"
    (site.directory / "lines").write_text("\n".join(map(json.dumps, lines)))
    refused = site.command("enqueue", "--ndjson", "lines")
    assert (refused.returncode, len(refused.stdout.splitlines())) == (65, 120)
    rest = "; 120 accepted before it: correct it and go on with --skip 120"
    assert refused.stderr == f"pollconsumer: error: line 121: {said}{rest}\n"
    assert site.json("status")["queues"][0]["ready"] == 121
