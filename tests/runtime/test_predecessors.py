"""What the last completed occurrences found is read once for several messages, and never from before a settlement."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Context, PollConsumer
from pollconsumer.runtime.session.contexts import FRESH
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records import rows
from pollconsumer.store.records.occurrences import id_of
from pollconsumer.store.records.reservations import Reservation
from pollconsumer.testing import Sandbox
from tests.runtime.test_exchange import Exchanging
from tests.store.acting import finish

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.fixture
def app() -> PollConsumer:
    return PollConsumer()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """The recurrences of which the store was asked, call by call."""
    asked: list[list[bytes]] = []
    previous = RedisStore.previous

    def listen(store: RedisStore, queue: str, recurrences: Iterable[bytes]) -> Any:
        asked.append([*recurrences])
        return previous(store, queue, asked[-1])

    monkeypatch.setattr(RedisStore, "previous", listen)
    return asked


def counting(app: PollConsumer) -> dict[str, list[int]]:
    """What each recurrence's occurrences returned: one more than the one before."""
    returned: dict[str, list[int]] = {}

    @app.handler
    def count(context: Context, name: str) -> int:
        number = 1 if context.previous is None else context.previous.result + 1
        returned.setdefault(name, []).append(number)
        return number

    return returned


def put(app: PollConsumer, *names: str) -> None:
    for name in names:
        payload = {"name": name}
        app.recurrences.put(name, handler="count", every="1h", missed="all", first="now", payload=payload)


def test_those_of_several_messages_that_are_reserved_together_are_read_at_once(
    app: PollConsumer, read: list[list[bytes]]
) -> None:
    returned = counting(app)
    with Sandbox(app) as sandbox:
        names = [f"r{n:02}" for n in range(30)]
        put(app, *names)
        sandbox.run()
        assert {name: returned[name] for name in names} == {name: [1] for name in names}
        assert len(read) <= 5
        assert {name for of_one in read for name in of_one} == {name.encode() for name in names}


@pytest.mark.parametrize("names", ["a", "abcd"])
def test_each_occurrence_sees_the_one_before_it_even_if_they_are_reserved_together(
    app: PollConsumer, names: str
) -> None:
    returned = counting(app)
    with Sandbox(app) as sandbox:
        put(app, *names)
        sandbox.run()
        sandbox.advance(timedelta(hours=9))
        app.enqueue("count", {"name": "first"}, priority=-99)  # the first of a page is handled by the general path
        sandbox.run()
        assert returned == {name: [*range(1, 11)] for name in names} | {"first": [1]}


def test_what_was_read_before_a_completion_was_settled_or_a_while_ago_is_read_again(read: list[list[bytes]]) -> None:
    exchanging = Exchanging()
    settling, predecessors = exchanging.settling, exchanging.predecessors
    one, two, three = (occurrence(name) for name in ("a", "b", "c"))
    exchanging.exchange.reserved += [two, three]
    predecessors.of(one)
    predecessors.of(two)
    assert read == [[b"a", b"b", b"c"]]
    settling.complete(finish(one))
    assert (settling.precedes(one), settling.precedes(three)) == (True, False)
    settling.take()
    predecessors.of(three)
    assert read[1:] == [[b"c", b"b"]]
    exchanging.exchange.reserved.clear()
    exchanging.clock.wait(2 * FRESH, bool)
    predecessors.of(two)
    assert read[2:] == [[b"b"]]


def occurrence(name: str) -> Reservation:
    """One that is reserved."""
    return Reservation.alone("mail", id_of(name, 0).encode(), rows.BLANK, b"A".ljust(11, b"\0") + b"handler\n{}")
