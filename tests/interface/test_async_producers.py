"""Producers in asyncio programs: whatever the store does, their event loop goes on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from errno import ETIMEDOUT
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Conflict, NotCompleted, NotFound, OutcomeUnknown, PollConsumer, StoreUnreachable
from pollconsumer.interface.api import handler_function
from pollconsumer.store.client.patience import STEP
from pollconsumer.store.queues.producer import ENQUEUE_PAGE, ENQUEUE_PAGES
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.testing import Sandbox
from tests.conftest import NAMESPACE
from tests.inner import calls_of
from tests.interface.away import Clock, Connection, application

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from pollconsumer import Handle
    from pollconsumer.interface.api.handler_function import HandlerFunction
    from tests.store.servers import Server

PATIENCE = 30
"""Seconds after which a test that hangs fails."""


@pytest.fixture
def app(valkey: Server) -> PollConsumer:
    return PollConsumer(store=valkey.url, namespace=NAMESPACE)


def noting(app: PollConsumer) -> HandlerFunction[[int], [int], int, int]:
    @app.handler
    def note(n: int) -> int:
        return n

    return note


def numbers(valkey: Server) -> list[int]:
    """Of the messages in the store, in their order."""
    found = Inspector(valkey.wire(), NAMESPACE).messages(None, None, 10_000)
    return [message.payload["n"] for message in found if message.payload]


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


def test_messages_enqueued_together_keep_the_order_of_the_calls(app: PollConsumer, valkey: Server) -> None:
    note = noting(app)

    async def enqueue() -> list[Handle[int]]:
        return await asyncio.gather(*(note.enqueue_async(n) for n in range(100)))

    handles = run(enqueue())
    assert numbers(valkey) == list(range(100))
    found = Inspector(valkey.wire(), NAMESPACE).messages(None, None, 1000)
    assert [handle.id for handle in handles] == [message.id for message in found]


def test_each_way_to_enqueue_has_an_asynchronous_one(app: PollConsumer, valkey: Server) -> None:
    note = noting(app)

    async def enqueue() -> list[Handle[Any]]:
        return [
            await note.enqueue_async(0),
            await note.using(id="one").enqueue_async(1),
            await app.enqueue_async("note", {"n": 2}),
            await app.enqueue_async("unknown", {"n": 3}, queue="elsewhere"),
            *await note.enqueue_many_async(note.args(n) for n in range(4, 6)),
            *await note.using(priority=1).enqueue_many_async([{"n": 6}]),
            await app.enqueue_async("note", {"n": 1}, id="one"),
        ]

    handles = run(enqueue())
    assert sorted(numbers(valkey)) == list(range(7))
    assert [handle.duplicate for handle in handles] == [False] * 7 + [True]
    assert [handle.queue for handle in handles] == ["default"] * 3 + ["elsewhere"] + ["default"] * 4
    assert {handle.state for handle in handles} == {"ready"}


def test_a_message_goes_to_the_queue_of_its_handler_by_name_too(valkey: Server) -> None:
    app = PollConsumer(store=valkey.url, namespace=NAMESPACE)
    app.handler("mail.send", queue="mail")(lambda: None)
    assert run(app.enqueue_async("mail.send")).queue == "mail"


def test_arguments_that_do_not_fit_are_refused_before_anything_is_enqueued(app: PollConsumer, valkey: Server) -> None:
    note: Any = noting(app)
    calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: note.enqueue_async("x"),
        lambda: note.enqueue_many_async([{"n": 1}] * 1000 + [{"m": 1}]),
        lambda: app.enqueue_async("note", {"n": 1}, priority="x"),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError)):
            run(call())
    assert numbers(valkey) == []


def test_many_are_enqueued_in_order_and_a_conflict_is_counted_from_the_first(app: PollConsumer, valkey: Server) -> None:
    note = noting(app)
    handles = run(note.enqueue_many_async({"n": n} for n in range(1000)))
    assert numbers(valkey) == list(range(1000))
    assert len({handle.id for handle in handles}) == 1000
    messages = [note.args(n).using(id=f"m{n}").__message__() for n in range(450)]
    app.enqueue("other", id="m400")
    with pytest.raises(Conflict) as caught:
        run(calls_of(app).enqueue_messages_async(messages))
    assert (caught.value.at, len(caught.value.accepted)) == (400, 400 - 400 % ENQUEUE_PAGE)


def test_loops_one_after_another_and_in_two_threads_use_one_application(app: PollConsumer, valkey: Server) -> None:
    note = noting(app)
    for n in range(3):
        run(note.enqueue_async(n))

    def enqueue(first: int) -> None:
        async def several() -> None:
            for n in range(first, first + 50):
                await note.enqueue_async(n)

        run(several())

    threads = [threading.Thread(target=enqueue, args=(first,)) for first in (100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(numbers(valkey)) == [0, 1, 2, *range(100, 150), *range(200, 250)]


class Gate:
    """A server that answers when the test lets it. ``asked`` is set when it has been asked."""

    def __init__(self) -> None:
        self.asked, self.open = threading.Event(), threading.Event()
        self.sent = 0

    def answer(self, timeout: float) -> list[bytes]:  # noqa: ARG002  the test's own
        self.sent += 1
        self.asked.set()
        assert self.open.wait(PATIENCE)
        return [b""]

    def application(self) -> PollConsumer:
        return application(Clock(), 5.0, lambda: Connection(self.answer))


def test_the_loop_goes_on_while_the_store_does_not_answer() -> None:
    gate = Gate()
    note = noting(gate.application())

    async def enqueue() -> str:
        calls = [asyncio.create_task(note.enqueue_async(n)) for n in range(20)]
        await asyncio.to_thread(gate.asked.wait, PATIENCE)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not any(call.done() for call in calls)
        gate.open.set()
        return str(len({handle.id for handle in await asyncio.gather(*calls)}))

    assert run(enqueue()) == "20"


def test_a_call_that_is_cancelled_before_its_turn_is_not_made_and_one_under_way_ends_by_itself() -> None:
    gate = Gate()
    app = gate.application()
    note = noting(app)

    async def enqueue() -> None:
        calls = [asyncio.create_task(note.enqueue_async(n)) for n in range(3)]
        await asyncio.to_thread(gate.asked.wait, PATIENCE)
        for call in calls[:2]:
            call.cancel()
        results = await asyncio.gather(*calls[:2], return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 2
        gate.open.set()
        assert not (await calls[2]).duplicate

    run(enqueue())
    assert gate.sent == 2  # the first, and the third
    assert not note.enqueue(4).duplicate


def test_replies_after_a_cancellation_are_those_of_their_calls(app: PollConsumer, valkey: Server) -> None:
    note = noting(app)

    async def enqueue() -> None:
        await note.using(id="held").enqueue_async(0)
        for n in range(1, 200):
            cancelled = asyncio.create_task(note.using(id="held").enqueue_async(0))
            for _ in range(n % 7):
                await asyncio.sleep(0)
            cancelled.cancel()
            handle = await note.using(id=f"m{n}").enqueue_async(n)
            assert (handle.id, handle.duplicate) == (f"m{n}", False)

    run(enqueue())
    assert numbers(valkey) == list(range(200))


def test_a_bulk_enqueue_that_is_cancelled_sends_no_more() -> None:
    gate = Gate()
    app = application(
        Clock(), 5.0, lambda: Connection(lambda timeout: [b""] * ENQUEUE_PAGE if gate.answer(timeout) else [])
    )
    note = noting(app)

    async def enqueue() -> None:
        call = asyncio.create_task(note.enqueue_many_async({"n": n} for n in range(3000)))
        await asyncio.to_thread(gate.asked.wait, PATIENCE)
        call.cancel()
        await asyncio.wait([call])
        gate.open.set()

    run(enqueue())
    run(note.enqueue_many_async([]))  # waits until the call under way has ended
    assert gate.sent == ENQUEUE_PAGES


def test_bulk_arguments_are_encoded_between_turns_of_the_loop(
    app: PollConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = noting(app)
    monkeypatch.setattr(handler_function, "MADE_AT_ONCE", 10)
    turns = taken = 0

    def payloads() -> Iterator[dict[str, Any]]:
        nonlocal taken
        for n in range(500):
            taken += 1
            yield {"n": n}

    async def enqueue() -> None:
        nonlocal turns
        call = asyncio.create_task(note.enqueue_many_async(payloads()))
        while taken < 500:
            turns += 1
            await asyncio.sleep(0)
        await call

    run(enqueue())
    assert turns >= 50


def test_all_calls_of_a_time_without_an_answer_fail_within_one_patience() -> None:
    clock, begun = Clock(), threading.Event()

    def never(timeout: float) -> None:
        assert begun.wait(PATIENCE)
        clock.now += timeout
        raise TimeoutError(ETIMEDOUT, "no answer")

    note = noting(application(clock, 1.0, lambda: Connection(never)))

    async def enqueue() -> list[Any]:
        calls = [asyncio.create_task(note.enqueue_async(n)) for n in range(50)]
        await asyncio.sleep(0)
        begun.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    errors = run(enqueue())
    assert isinstance(errors[0], OutcomeUnknown)
    assert {type(error) for error in errors[1:]} == {StoreUnreachable}
    assert 1.0 <= clock.now <= 1.0 + STEP


def test_waiting_ends_as_without_asyncio(app: PollConsumer, valkey: Server) -> None:
    handle = noting(app).enqueue(1)
    with pytest.raises(TimeoutError, match="has not ended after 10ms; it is ready"):
        run(handle.wait_async("10ms"))
    assert run(handle.state_async()) == "ready"
    with pytest.raises(ValueError, match="units are"):
        run(handle.wait_async("soon"))
    valkey.clear()
    for call in (handle.wait_async, handle.state_async):
        with pytest.raises(NotFound):
            run(call())


def test_waiting_is_cancelled_by_a_timeout_of_the_programs_own(app: PollConsumer) -> None:
    handle = noting(app).enqueue(1)

    async def wait() -> None:
        async with asyncio.timeout(0.01):
            await handle.wait_async()

    with pytest.raises(TimeoutError):
        run(wait())
    assert handle.state == "ready"


def test_in_a_sandbox_calls_are_made_at_once_by_the_tests_own_thread() -> None:
    app = PollConsumer()
    note = noting(app)

    @app.handler
    async def parent(n: int) -> int:
        several = await asyncio.gather(*(note.enqueue_async(n) for n in range(n)))
        return len([handle for handle in several if await handle.state_async() == "ready"])

    @app.handler(max_attempts=1)
    def fail() -> None:
        raise ValueError

    with Sandbox(app) as sandbox:
        before = threading.active_count()
        handle = run(parent.enqueue_async(3))
        with pytest.raises(TimeoutError, match="no launch runs"):
            run(handle.wait_async())
        failed = run(app.enqueue_async("fail"))
        assert sandbox.run().handled == 1 + 3
        assert run(handle.wait_async()) == 3
        assert [message.result for message in sandbox.messages(handler="note")] == [0, 1, 2]
        with pytest.raises(NotCompleted):
            run(failed.wait_async())
        assert threading.active_count() == before


PROGRAM = """
import asyncio, ctypes, os, sys, threading, time
from pollconsumer import PollConsumer

