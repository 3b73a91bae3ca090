"""Hooks of producers: they see each message before it is sent, may change its headers, and may refuse it."""

from __future__ import annotations

import asyncio
import json
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest

from pollconsumer import BadData, Context, Draft, PollConsumer, Refused
from pollconsumer.core.errors import ConfigurationError
from tests.inner import handler_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.testing import Sandbox
    from tests.site import Site

TRACE = ContextVar("TRACE", default="none")


@pytest.fixture
def seen(app: PollConsumer) -> list[dict[str, str]]:
    """The headers with which messages are handled, by a handler that sends another."""
    seen: list[dict[str, str]] = []

    @app.handler
    def look(context: Context, more: int = 0) -> None:
        seen.append(dict(context.headers))
        if more:
            context.enqueue("look", {"more": more - 1}, headers={"more": str(more)})

    return seen


def test_a_hook_adds_headers_however_a_message_is_enqueued(
    app: PollConsumer, sandbox: Sandbox, seen: list[dict[str, str]]
) -> None:
    @app.before_enqueue
    def trace(draft: Draft) -> None:
        draft.headers.setdefault("trace", TRACE.get())

    handler = handler_named(app, "look")

    async def enqueue_all() -> None:
        TRACE.set("4")
        await app.enqueue_async("look")
        await handler.enqueue_async()
        await handler.enqueue_many_async([{}])

    app.enqueue("look", headers={"trace": "1", "own": "x"})
    TRACE.set("2")
    handler.enqueue()
    handler.using(priority=1).enqueue()
    handler.enqueue_many([{}, {}])
    TRACE.set("3")
    asyncio.run(enqueue_all())
    assert [each.status().headers["trace"] for each in app.messages()] == ["2", "1", "2", "2", "2", "4", "4", "4"]
    sandbox.run()
    assert len(seen) == 8
    TRACE.set("none")


def test_a_hook_sees_what_a_handler_enqueues(app: PollConsumer, sandbox: Sandbox, seen: list[dict[str, str]]) -> None:
    app.before_enqueue(lambda draft: draft.headers.update(by=f"{draft.handler} {draft.payload} {draft.priority}"))
    app.enqueue("look", {"more": 1})
    sandbox.run()
    assert seen == [{"by": "look {'more': 1} 0"}, {"more": "1", "by": "look {'more': 0} 0"}]


def test_what_a_hook_raises_goes_to_the_caller_and_nothing_is_sent(
    app: PollConsumer, sandbox: Sandbox, seen: list[dict[str, str]]
) -> None:
    @app.before_enqueue
    def refuse(draft: Draft) -> None:
        if draft.payload.get("more") == 7:
            raise Refused("more", 7, "at most 6")
        if draft.payload.get("more") == 8:
            raise LookupError

    ways: list[Callable[[int], object]] = [
        lambda more: app.enqueue("look", {"more": more}),
        lambda more: handler_named(app, "look").enqueue_many([{"more": 1}, {"more": more}]),
        lambda more: asyncio.run(app.enqueue_async("look", {"more": more})),
        lambda more: asyncio.run(handler_named(app, "look").enqueue_many_async([{"more": more}])),
    ]
    for way in ways:
        with pytest.raises(Refused, match="more: 7; at most 6") as caught:
            way(7)
        assert isinstance(caught.value, BadData)
        with pytest.raises(LookupError):
            way(8)
    assert list(app.messages()) == []
    sandbox.run()
    assert seen == []


