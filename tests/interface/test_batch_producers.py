"""Producers of batches: threads that add members, and stores that fail meanwhile."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.errors import BadData, OutcomeUnknown
from pollconsumer.interface.api.batches import PAGE, OpenBatch
from pollconsumer.runtime.handling.handler_batches import MemberBatch, StartedBatch, new_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.store.queues.batches import NewBatch

    Threads = Callable[[Callable[[int], str]], list[str]]

TIMES = 2000
app = PollConsumer()


@app.handler("sent")
def load(number: int) -> int:
    return number


class Calls:
    """The store of an application, which keeps what it is sent, but at first fails."""

    def __init__(self, failures: int = 0) -> None:
        self.sent, self.failures, self.closed = list[str](), failures, False

    def losses(self) -> int:
        return 0

    def ask(self, question: Callable[..., Any]) -> str:
        self.closed = question.__name__ == "_close"
        return ""

    async def ask_async(self, question: Callable[..., Any]) -> str:
        return self.ask(question)

    def enqueue_messages(self, messages: Sequence[NewMessage], *, spools: bool) -> list[Any]:
        assert not spools
        if self.failures > 0:
            self.failures -= 1
            raise OutcomeUnknown([each.id for each in messages])
        self.sent += [each.id for each in messages]
        return []

    async def enqueue_messages_async(self, messages: Sequence[NewMessage], *, spools: bool) -> list[Any]:
        return self.enqueue_messages(messages, spools=spools)


def a_batch(calls: Any) -> OpenBatch:
    return OpenBatch(calls, new_batch("b", None, None, None, None))


def members(count: int) -> list[str]:
    return [f"b.{number}" for number in range(count)]


@pytest.fixture
def threads() -> Iterator[Threads]:
    """Calls in eight threads, which take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(8) as pool:
        yield lambda call: [*pool.map(call, range(TIMES))]
    sys.setswitchinterval(before)


def test_members_that_threads_add_have_each_a_number_and_all_are_sent(threads: Threads) -> None:
    calls = Calls()
    with a_batch(calls) as batch:
        ids = threads(lambda number: batch.add(load.args(number)))
    assert sorted(ids) == sorted(calls.sent) == sorted(members(TIMES))


def test_members_that_threads_of_a_handler_add_to_a_batch_that_it_starts_have_each_a_number(threads: Threads) -> None:
    added = list[str]()
    at_end: list[Callable[[], NewBatch]] = []
    given = new_batch("b", None, None, None, None)
    batch = StartedBatch(given, list, lambda message: added.append(message.id), lambda *_: batch, at_end)
    threads(lambda number: batch.add(load.args(number)))
    assert (sorted(added), at_end[0]().total) == (sorted(members(TIMES)), TIMES)


def test_members_that_another_thread_of_a_member_adds_while_numbers_are_asked_for_have_others() -> None:
    ids, taken = list[str](), iter([0, 1, 2, 4])

    def ask(*_: Any) -> int:
        first = next(taken)
        if first == 0:
            with ThreadPoolExecutor(1) as other:
                ids.append(other.submit(batch.add, load.args(0)).result())
        return first

    batch = MemberBatch("home", "b", 0, ask, lambda *_: None, lambda *_: pytest.fail("no batch is added"))
    ids += [batch.add(load.args(number)) for number in range(3)]
    assert len({*ids}) == 4


async def add_async(batch: OpenBatch) -> None:
    async with batch:
        for number in range(PAGE + 1):
            with suppress(OutcomeUnknown):
                await batch.add_async(load.args(number))


def add(batch: OpenBatch) -> None:
    with batch:
        for number in range(PAGE + 1):
            with suppress(OutcomeUnknown):
                batch.add(load.args(number))


@pytest.mark.parametrize("produce", [add, lambda batch: asyncio.run(add_async(batch))])
@pytest.mark.parametrize(("failures", "sent", "is_closed"), [(1, PAGE + 1, True), (2, PAGE + 1, True), (3, 0, False)])
def test_members_whose_sending_failed_are_sent_again_and_a_batch_without_them_stays_open(
    produce: Callable[[OpenBatch], None], failures: int, sent: int, is_closed: bool
) -> None:
    calls = Calls(failures)
    with pytest.raises(OutcomeUnknown) if not is_closed else nullcontext():
        produce(a_batch(calls))
    assert (calls.sent, calls.closed) == (members(sent), is_closed)


@pytest.mark.parametrize("batch_id", ["a b", "", "x" * 101])
def test_an_id_that_is_none_for_a_batch_is_said_to_be_that_of_a_batch(batch_id: str) -> None:
    with pytest.raises(BadData, match=f"batch id: '{batch_id[:9]}.*; 1 to 100 letters, digits or any of"):
        app.batch(batch_id)
