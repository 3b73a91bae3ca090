"""What is reserved behind a message that takes long, where other launches may be idle."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.choices import HandOff
from pollconsumer.core.errors import StoreUnreachable
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.session.exchange import ReservedReturner
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.steps import QueueStep, Settlement
from tests.runtime.test_exchange import Exchanging
from tests.store.acting import message, names

if TYPE_CHECKING:
    from pollconsumer.store.records.reservations import Reservation

HANDLERS = {
    "handler": Handler("handler", lambda *_: None),
    "once": Handler("once", lambda *_: None, at_most_once=True),
}


class Place(Exchanging):
    """A launch that has reserved these messages, and handles the first."""

    def __init__(self, *handlers: str) -> None:
        super().__init__()
        sent = [message(f"m{n}", queue="mail", handler=handler) for n, handler in enumerate(handlers)]
        self.launch.store.enqueue(sent)
        self.exchange.reserve()
        self.returning = ReservedReturner(self.launch, self.exchange, HANDLERS)
        self.first = self.begin()

    def begin(self) -> Reservation:
        following = self.exchange.next()
        assert following is not None
        self.launch.progress.flight.enter(following, last=True)
        return following

    def ready(self) -> list[str]:
        return self.look().listed("ready")


def test_it_is_returned_in_its_order_once_a_message_lasts_for_two_looks() -> None:
    place = Place(*["handler"] * 4)
    place.returning.look()
    assert (place.ready(), len(place.exchange.reserved)) == ([], 3)
    place.returning.look()
    assert (place.ready(), len(place.exchange.reserved)) == (["m1", "m2", "m3"], 0)
    assert place.look().marker("ready_marker") == 1
    assert place.exchange.is_stuck
    assert place.exchange.returned == 3
    assert place.launch.store.wire.command("HGET", place.look().key("rows"), "m1")[4:6] == b"\0\0", "uncharged"
    place.returning.look()
    assert names(list(place.exchange.reserved)) == []


def test_messages_gathered_for_a_call_are_returned_once_that_is_due_and_before_those_behind_them() -> None:
    place = Place(*["handler"] * 5)
    exchange = place.exchange
    due: list[Reservation] = []
    gathered = [exchange.reserved.popleft() for _ in range(3)]
    exchange.gathered.extend(gathered)
    reserved = [*exchange.reserved]
    exchange.reserved.clear()
    returning = ReservedReturner(place.launch, exchange, HANDLERS, lambda: due)
    for _ in range(3):
        returning.look()
    assert (place.ready(), len(exchange.gathered)) == ([], 3)
    exchange.reserved.extend(reserved)
    due += gathered[:2]
    returning.look()
    returning.look()
    assert place.ready() == ["m1", "m2", "m4"]
    assert (names(list(exchange.gathered)), exchange.returned) == (["m3"], 3)


def test_while_messages_are_brief_nothing_is_returned() -> None:
    place = Place(*["handler"] * 4)
    before = place.first
    for _ in range(3):
        place.returning.look()
        place.launch.progress.flight.end(before)
        before = place.begin()
    place.returning.look()
    assert place.ready() == []


def test_what_waits_for_no_handler_in_hand_stays() -> None:
    place = Place(*["handler"] * 3)
    place.launch.progress.flight.end(place.first)
    for _ in range(3):
        place.returning.look()
    assert len(place.exchange.reserved) == 2


def test_what_is_handled_at_most_once_stays_with_those_before_it() -> None:
    place = Place("handler", "handler", "once", "handler")
    for _ in range(2):
        place.returning.look()
    assert place.ready() == ["m3"]
    assert names(list(place.exchange.reserved)) == ["m1", "m2"]


def test_where_the_store_is_away_it_is_returned_later(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(*["handler"] * 3)
    release = RedisStore.release

    def away(*_: object) -> bool:
        raise StoreUnreachable("store", None, "away")

    with monkeypatch.context() as patched:
        patched.setattr(RedisStore, "release", away)
        for _ in range(3):
            place.returning.look()
        assert (place.ready(), len(place.exchange.reserved)) == ([], 0)
    assert RedisStore.release is release
    place.returning.look()
    assert place.ready() == ["m1", "m2"]


def test_it_tells_the_launch_that_the_next_one_waits_for_the_lease() -> None:
    place = Place(*["handler"] * 2)
    place.launch.plan = place.launch.plan._replace(handoff=HandOff.BATON)
    claim = place.launch.claim
    place.launch.store.wire.command("SET", f"{place.look().key('successor_waits')}:{claim.group}", claim.fence)
    for _ in range(2):
        place.returning.look()
    assert place.exchange.called < inf


def test_it_is_returned_once_though_the_answer_was_lost_and_another_launch_has_it_by_now() -> None:
    place = Place(*["handler"] * 2)
    store, released = place.launch.store, [Settlement.released(each) for each in place.exchange.reserved]
    queue_step = QueueStep("mail")
    queue_step.settlements += released
    store.release(place.launch.claim, [queue_step])
    place.clock.wait(1.0, lambda: False)
    (other,) = store.step(place.launch.claim, [QueueStep("mail", 1)], lasts_ms=9, now=lambda: 0.0).reserved
    store.release(place.launch.claim, [queue_step])
    assert place.ready() == []
    assert store.wire.command("HGET", place.look().key("rows"), "m1") == other.row