def test_a_refused_follow_up_fails_the_attempt(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.before_enqueue
    def refuse(draft: Draft) -> None:
        if draft.handler == "second":
            raise Refused("second", None, "never")

    @app.handler(max_attempts=1)
    def first(context: Context) -> None:
        context.enqueue("second")

    handle = app.enqueue("first")
    sandbox.run()
    assert handle.status().last_error == "Refused: second; never"


def test_invalid_headers_of_a_hook_are_refused(app: PollConsumer, sandbox: Sandbox) -> None:
    app.before_enqueue(lambda draft: draft.headers.update({"a b": "x"}))
    with pytest.raises(BadData, match="header name: 'a b'"):
        app.enqueue("look")
    assert list(sandbox.messages()) == []


def test_a_hook_of_another_application_is_not_called(app: PollConsumer, sandbox: Sandbox) -> None:
    other = PollConsumer()
    other.before_enqueue(lambda draft: draft.headers.update(by="other"))
    assert app.enqueue("look").status().headers == {}
    assert sandbox.run().handled == 0


@pytest.mark.parametrize("kind", ["before_enqueue", "on_launch", "on_launch_end", "on_expired"])
def test_a_function_that_cannot_be_called_as_a_hook_is_refused(app: PollConsumer, kind: str) -> None:
    async def hook() -> None: ...

    with pytest.raises(ConfigurationError, match="make it a plain function"):
        getattr(app, kind)(hook)
    with pytest.raises(ConfigurationError, match="it is given"):
        getattr(app, kind)(lambda _one, _two: None)


def test_a_launch_begins_and_ends_with_its_hooks(app: PollConsumer, sandbox: Sandbox) -> None:
    called: list[str] = []
    app.on_launch(lambda: called.append("open"))
    app.on_launch_end(lambda: called.append("close"))

    @app.handler
    def work() -> None:
        called.append("work")

    work.enqueue()
    sandbox.run()
    sandbox.run()
    assert called == ["open", "work", "close", "open", "close"]


def test_a_launch_does_not_begin_if_a_hook_fails_and_closes_what_was_opened(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    called: list[str] = []
    app.on_launch(lambda: called.append("open"))
    app.on_launch_end(lambda: called.append("close"))
    other = PollConsumer()

    @other.on_launch
    def connect() -> None:
        raise OSError("no database")

    other.on_launch_end(lambda: called.append("close other"))
    handle = app.enqueue("work")
    with pytest.raises(ConfigurationError, match=r"on_launch: .*; it raised OSError: no database"):
        sandbox.run()
    assert (called, handle.state) == (["open", "close"], "ready")


HOOKS = """
from handlers import app, note
from pollconsumer import PollConsumer

@app.on_launch
def open_pool():
    note("open")
    if (HERE / "broken").exists():
        raise OSError("no database")

@app.on_launch_end
def close_pool():
    note("close")
    raise ValueError("not so")

from pathlib import Path
HERE = Path(__file__).parent
"""


def test_a_real_launch_calls_them_and_survives_a_failure_of_the_last(site: Site) -> None:
    (site.directory / "more.py").write_text(HOOKS)
    (site.directory / "config.toml").write_text('handlers = ["handlers", "more"]\n')
    site.enqueue("record", name="a")
    launched = site.drain()
    assert (launched.returncode, site.notes()) == (0, ["open", "a", "close"])
    assert (
        launched.stderr
        == "pollconsumer: warning: hook on_launch_end close_pool raised ValueError: not so (more.py:14)\n"
    )


def test_a_real_launch_ends_with_78_if_its_first_hook_fails(site: Site) -> None:
    (site.directory / "more.py").write_text(HOOKS)
    (site.directory / "config.toml").write_text('handlers = ["handlers", "more"]\n')
    (site.directory / "broken").touch()
    message = site.enqueue("record", name="a")
    launched = site.drain()
    assert (launched.returncode, site.notes()) == (78, ["open"])
    assert launched.stderr == "pollconsumer: error: on_launch: open_pool; it raised OSError: no database (more.py:9)\n"
    assert site.state(message) == "ready"
    assert site.command("check").returncode == 0  # it launches nothing


HOOKED = """
from pollconsumer import Refused

@app.before_enqueue
def check(draft):
    print("checked")
    if draft.payload["name"] == "refused":
        raise Refused("name", "refused", "send another")
    if draft.payload["name"] == "broken":
        raise KeyError("tenant")
    draft.headers["tenant"] = "acme"
"""


@pytest.fixture
def hooked(site: Site) -> Site:
    """A site with a hook."""
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(HOOKED)
    return site


def test_a_hook_sees_what_the_command_line_sends(hooked: Site) -> None:
    one = hooked.enqueue("record", name="one")
    assert hooked.json("status", one)["headers"] == {"tenant": "acme"}
    (hooked.directory / "lines").write_text('{"handler": "record", "payload": {"name": "two"}}')
    two = hooked.command("enqueue", "--ndjson", "lines").stdout.strip()
    assert hooked.json("status", two)["headers"] == {"tenant": "acme"}
    named = hooked.enqueue("record", "--queue", "default", name="refused")
    assert hooked.json("status", named)["headers"] == {}


@pytest.mark.parametrize(
    ("name", "code", "problem"),
    [
        ("refused", 65, "name: refused; send another"),
        ("broken", 78, "before_enqueue: record; a hook raised KeyError: 'tenant'"),
    ],
)
def test_what_a_hook_refuses_on_the_command_line_is_not_sent(hooked: Site, name: str, code: int, problem: str) -> None:
    refused = hooked.command("enqueue", "record", json.dumps({"name": name}))
    assert (refused.returncode, refused.stdout) == (code, "")
    assert refused.stderr == f"checked\npollconsumer: error: {problem}\n"
    assert hooked.json("list") == []
