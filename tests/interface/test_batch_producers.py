"""Producers of batches: threads that add members, and stores that fail meanwhile."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import PollConsumer
from pollconsumer.interface.api.batches.open_batch import OpenBatch
from pollconsumer.runtime.handling.batch_in_hand import BatchInHand
from pollconsumer.runtime.new_batches import StartedBatch, new_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pollconsumer.core.messages.message import NewMessage

    Threads = Callable[[Callable[[int], str]], list[str]]

TIMES = 2000
app = PollConsumer()


@app.handler("load")
def load(number: int) -> int:
    return number


class Calls:
    """The store of an application, which keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def ask(self, question: Callable[..., Any]) -> Any:
        return {"_open": "", "_close": self.sent.append}[question.__name__]

    def enqueue_messages(self, messages: Sequence[NewMessage], *, spools: bool) -> list[Any]:
        assert not spools
        self.sent += [each.id for each in messages]
        return []


@pytest.fixture
def threads() -> Iterator[Threads]:
    """Calls in eight threads, which take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(8) as pool:
        yield lambda call: [*pool.map(call, range(TIMES))]
    sys.setswitchinterval(before)


def test_members_that_threads_add_have_each_a_number_and_all_are_sent(threads: Threads) -> None:
    calls: Any = Calls()
    with OpenBatch(calls, new_batch("b", None, None, None, None)) as batch:
        ids = threads(lambda number: batch.add(load.args(number)))
    assert sorted(ids) == sorted(calls.sent) == sorted(f"b.{number}" for number in range(TIMES))


def test_members_that_threads_of_a_handler_add_to_a_batch_that_it_starts_have_each_a_number(threads: Threads) -> None:
    added = list[str]()
    batch = StartedBatch(new_batch("b", None, None, None, None), lambda message: added.append(message.id))
    threads(lambda number: batch.add(load.args(number)))
    assert (sorted(added), batch.closed().total) == (sorted(f"b.{number}" for number in range(TIMES)), TIMES)


def test_members_that_another_thread_of_a_member_adds_while_numbers_are_asked_for_have_others() -> None:
    ids, taken = list[str](), iter([0, 1, 2, 4])

    def ask(*_: Any) -> int:
        first = next(taken)
        if first == 0:
            with ThreadPoolExecutor(1) as other:
                ids.append(other.submit(batch.add, load.args(0)).result())
        return first

    batch = BatchInHand("home", "b", 0, ask, lambda *_: None)
    ids += [batch.add(load.args(number)) for number in range(3)]
    assert len({*ids}) == 4
