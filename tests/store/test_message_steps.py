"""Steps of a message, its sleeps, and the signals sent to it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import BadData, LeaseLost, NotFound
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message_steps import MOST_BYTES, Recorded, Step, StepEntry, as_recorded
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.outbox import Answer, pack
from pollconsumer.store.records.steps import Kept, Retention, Settlement
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, expire, message, release, retry
from tests.store.servers import await_next_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector
    from pollconsumer.store.records.reservations import Reservation


def entry(number: int, name: str, result: Any = None, *, until: int | None = None, awaited: str = "") -> StepEntry:
    return StepEntry(number, number, as_recorded(Step(name, 1000, result, until)), awaited)


def asleep(reservation: Reservation, ms: int = HOUR) -> Settlement:
    return Settlement.asleep(reservation, wakes_in_ms=ms, took=1)


@pytest.fixture
def launch(store: RedisStore) -> Launch:
    store.enqueue([message("a")])
    return Launch(store)


def charged(store: RedisStore, launch: Launch) -> Reservation:
    """A message in flight that has a step."""
    (reservation,) = launch.reserve()
    store.record(launch.claim, reservation, entry(1, "charge", {"id": 7}))
    return reservation


def awaiting(store: RedisStore, launch: Launch, name: str = "approved") -> Reservation:
    """A message in flight that is about to wait for a signal."""
    (reservation,) = launch.reserve()
    store.record(launch.claim, reservation, entry(1, name, until=HOUR, awaited=name))
    return reservation


def forget(store: RedisStore) -> None:
    """Forget all messages that have ended."""
    store.maintenance.trim(QUEUE, Retention(Kept(0, 0), Kept(0, 0)))


def found(store: RedisStore, reservation: Reservation) -> Recorded:
    recorded = store.recorded(reservation)[1]
    assert recorded is not None
    return recorded


def test_the_next_attempt_finds_what_the_ones_before_recorded(store: RedisStore, launch: Launch) -> None:
    reservation = charged(store, launch)
    store.record(launch.claim, reservation, entry(2, "mail#2", [1, "two"]))
    launch.settle(release(reservation))
    (again,) = launch.reserve()
    assert again.has_checkpoint
    assert found(store, again).steps == [Step("charge", 1000, {"id": 7}), Step("mail#2", 1000, [1, "two"])]


def test_a_checkpoint_stands_beside_the_steps(store: RedisStore, launch: Launch) -> None:
    reservation = charged(store, launch)
    store.checkpoint(launch.claim, reservation, b'{"page":7}')
    state, recorded = store.recorded(reservation)
    assert (state, recorded and len(recorded.steps)) == (b'{"page":7}', 1)


def test_a_plain_message_has_none(store: RedisStore, launch: Launch) -> None:
    (reservation,) = launch.reserve()
    assert store.recorded(reservation) == (None, None)


def test_a_stale_launch_records_nothing(store: RedisStore, launch: Launch, look: Looking) -> None:
    (reservation,) = launch.reserve()
    Launch(store, fence=2)
    with pytest.raises(LeaseLost):
        store.record(launch.claim, reservation, entry(1, "charge"))
    assert look.hash("checkpoints") == {}


def test_an_attempt_that_has_ended_records_nothing(store: RedisStore, launch: Launch, look: Looking) -> None:
    (reservation,) = launch.reserve()
    launch.settle(retry(reservation))
    with pytest.raises(LeaseLost):
        store.record(launch.claim, reservation, entry(1, "charge"))
    assert look.hash("checkpoints") == {}


def test_a_repeated_record_is_one(store: RedisStore, launch: Launch) -> None:
    reservation = charged(store, launch)
    store.record(launch.claim, reservation, entry(1, "charge", {"id": 7}))
    assert found(store, reservation).steps == [Step("charge", 1000, {"id": 7})]


def test_what_is_corrupt_is_as_if_it_were_not_recorded(store: RedisStore, launch: Launch, look: Looking) -> None:
    reservation = charged(store, launch)
    store.record(launch.claim, reservation, entry(2, "mail"))
    store.wire.command("HSET", look.key("checkpoints"), "a\n1", "[no json", "a\n0", "\nno\tx y\nz")
    steps = [Step("", 0), Step("mail", 1000)]  # numbers stay
    assert found(store, reservation) == Recorded(steps, len('["mail",1000,null]') + len("[no json"), "", [])


@pytest.mark.parametrize("way", ["completed", "expired", "cancelled", "purged", "forgotten", "from the start"])
def test_steps_and_signals_are_dropped_with(
    way: str, store: RedisStore, launch: Launch, look: Looking, person: MessageActions
) -> None:
    reservation = charged(store, launch)
    store.record(launch.claim, reservation, entry(2, "mail"))
    person.signal(QUEUE, "a", "approved", True)
    store.wire.command("HSET", look.key("checkpoints"), "ab\n", "1 ", "ab\n1", "[]")  # of another message
    if way == "completed":
        launch.complete(reservation)
    elif way == "expired":
        launch.settle(expire(reservation))
    elif way == "cancelled":
        launch.settle(asleep(reservation))
        person.cancel(QUEUE, "a")
    else:
        launch.settle(die(reservation))
        assert len(look.hash("checkpoints")) == 6
        if way == "purged":
            person.purge(QUEUE, ["a"])
        elif way == "from the start":
            assert person.redrive(QUEUE, ["a"], from_start=True) == ["a"]
            assert not launch.reserve()[0].has_checkpoint
        else:
            forget(store)
    assert look.hash("checkpoints").keys() == {"ab\n", "ab\n1"}


def test_signals_of_a_message_that_never_asks_are_forgotten_with_it(
    store: RedisStore, launch: Launch, look: Looking, person: MessageActions
) -> None:
    (reservation,) = launch.reserve()
    person.signal(QUEUE, "a", "approved", True)
    launch.complete(reservation)
    forget(store)
    assert look.hash("checkpoints") == {}


@pytest.mark.parametrize("way", [retry, die])
def test_steps_outlive(
    way: Callable[[Reservation], Settlement], store: RedisStore, launch: Launch, person: MessageActions
) -> None:
    launch.settle(way(charged(store, launch)))
    person.redrive(QUEUE, ["a"])
    store.promote(launch.claim, QUEUE, 1)
    (again,) = launch.reserve()
    assert [step.name for step in found(store, again).steps] == ["charge"]


def test_a_sleep_is_not_charged_and_holds_nothing(store: RedisStore, inspector: Inspector) -> None:
    launch = Launch(store)
    store.enqueue([message("a", concurrency="c"), message("b", concurrency="c")])
    launch.settle(asleep(charged(store, launch)))
    sleeper = inspector.message("a", QUEUE)
    assert (sleeper.state, sleeper.attempts, sleeper.last_error) == (State.SCHEDULED, 0, None)
    (other,) = launch.reserve()
    assert other.name == "b"


def test_it_goes_on_after_its_sleep(store: RedisStore, launch: Launch) -> None:
    launch.settle(asleep(charged(store, launch), 0))
    store.promote(launch.claim, QUEUE, 1)
    (again,) = launch.reserve()
    assert (again.attempt, len(found(store, again).steps)) == (1, 1)


def test_a_signal_wakes_the_message_that_awaits_it(store: RedisStore, launch: Launch, person: MessageActions) -> None:
    launch.settle(asleep(awaiting(store, launch)))
    assert store.promote(launch.claim, QUEUE, 1).moved == 0
    assert person.signal(QUEUE, "a", "approved", {"by": "admin"})
    assert store.promote(launch.claim, QUEUE, 1).moved == 1
    (again,) = launch.reserve()
    assert [(sent.name, sent.value) for sent in found(store, again).signals] == [("approved", {"by": "admin"})]


def test_a_repeated_settlement_is_not_stale_though_a_signal_came_between(
    store: RedisStore, launch: Launch, person: MessageActions
) -> None:
    settlement = asleep(awaiting(store, launch))
    assert launch.settle(settlement).stale == []
    person.signal(QUEUE, "a", "approved", 1)
    await_next_ms(store.wire)  # the instant of its promotion tells what happened to it since
    store.promote(launch.claim, QUEUE, 1)
    assert launch.settle(settlement).stale == []
    launch.reserve()
    assert launch.settle(settlement).stale == [b"a"]


def test_days_of_sleep_are_not_lateness(store: RedisStore, inspector: Inspector) -> None:
    launch = Launch(store)
    store.enqueue([message("a", due=1000)])
    for _ in range(2):
        store.promote(launch.claim, QUEUE, 1)
        launch.settle(asleep(charged(store, launch), 0))
    totals = inspector.totals()
    assert totals.settled[QUEUE, "handler", "asleep"] == 2
    assert not totals.lateness


@pytest.mark.parametrize("name", ["other", "approve", "approved2"])
def test_another_signal_does_not(store: RedisStore, launch: Launch, person: MessageActions, name: str) -> None:
    launch.settle(asleep(awaiting(store, launch)))
    assert person.signal(QUEUE, "a", name, 1)
    assert store.promote(launch.claim, QUEUE, 1).moved == 0


def test_one_does_not_shorten_a_sleep(store: RedisStore, launch: Launch, person: MessageActions) -> None:
    launch.settle(asleep(charged(store, launch)))
    assert person.signal(QUEUE, "a", "charge", 1)
    assert store.promote(launch.claim, QUEUE, 1).moved == 0


def test_one_that_comes_before_the_wait_is_kept(store: RedisStore, launch: Launch, person: MessageActions) -> None:
    assert person.signal(QUEUE, "a", "approved", 1)
    launch.settle(asleep(awaiting(store, launch)))
    assert store.promote(launch.claim, QUEUE, 1).moved == 1


def test_the_first_of_a_name_holds(store: RedisStore, launch: Launch, person: MessageActions) -> None:
    reservation = awaiting(store, launch)
    assert [person.signal(QUEUE, "a", "approved", n) for n in (1, 2, 1, 11)] == [True, False, True, False]
    assert [sent.value for sent in found(store, reservation).signals] == [1]


def test_a_dead_letter_gets_answers_to_its_calls_and_no_other_signals(
    store: RedisStore, launch: Launch, look: Looking, person: MessageActions
) -> None:
    launch.settle(die(charged(store, launch)))
    answer = Answer(QUEUE, "a", "call#1", {"id": "b", "state": "completed", "result": 1})
    store.wire.command("RPUSH", look.key("outbox"), pack([], 0, [], [answer]))
    outbox.send(store, QUEUE, print)
    with pytest.raises(BadData, match="it is dead already"):
        person.signal(QUEUE, "a", "approved", True)
    person.redrive(QUEUE, ["a"])
    (again,) = launch.reserve()
    assert [(sent.name, sent.value) for sent in found(store, again).signals] == [(answer.name, answer.value)]
    launch.settle(die(again))
    person.purge(QUEUE, ["a"])
    assert look.hash("checkpoints") == {}


def test_a_message_that_waits_for_its_rate_is_not_woken(store: RedisStore, person: MessageActions) -> None:
    launch = Launch(store)
    store.enqueue([message("a", rate_key="r", rate="1/1h")])
    launch.settle(asleep(awaiting(store, launch), 0))
    store.promote(launch.claim, QUEUE, 1)
    assert launch.reserve() == []  # the rate is used up
    assert person.signal(QUEUE, "a", "approved", 1)
    assert store.promote(launch.claim, QUEUE, 1).moved == 0


def test_what_has_ended_takes_none(launch: Launch, person: MessageActions) -> None:
    launch.complete(*launch.reserve())
    with pytest.raises(BadData, match="it is completed already"):
        person.signal(QUEUE, "a", "approved", 1)
    with pytest.raises(NotFound):
        person.signal(QUEUE, "nobody", "approved", 1)


@pytest.mark.usefixtures("launch")
def test_signals_have_a_limit(person: MessageActions) -> None:
    with pytest.raises(BadData, match="65538 bytes of JSON"):
        person.signal(QUEUE, "a", "large", "x" * 65_536)
    for n in range(MOST_BYTES // 65_536):
        person.signal(QUEUE, "a", f"s{n}", "x" * 65_500)
    with pytest.raises(BadData, match="its signals have 1048576 bytes"):
        person.signal(QUEUE, "a", "more", "x" * 65_500)


@pytest.mark.parametrize("name", ["", "a\nb", "a\tb", "a#2", "x" * 101, None])
def test_a_name_is_checked(person: MessageActions, name: Any) -> None:
    with pytest.raises(BadData, match="signal name"):
        person.signal(QUEUE, "a", name, 1)


def test_values_come_back_as_they_were(store: RedisStore, launch: Launch, person: MessageActions) -> None:
    values = [{"a": [1, 2.5, None, True]}, "line\nfeed\ttab", 12345678901234567890, []]
    for n, value in enumerate(values):
        person.signal(QUEUE, "a", f"s {n}", value)
    (reservation,) = launch.reserve()
    assert [sent.value for sent in found(store, reservation).signals] == values
    assert json.dumps(found(store, reservation)._asdict())
