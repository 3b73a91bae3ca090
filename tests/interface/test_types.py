"""What type checkers know about handlers. Run, these tests check that the values are of the types.

An error that mypy does not find makes its ``type: ignore`` an unused one, which is an error itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, assert_type

import pytest

from pollconsumer import Context, Handle, Item, PollConsumer
from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.api.registry import registry
from pollconsumer.testing import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

with registry.afresh():  # its recurrence is none of other tests'
    app = PollConsumer()


@app.handler
def send(to: str, subject: str = "") -> int:
    return len(to) + len(subject)


@app.handler("log", max_attempts=1)
def log(context: Context, line: str) -> None: ...


@app.handler
async def fetch(url: str) -> dict[str, int]:
    return {url: 200}


@app.handler("load")
async def load(context: Context, path: str) -> list[str]:
    return [context.id, path]


@app.every("1d")
def tidy(keep: int = 7) -> bool:
    return keep > 1


@app.handler
def look(context: Context) -> str:
    previous = context.previous
    if previous is None:
        return "none"
    assert_type(previous.instant, datetime | None)  # None in a later version, perhaps
    assert_type(previous.completed, datetime | None)
    return str(previous.result)


@app.handler("index", bulk=5)
def index(messages: list[Item]) -> list[int]:
    return [each.payload["n"] for each in messages]


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(app) as sandbox:
        yield sandbox


def test_a_handle_has_the_type_of_its_handlers_result(sandbox: Sandbox) -> None:
    sent = assert_type(send.enqueue("ada"), Handle[int])
    logged = assert_type(log.enqueue(line="x"), Handle[None])
    fetched = assert_type(fetch.enqueue(url="x"), Handle[dict[str, int]])
    loaded = assert_type(load.using(priority=1).enqueue("x.csv"), Handle[list[str]])
    tidied = assert_type(tidy.using(in_="1ms").enqueue(), Handle[bool])
    named = assert_type(app.enqueue("send", {"to": "ada"}), Handle[Any])
    sandbox.advance("1s")
    sandbox.run()
    assert assert_type(sent.wait(), int | None) == 3
    assert logged.wait() is None
    assert assert_type(fetched.wait("1s"), dict[str, int] | None) == {"x": 200}
    assert assert_type(loaded.wait(1), list[str] | None) == [loaded.id, "x.csv"]
    assert assert_type(tidied.wait(0.5), bool | None) is True
    assert assert_type(named.wait(), Any | None) == 3


def test_a_bulk_handler_is_called_with_a_list_and_its_messages_have_any_arguments(sandbox: Sandbox) -> None:
    sent = assert_type(index.enqueue(n=3), Handle[Any])
    assert assert_type(index([Item({"n": 4})]), list[int]) == [4]
    assert_type(Item(payload="text"), Item[str])
    with pytest.raises(ConfigurationError):
        app.every("1d", bulk=5)  # type: ignore[call-arg]
    sandbox.run()
    assert sent.wait() == 3


def test_asynchronous_calls_have_the_types_of_the_others(sandbox: Sandbox) -> None:
    async def enqueue() -> None:
        sent = assert_type(await send.enqueue_async("ada"), Handle[int])
        loaded = assert_type(await load.using(priority=1).enqueue_async(path="x"), Handle[list[str]])
        many = assert_type(
            await fetch.enqueue_many_async([fetch.args("x"), {"url": "y"}]), list[Handle[dict[str, int]]]
        )
        named = assert_type(await app.enqueue_async("send", {"to": "ada"}), Handle[Any])
        await asyncio.to_thread(sandbox.run)
        assert assert_type(await sent.wait_async(), int | None) == 3
        assert assert_type(await loaded.wait_async(1), list[str] | None) == [loaded.id, "x"]
        assert [await handle.wait_async() for handle in many] == [{"x": 200}, {"y": 200}]
        assert assert_type(await named.wait_async("1s"), Any | None) == 3
        with pytest.raises(TypeError):
            await send.enqueue_async(to=7)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await send.enqueue_many_async([log.args(line="x")])  # type: ignore[list-item]

    asyncio.run(enqueue())


def test_a_handler_is_called_as_the_function_that_it_is() -> None:
    assert assert_type(send("ada", subject="x"), int) == 4
    assert_type(fetch("x"), Coroutine[Any, Any, dict[str, int]]).close()


def test_arguments_of_many_messages_are_those_of_one(sandbox: Sandbox) -> None:
    people = ["ada", "grace"]
    handles = assert_type(send.enqueue_many(send.args(to=person) for person in people), list[Handle[int]])
    handles += send.using(priority=1).enqueue_many([send.args("alan", "x"), {"to": "kurt"}])
    handles += send.using(id="one").enqueue_many([send.args("alan")])
    assert_type(load.enqueue_many([load.args(path="x")]), list[Handle[list[str]]])
    sandbox.run()
    assert [handle.wait() for handle in handles] == [3, 5, 5, 4, 4]
    assert handles[-1].id == "one"


def test_wrong_arguments_are_refused_by_type_checkers_and_when_they_are_enqueued(sandbox: Sandbox) -> None:
    with pytest.raises(TypeError):
        send.enqueue(whom="ada")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        send.enqueue(to=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        log.enqueue(None, line="x")  # type: ignore[misc, arg-type]
    with pytest.raises(TypeError):
        send.args()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        send.args(to=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        load.args(context=None, path="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        send.enqueue_many(send.args(to=person) for person in [1, 2])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        send.enqueue_many([send.args(to="ada"), {"whom": "ada"}])  # type checkers do not look into mappings
    with pytest.raises(TypeError):
        send.enqueue_many(["ada"])  # type: ignore[list-item]
    assert sandbox.messages() == []


def test_arguments_of_another_handler_are_refused_by_type_checkers_and_when_they_are_enqueued(
    sandbox: Sandbox,
) -> None:
    with pytest.raises(TypeError):
        send.enqueue_many([log.args(line="x")])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        send.using(priority=1).enqueue_many(log.args(line=str(n)) for n in range(3))  # type: ignore[misc]
    assert sandbox.messages() == []


def test_a_handle_of_one_type_is_one_of_a_wider_type(sandbox: Sandbox) -> None:
    handles: list[Handle[object]] = [send.enqueue("ada"), fetch.enqueue("x")]
    assert len(sandbox.messages()) == len(handles)
    narrower: Handle[str] = send.enqueue("ada")  # type: ignore[assignment]
    assert narrower.state == "ready"
