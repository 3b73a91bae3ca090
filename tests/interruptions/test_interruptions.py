"""Some of the interruptions that ``python -m tests.interruptions`` makes, and what each kind leaves."""

from __future__ import annotations

import gc
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import PollConsumer, StoreUnreachable
from pollconsumer.interface.api.store_calls import CallThread
from pollconsumer.runtime.system import own_threads
from tests.conftest import NAMESPACE
from tests.inner import calls_of
from tests.interface.away import Clock, Connection, application
from tests.interruptions.__main__ import evict, interruptions
from tests.leaving_out import long

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.store.servers import Server


@pytest.fixture
def evicting(valkey: Server) -> Iterator[Server]:
    evict(valkey.url)
    yield valkey
    valkey.wire().command("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")


@pytest.mark.parametrize("times", [250, long(1000)])
def test_after_interruptions_of_every_kind_each_next_call_ends_rightly(evicting: Server, times: int) -> None:
    interrupted = interruptions(evicting.url, times, 7)["interrupted"]
    kinds = {"raised", "raised, of the system's kind", "set by a thread", "entered", "finalised", "logged", "forked"}
    assert kinds <= interrupted.keys()


def test_a_signal_handler_enqueues_while_its_thread_waits_for_an_answer(valkey: Server) -> None:
    app = PollConsumer(store=valkey.url, namespace=NAMESPACE, patience="30s")
    inner = list[str]()
    before = signal.signal(signal.SIGALRM, lambda *_: inner.append(app.enqueue("x", id="inner").id))
    try:
        message = app.enqueue("x", id="outer")
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(TimeoutError):
            message.wait("500ms")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert inner == ["inner"]
    assert {each.id for each in app.messages()} == {"outer", "inner"}


def test_threads_do_not_wait_for_each_others_answers() -> None:
    asked, go_on = threading.Event(), threading.Event()
    first = True

    def answer(timeout: float) -> list[bytes]:  # noqa: ARG001  the test's own
        nonlocal first
        if first:
            first = False
            asked.set()
            assert go_on.wait(90)
        return [b""]

    app = application(Clock(), 1.0, lambda: Connection(answer))
    thread = threading.Thread(target=lambda: app.enqueue("x", queue="default"))
    thread.start()
    assert asked.wait(90)
    assert not app.enqueue("x", queue="default").duplicate
    go_on.set()
    thread.join(90)


def test_one_of_our_errors_from_a_signal_handler_leaves_no_answer_to_the_next_call(valkey: Server) -> None:
    """It comes from a call of the handler, and looks as if the outer call had ended with it."""
    app = PollConsumer(store=valkey.url, namespace=NAMESPACE, patience="30s")
    app.enqueue("x", id="a")
    lost = PollConsumer(store="redis://127.0.0.1:1", patience="10ms")
    signals = 0

    def call(*_: object) -> None:
        nonlocal signals
        signals += 1
        lost.enqueue("x")

    before = signal.signal(signal.SIGALRM, call)
    gc.disable()  # hypothesis has a callback for each collection: what is raised there reaches no call
    try:
        for n in range(20):
            with suppress(StoreUnreachable):
                signal.setitimer(signal.ITIMER_REAL, 0.0002 * n + 0.0001)
                while signals == n:
                    app.message("a").status()
            assert app.enqueue("x", id=f"b{n}").id == f"b{n}"
            assert app.message(f"b{n}").id == f"b{n}"
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, before)


def test_the_thread_of_asyncio_programs_that_cannot_start_raises_and_starts_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where memory or the number of processes is limited. A `Thread` would wait for ever if it died early."""
    import asyncio

    def refused(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    app = application(Clock(), 1.0, lambda: Connection(lambda _: [b""]))
    with monkeypatch.context() as patched:
        patched.setattr("pollconsumer.interface.api.store_calls.start_thread", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            asyncio.run(app.enqueue_async("x", queue="default"))
    assert not asyncio.run(app.enqueue_async("x", queue="default")).duplicate


def test_a_thread_of_asyncio_programs_that_was_thrown_out_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    told = threading.Event()
    monkeypatch.setattr(own_threads, "report", [lambda _: told.set()])
    app = application(Clock(), 1.0, lambda: Connection(lambda _: [b""]))
    asyncio.run(app.enqueue_async("x", queue="default"))
    thread: CallThread = vars(calls_of(app))["_threads"][0]
    waiting: Any = vars(thread)["_waiting"]
    waiting.put(())  # what cannot be taken apart ends the thread
    assert not asyncio.run(asyncio.wait_for(app.enqueue_async("x", queue="default"), 90)).duplicate
    assert told.wait(90)