app = PollConsumer(store=sys.argv[1], namespace="tests", patience="1h")

@app.handler
def note(n: int) -> int: ...
"""
FORKING = """
def await_rest():
    # A fork in C is safe only while no other thread is about to take the interpreter's lock.
    while any(
        frame.f_code.co_name != "_serve"
        for thread, frame in sys._current_frames().items() if thread != threading.get_ident()
    ):
        time.sleep(0.001)

asyncio.run(note.enqueue_async(1))
for n in (2, 3):
    await_rest()
    if (child := FORK()) == 0:
        asyncio.run(note.enqueue_async(n))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
asyncio.run(note.enqueue_async(4))
"""
LEAVING = """
async def leave():
    call = asyncio.create_task(note.enqueue_async(1))
    while not any(thread.name == "pollconsumer calls" for thread in threading.enumerate()):
        await asyncio.sleep(0)
    call.cancel()

asyncio.run(leave())
"""


def program(text: str, url: str) -> None:
    command = [sys.executable, "-c", PROGRAM + text, url]
    subprocess.run(command, check=True, timeout=2 * PATIENCE, env={**os.environ})


@pytest.mark.parametrize("fork", ["os.fork", "ctypes.PyDLL(None).fork"], ids=["Python", "C, as uWSGI does"])
def test_children_of_a_program_enqueue_as_it_did_before_the_fork(valkey: Server, fork: str) -> None:
    program(FORKING.replace("FORK", fork), valkey.url)
    assert numbers(valkey) == [1, 2, 3, 4]


def test_a_call_that_the_store_does_not_answer_does_not_keep_a_program_from_ending() -> None:
    program(LEAVING, "redis://127.0.0.1:1")
